"""numpy arrays in compressed memory, most of them out. The limit is 12 MiB for
all of these; ZFOLIO_SERVING says how faults are served."""

import errno
import io
import os
import pickle
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import zfolio

MIB = 1 << 20
LIMIT = 12 * MIB
zfolio.limit("12M")


def wanted(start, end=None):
    """What is in `filled`: every number sixteen times, which compresses."""
    start, end = (0, start) if end is None else (start, end)
    return np.arange(start, end, dtype="u4") // 16


def filled(mib=32):
    """An array past the limit."""
    a = zfolio.empty(mib * MIB // 4, "u4")
    a[...] = wanted(a.size)
    return a


NULL = os.open(os.devnull, os.O_WRONLY)


def served_here():
    """Whether the thread that touches serves its faults itself."""
    return zfolio.stats()["serving"] in ("in-thread", "protected")


def test_contents_survive():
    before = zfolio.stats()["pages_out"]
    a = filled()
    assert (a == wanted(a.size)).all()
    assert zfolio.stats()["pages_out"] > before
    picks = np.random.default_rng(1).integers(0, a.size, 1000)
    assert (a[picks] == picks // 16).all()


def test_new_arrays_are_zeros():
    a = zfolio.zeros((300, 1000, 10))
    assert a.shape == (300, 1000, 10) and a.dtype == float
    assert not a.any()


def test_arithmetic_agrees_with_numpy():
    rng = np.random.default_rng(2)
    small = rng.integers(0, 50, (1200, 1200)).astype("f4")
    a = zfolio.array(small)
    b = zfolio.empty(small.shape, "f4")
    np.multiply(a, 2, out=b)
    np.add(b, a.T, out=b)
    assert (b == small * 2 + small.T).all()
    assert float(b.sum()) == float((small * 2 + small.T).sum())


def test_sort_and_search():
    a = filled(16)
    a[...] = a[::-1].copy()
    a.sort()
    assert np.searchsorted(a, 12345) == 12345 * 16


def test_views_keep_the_memory():
    view = filled(8)[1000:2000][::2]
    assert isinstance(view, zfolio.Array)
    assert (np.asarray(view) == wanted(1000, 2000)[::2]).all()


def test_shapes_orders_and_types():
    a = zfolio.empty((3, 4), "i2", order="F")
    assert a.flags.f_contiguous and a.shape == (3, 4)
    assert zfolio.empty(5).shape == (5,)
    assert zfolio.empty((0, 7)).size == 0
    assert zfolio.empty((), "u1").shape == ()
    with pytest.raises(TypeError):
        zfolio.empty(3, object)
    with pytest.raises(ValueError):
        zfolio.empty(-1)


def test_too_large_is_a_memory_error():
    with pytest.raises(MemoryError):
        zfolio.empty(1 << 60, "u1")
    with pytest.raises(MemoryError):
        zfolio.empty((1 << 40, 1 << 40))


def test_tofile(tmp_path):
    a = filled()
    zfolio.cold(a)
    a.tofile(tmp_path / "whole")
    assert (np.fromfile(tmp_path / "whole", "u4") == wanted(a.size)).all()
    with open(tmp_path / "part", "wb") as file:
        file.write(b"head")
        a[100:900_000].tofile(file)
    data = (tmp_path / "part").read_bytes()
    assert data[:4] == b"head"
    assert (np.frombuffer(data[4:], "u4") == wanted(100, 900_000)).all()
    a[:1000].reshape(10, 100).T.tofile(tmp_path / "turned")
    turned = wanted(1000).reshape(10, 100).T.ravel()
    assert (np.fromfile(tmp_path / "turned", "u4") == turned).all()
    a[15:18].tofile(tmp_path / "text", sep=",")
    assert (tmp_path / "text").read_text() == "0,1,1"


def test_save_and_pickle(tmp_path):
    a = filled(20).reshape(1024, -1)
    zfolio.cold(a)
    np.save(tmp_path / "a.npy", a)
    assert (np.load(tmp_path / "a.npy", mmap_mode="r") == a).all()
    few = a[:10]
    assert (pickle.loads(pickle.dumps(few)) == few).all()
    held = io.BytesIO()
    np.save(held, few)
    held.seek(0)
    assert (np.load(held) == few).all()


def test_pinned_memory_can_be_given_to_the_system(tmp_path):
    a = filled(20)
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    step = MIB // 8
    zfolio.cold(a)
    for start in range(0, a.size, step):
        with zfolio.pinned(a[start : start + step]) as piece:
            assert os.write(fd, piece) == piece.nbytes
    os.lseek(fd, 0, os.SEEK_SET)
    a[...] = 0
    with open(fd, "rb", buffering=0) as file:
        for start in range(0, a.size, step):
            with zfolio.pinned(a[start : start + step]) as piece:
                assert file.readinto(piece) == piece.nbytes
    assert (a == wanted(a.size)).all()


def test_the_system_may_have_an_array(tmp_path):
    a = filled(4)
    zfolio.cold(a)
    with open(tmp_path / "file", "w+b", buffering=0) as file:
        assert os.write(file.fileno(), a[1000:]) == a[1000:].nbytes
        assert file.write(a[:1000]) == 4000
        file.seek(0)
        b = filled(4)
        zfolio.cold(b)
        assert file.readinto(b) == b.nbytes
        assert (b[:-1000] == a[1000:]).all() and (b[-1000:] == a[:1000]).all()
    with open(tmp_path / "buffered", "wb") as file:
        zfolio.cold(a)
        file.write(b"head")
        file.write(a)
        file.write(memoryview(a)[5:70_000])
    data = (tmp_path / "buffered").read_bytes()
    assert data == b"head" + a.tobytes() + a[5:70_000].tobytes()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        zfolio.cold(a)
        sender = threading.Thread(target=ours.sendall, args=(a,))
        sender.start()
        got = np.empty(a.size, "u4")
        left = memoryview(got).cast("B")
        while len(left):
            left = left[theirs.recv_into(left) :]
        sender.join()
        assert (got == a).all()


def test_a_buffer_is_what_numpy_would_give():
    a = filled(2)
    turned = a[:6000].reshape(3, 20, 100).transpose(2, 0, 1)[::-1, :, ::3]
    for view in [a, a[:0], a[17:18], a[::-7], turned, a[:400].reshape(20, 20).T]:
        plain = np.asarray(view)
        ours, theirs = memoryview(view), memoryview(plain)
        for name in ["format", "itemsize", "nbytes", "ndim", "readonly", "shape", "strides"]:
            assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.tolist() == theirs.tolist()
        ours.release()
    fixed = a[:10]
    fixed.flags.writeable = False
    assert memoryview(fixed).readonly
    with pytest.raises(TypeError):
        io.BytesIO(bytes(40)).readinto(fixed)
    on_heap = a[:10] + 1  # of the same type, and in ordinary memory
    assert memoryview(on_heap).tolist() == [1] * 10


def test_what_a_buffer_holds_is_given_back():
    a = filled(8)
    for _ in range(100):  # half a megabyte each, of six
        assert os.write(NULL, a[: MIB // 8]) == MIB // 2
    held = memoryview(a[: MIB // 8])[:]
    del a
    assert held[-1] == (MIB // 8 - 1) // 16


def test_more_than_may_be_pinned_is_refused_where_the_system_would_fail():
    a = filled()
    if served_here():
        with pytest.raises(BufferError, match="tofile"):
            os.write(NULL, a)
        with pytest.raises(OSError) as error:
            zfolio.cold(a)
            with open("/dev/zero", "rb", buffering=0) as zero:
                zero.readinto(np.asarray(a))
        assert error.value.errno == errno.EFAULT  # as documented: nobody knows of it
    else:
        assert os.write(NULL, a) == a.nbytes
    assert (a == wanted(a.size)).all()
    a.tofile(os.devnull)


def test_too_large_a_pin():
    a = zfolio.empty(LIMIT, "u1")
    with pytest.raises(MemoryError):
        with zfolio.pinned(a):
            pass
    with pytest.raises(TypeError):
        with zfolio.pinned(np.zeros(3)):
            pass


def test_advice():
    a = filled(8)
    zfolio.cold(a)
    zfolio.willneed(a[: a.size // 2])
    assert (a == wanted(a.size)).all()


def test_threads():
    a = filled(24)
    wrong = []

    def read(seed):
        picks = np.random.default_rng(seed).integers(0, a.size, 500)
        if not (a[picks] == picks // 16).all():
            wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_limits():
    a = zfolio.empty(10)
    assert zfolio.stats()["high"] == LIMIT
    zfolio.limit(LIMIT)
    zfolio.limit("32M")
    assert zfolio.stats()["high"] == 32 * MIB
    zfolio.limit(LIMIT)
    with pytest.raises(ValueError):
        zfolio.limit("8G")
    for bad in ["much", "-3", "3X", ""]:
        with pytest.raises(ValueError):
            zfolio.limit(bad)
    del a


def test_serving_is_as_asked_for():
    asked = os.environ.get("ZFOLIO_SERVING")
    if asked:
        assert zfolio.stats()["serving"] == asked
    done = run(
        """
import zfolio
zfolio.limit("12M", serving="protected")
a = zfolio.empty(32 << 20, "u1")
a[:] = 5
assert zfolio.stats()["serving"] == "protected"
assert zfolio.stats()["stored_pages"] > 0 and (a == 5).all()
"""
    )
    assert done.returncode == 0, done
    with pytest.raises(ValueError):
        zfolio.limit(LIMIT, serving="by hand")


def test_usage_is_given_back():
    done = run(
        """
import zfolio
zfolio.limit("12M")
a = zfolio.empty(32 << 20, "u1")
a[:] = 5
a[::4096] = 6
assert zfolio.stats()["stored_pages"] > 0
assert zfolio.stats()["used"] < 24 << 20
del a
while zfolio.stats()["stored_pages"] > 0:  # but for a folio on its way
    pass
"""
    )
    assert done.returncode == 0, done


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_a_child_of_a_fork_ends_with_a_line():
    done = run(
        """
import os, zfolio
zfolio.limit("16M")
a = zfolio.empty(4 << 20, "u1")
a[:] = 7
zfolio.cold(a)
pid = os.fork()
if pid == 0:
    a.sum()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pid = os.fork()
if pid == 0:
    b = zfolio.empty(1 << 20, "u1")
    b[:] = 3
    os._exit(int(b.sum()) != 3 << 20)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
assert a.sum() == 7 * a.size
"""
    )
    assert done.returncode == 0, done
    assert done.stdout.split() == ["70", "0"], done
    assert "regions stay with their process" in done.stderr


def test_faulthandler_may_come_first_or_last():
    for order in ["faulthandler.enable(); a = make()", "a = make(); faulthandler.enable(); b = make()"]:
        done = run(
            f"""
import faulthandler, zfolio
zfolio.limit("8M")
def make():
    a = zfolio.empty(24 << 20, "u1")
    a[:] = 7
    zfolio.cold(a[:1 << 20])
    return a
{order}
assert a.sum() == 7 * a.size
"""
        )
        assert done.returncode == 0 and "Fatal" not in done.stderr, done


def option_cases():
    """The cases that every face has: served how, options, counters above 0 then."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../crates/zfolio/tests/options.txt")) as file:
        lines = [line for line in file if not line.startswith("#")]
    for line in lines:
        served, options, counters = line.split("|")
        options = dict(option.split("=", 1) for option in options.split())
        yield served.strip(), {n.replace("-", "_"): v for n, v in options.items()}, counters.split()


@pytest.mark.parametrize("served, options, counters", option_cases())
def test_options(served, options, counters):
    if served == "moving" and zfolio.stats()["serving"] == "protected":
        pytest.skip("not by page protection")
    done = run(
        f"""
import numpy as np, zfolio
zfolio.limit("8M", **{options!r})
a = zfolio.empty(24 << 18, "u4")
a[:] = np.arange(a.size) // 16
assert (a == np.arange(a.size) // 16).all()
said = zfolio.statistics()
for name in {counters!r}:
    assert said["counters"][name] > 0, (name, said["counters"])
assert sum(row["pages_used"] for row in said["classes"]) > 0
assert set(zfolio.compact()) == {{"objs_moved", "pages_compacted"}}
try:
    zfolio.limit("8M", tier="off")
except ValueError:
    pass
else:
    raise AssertionError("options with an array in use")
"""
    )
    assert done.returncode == 0, done.stderr


def test_options_that_are_none():
    done = run(
        """
import zfolio
for options in ({"folio": "3K"}, {"high": "1G"}, {"engines": 17}):
    try:
        zfolio.limit("8M", **options)
    except ValueError:
        continue
    raise AssertionError(options)
"""
    )
    assert done.returncode == 0, done.stderr
