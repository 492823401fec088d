"""numpy arrays in memory that is compressed when it is not used.

    import zfolio
    zfolio.limit("2G")                       # of memory, for all arrays together
    a = zfolio.empty((40_000, 40_000), "f4")  # 6.4 GB, used like any array

Where the process may (root, CAP_SYS_PTRACE, or access to /dev/userfaultfd),
missing pages are served by threads, and nothing about these arrays is unusual.
Elsewhere they are served in the thread that touches them, without userfaultfd
where that is refused (slower). A system call that is given the memory itself
(os.write, socket.send, readinto, a memoryview) then needs it to be there: what is
given of an array is pinned while somebody has it, which may be half of the limit
for all together; more is a BufferError. `tofile` and `numpy.save` have no such
bound. Of what is not an array any more (`numpy.asarray(a)`, an address) nothing
is known here: there is `pinned`.

Arrays need numpy: `pip install zfolio[numpy]`. The command `zfolio`, which comes
with this package, does not.

The child of a fork (multiprocessing's "fork") does not have these arrays; it
can make its own.
"""

# Names of what `_arrays` has; numpy is looked for when one of them is first used.
__all__ = [
    "Array",
    "array",
    "cold",
    "compact",
    "empty",
    "limit",
    "pinned",
    "statistics",
    "stats",
    "willneed",
    "zeros",
]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from . import _arrays
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise ModuleNotFoundError(
            f"zfolio.{name} needs numpy; pip install zfolio[numpy]", name="numpy"
        ) from None
    value = getattr(_arrays, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *__all__])
