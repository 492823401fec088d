"""What `zfolio` offers, with numpy."""

import contextlib
import json
import re

import numpy as np

from . import _zfolio

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_CHUNK = 1 << 20


def _bytes(size):
    """Bytes of a size: a number, or text such as "512M" or "1.5G"."""
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", size, re.IGNORECASE)
        if not match:
            raise ValueError(f"{size!r} is no size; write it as 2G or 512M")
        return int(float(match[1]) * _UNITS[match[2].upper()])
    return int(size)


def limit(size, serving=None, **options):
    """Sets how much memory all arrays together may use: bytes, or "2G".

    Half of the machine's if it is never set. It can be changed at any time; with
    arrays in use not to many times what it was first.
    `serving`: "threads", "in-thread" or "protected" (in the thread that touches,
    without userfaultfd) instead of what suits the process.
    `options`: those of `zfolio run` by their names, with _ for -: compressor="zstd",
    engines=2, tier="auto", backing="file:/var/tmp,size=4G", folio, max, on_max,
    max_pool, accept_threshold, no_shrinker, split_huge_pages,
    huge_page_assembly, page_cluster. Only while no array is in use.
    """
    size = _bytes(size)
    if size < 0:
        raise ValueError("a limit is not negative")
    words = [(name.replace("_", "-"), _word(value)) for name, value in options.items()]
    _zfolio.set_limit(size, serving, words)


def _word(value):
    """A value as the command line has it."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def stats():
    """What the arrays use and what was done for them, as a dict. Bytes, pages
    and counts; `serving` is how faults are served."""
    return _zfolio.stats()


def statistics():
    """All that was counted, as a dict by the names of `zfolio run --stats`:
    counters, folios, mm_stat, classes, engine_queues."""
    return json.loads(_zfolio.statistics())


def compact():
    """Compacts the pool as long as that frees pages. A dict: how many objects were
    moved (`objs_moved`), and pages came free (`pages_compacted`)."""
    moved, freed = _zfolio.compact()
    return {"objs_moved": moved, "pages_compacted": freed}


class Array(_zfolio.array_type(np.ndarray)):
    """An array in compressed memory. Views of it are of this kind too."""

    def tofile(self, fid, sep="", format="%s"):
        block = _block_of(self)
        if block is None or block.open_to_system or sep != "":
            return super().tofile(fid, sep, format)
        with contextlib.ExitStack() as stack:
            if not hasattr(fid, "write"):
                fid = stack.enter_context(open(fid, "wb"))
            # By way of ordinary memory, a piece at a time.
            flat = self.reshape(-1) if self.flags.c_contiguous else self.flat
            count = max(1, _CHUNK // max(1, self.itemsize))
            for start in range(0, self.size, count):
                np.array(flat[start : start + count], subok=False).tofile(fid)
        return None


def _block_of(array):
    """The block an array's memory is in, or None."""
    while array is not None:
        if isinstance(array, _zfolio.Block):
            return array
        array = getattr(array, "base", None)
    return None


def empty(shape, dtype=float, order="C"):
    """An array of zeros (its pages are zeros until they are written to)."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError("an array of Python objects cannot be in compressed memory")
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    shape = tuple(int(n) for n in shape)
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    length = dtype.itemsize
    for n in shape:
        length *= n
    if length == 0:
        return np.empty(shape, dtype, order).view(Array)
    if length >= 1 << 63:
        raise MemoryError(f"there are no addresses for an array of {length} bytes")
    memory = np.asarray(_zfolio.Block(length))
    return memory.view(dtype).reshape(shape, order=order).view(Array)


zeros = empty


def array(source, dtype=None):
    """A copy of an array in compressed memory."""
    source = np.asarray(source)
    copy = empty(source.shape, source.dtype if dtype is None else dtype)
    copy[...] = source
    return copy


def _range_of(array):
    """The block of an array, and which bytes of it the array uses."""
    block = _block_of(array)
    if block is None:
        raise TypeError("this array is not in compressed memory")
    low, high = np.lib.array_utils.byte_bounds(array) if _new_numpy() else np.byte_bounds(array)
    start = block.__array_interface__["data"][0]
    return block, low - start, high - low


def _new_numpy():
    return hasattr(np.lib, "array_utils")


@contextlib.contextmanager
def pinned(array):
    """Keeps an array's bytes in memory: for system calls and foreign code.

        with zfolio.pinned(a[:1000]) as bytes_:
            os.write(fd, bytes_)

    All pins together may be half of the limit.
    """
    pin = _zfolio.Pinned(*_range_of(array))
    try:
        yield array
    finally:
        pin.release()


def cold(array):
    """Says that an array will not be used for a while: it is compressed now."""
    block, offset, length = _range_of(array)
    block.cold(offset, length)


def willneed(array):
    """Says that an array will be used soon: as much of it as a quarter of the
    limit is brought back now."""
    block, offset, length = _range_of(array)
    block.willneed(offset, length)
