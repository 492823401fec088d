"""numpy arrays in compressed memory, most of them out. The limit is 12 MiB for
all of these; ZFOLIO_SERVING says how faults are served."""

import errno
import io
import os
import pickle
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


def test_unpinned_memory_and_the_system():
    a = filled(4)
    zfolio.cold(a)
    with open(os.devnull, "wb") as null, open("/dev/zero", "rb", buffering=0) as zero:
        if zfolio.stats()["serving"] in ("in-thread", "protected"):
            with pytest.raises(OSError) as error:
                zero.readinto(a)
            assert error.value.errno == errno.EFAULT  # as documented
        else:
            assert zero.readinto(a) == a.nbytes
            assert not a.any()
        a.tofile(null)


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
