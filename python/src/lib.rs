//! What the Python package is made of: blocks of memory in a group's regions.
//!
//! The module has a heap of its own, as the C library has: Python's and
//! malloc's may be in the middle of something when a fault is served.

mod buffer;

use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Mutex;
use zfolio::{Error, Group, Region, Serving};
use zfolio_sys::heap::LazyHeap;

#[global_allocator]
static HEAP: LazyHeap = LazyHeap::new();

/// The group that arrays are in, and whether system calls need no pin.
static GROUP: Mutex<Option<Group>> = Mutex::new(None);

fn error(why: Error) -> PyErr {
    let words = why.to_string();
    match why {
        Error::Empty
        | Error::OutOfRange
        | Error::BadLimit
        | Error::LimitIsSet
        | Error::BadOption { .. }
        | Error::UnknownOption => PyValueError::new_err(words),
        Error::TooLarge { .. } | Error::TooManyRegions | Error::PinnedTooMuch => {
            PyMemoryError::new_err(words)
        }
        Error::Unavailable { errno, .. } => PyOSError::new_err((errno, words)),
        _ => PyRuntimeError::new_err(words),
    }
}

/// Threads that serve where they are allowed, else the thread that touches.
fn make(
    high: usize,
    serving: Option<&str>,
    options: &[(String, String)],
) -> Result<Group, PyErr> {
    let mut builder = Group::builder(high);
    for (name, value) in options {
        builder = builder.option(name, value).map_err(error)?;
    }
    let threads = || builder.serving(Serving::Threads).build();
    let in_thread = || builder.serving(Serving::InThread).build();
    match serving {
        None => threads().or_else(|why| match why {
            Error::Unavailable { .. } => in_thread(),
            other => Err(other),
        }),
        Some("threads") => threads(),
        Some("in-thread") => in_thread(),
        Some("protected") => builder.serving(Serving::Protected).build(),
        Some(_) => {
            return Err(PyValueError::new_err(
                "serving is \"threads\", \"in-thread\" or \"protected\"",
            ));
        }
    }
    .map_err(error)
}

fn lock() -> PyResult<std::sync::MutexGuard<'static, Option<Group>>> {
    let poisoned = |_| PyRuntimeError::new_err("zfolio failed before");
    GROUP.lock().map_err(poisoned)
}

/// How the environment says that faults are to be served, if it does.
fn named() -> Option<String> {
    let name = std::env::var("ZFOLIO_SERVING").ok();
    name.filter(|name| !name.is_empty())
}

fn machine_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    kib.map_or(1 << 30, |kib: usize| kib << 10)
}

fn group(py: Python<'_>) -> PyResult<Group> {
    // The lock is never held without the interpreter's, nor waited for with it.
    let here = || -> PyResult<Option<Group>> {
        Ok(lock()?.as_ref().filter(|group| group.is_here()).cloned())
    };
    if let Some(group) = here()? {
        return Ok(group);
    }
    let serving = named();
    let made = py.detach(|| make(machine_bytes() / 2, serving.as_deref(), &[]))?;
    if let Some(other) = here()? {
        return Ok(other);
    }
    Ok(lock()?.insert(made).clone())
}

/// Sets the limit, bytes, of the memory that arrays use, and with options how it is kept: a
/// group of its own then, while nobody uses the one there is.
#[pyfunction]
#[pyo3(signature = (high, serving=None, options=Vec::new()))]
fn set_limit(
    py: Python<'_>,
    high: usize,
    serving: Option<&str>,
    options: Vec<(String, String)>,
) -> PyResult<()> {
    if !options.is_empty() {
        let group = lock()?;
        if group.as_ref().is_some_and(|old| old.is_here() && old.is_used()) {
            return Err(error(Error::LimitIsSet));
        }
    } else {
        let group = lock()?;
        if let Some(old) = &*group
            && old.is_here()
            && (serving.is_none() || old.is_used())
        {
            let same = serving.is_none_or(|name| name == serving_name(old));
            let set = if same {
                old.set_high(high)
            } else {
                Err(Error::LimitIsSet)
            };
            if set != Err(Error::LimitIsSet) || old.is_used() {
                return set.map_err(error);
            }
        }
    }
    let named = named();
    let made = py.detach(|| make(high, serving.or(named.as_deref()), &options))?;
    *lock()? = Some(made);
    Ok(())
}

/// Figures of the group.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let group = group(py)?;
    let stats = group.stats();
    let dict = PyDict::new(py);
    dict.set_item("high", stats.high)?;
    dict.set_item("used", stats.used)?;
    dict.set_item("pool", stats.pool)?;
    dict.set_item("stored_pages", stats.stored_pages)?;
    dict.set_item("compressed_bytes", stats.compressed_bytes)?;
    dict.set_item("pages_out", stats.pages_out)?;
    dict.set_item("pages_in", stats.pages_in)?;
    dict.set_item("faults", stats.faults)?;
    dict.set_item("stall_seconds", stats.stall_ns as f64 / 1e9)?;
    dict.set_item("serving", serving_name(&group))?;
    Ok(dict)
}

/// All that the group has counted, as JSON.
#[pyfunction]
fn statistics(py: Python<'_>) -> PyResult<String> {
    Ok(group(py)?.statistics())
}

/// Compacts the pool: objects moved, and pages that came free.
#[pyfunction]
fn compact(py: Python<'_>) -> PyResult<(u64, u64)> {
    let group = group(py)?;
    let done = py.detach(|| group.compact());
    Ok((done.objs_moved, done.pages_compacted))
}

fn serving_name(group: &Group) -> &'static str {
    match group.serving() {
        None => "zfolio run",
        Some(Serving::Threads) => "threads",
        Some(Serving::InThread) => "in-thread",
        Some(Serving::Protected) => "protected",
    }
}

/// Memory of one array, for `__array_interface__`.
#[pyclass(frozen)]
struct Block {
    region: Region,
}

#[pymethods]
impl Block {
    #[new]
    fn new(py: Python<'_>, len: usize) -> PyResult<Self> {
        let group = group(py)?;
        let region = py.detach(|| Region::reserve_in(&group, len));
        region.map(|region| Self { region }).map_err(error)
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("version", 3)?;
        dict.set_item("shape", (self.region.len(),))?;
        dict.set_item("typestr", "|u1")?;
        dict.set_item("data", (self.region.as_ptr() as usize, false))?;
        Ok(dict)
    }

    fn __len__(&self) -> usize {
        self.region.len()
    }

    /// Whether system calls may be given its memory without a pin.
    #[getter]
    fn open_to_system(&self) -> bool {
        matches!(self.region.group().serving(), None | Some(Serving::Threads))
    }

    fn cold(&self, py: Python<'_>, offset: usize, len: usize) -> PyResult<()> {
        let range = offset..offset.saturating_add(len);
        py.detach(|| self.region.advise_cold(range)).map_err(error)
    }

    fn willneed(&self, py: Python<'_>, offset: usize, len: usize) -> PyResult<()> {
        let range = offset..offset.saturating_add(len);
        py.detach(|| self.region.advise_willneed(range))
            .map_err(error)
    }
}

/// Pins bytes of a block. Whoever has the pin has the block too, and lets go of
/// the pin first.
fn hold(
    py: Python<'_>,
    block: &Py<Block>,
    offset: usize,
    len: usize,
) -> Result<zfolio::Pin<'static>, Error> {
    let region: *const Region = &raw const block.get().region;
    // SAFETY: the block is frozen and on Python's heap, and lives for as long as
    // the pin does, by contract.
    let region: &'static Region = unsafe { &*region };
    py.detach(|| region.pin(offset..offset.saturating_add(len)))
}

/// Bytes of a block that stay in memory until `release`.
#[pyclass]
struct Pinned {
    // Before the block: it is dropped first.
    pin: Option<zfolio::Pin<'static>>,
    _block: Py<Block>,
}

#[pymethods]
impl Pinned {
    #[new]
    fn new(py: Python<'_>, block: Py<Block>, offset: usize, len: usize) -> PyResult<Self> {
        let pin = hold(py, &block, offset, len).map_err(error)?;
        Ok(Self {
            pin: Some(pin),
            _block: block,
        })
    }

    fn release(&mut self) {
        self.pin = None;
    }
}

/// See the package.
#[pymodule]
fn _zfolio(module: &Bound<'_, PyModule>) -> PyResult<()> {
    zfolio::hold_over_forks(|| HEAP.hold(), || HEAP.release());
    module.add_function(wrap_pyfunction!(set_limit, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(statistics, module)?)?;
    module.add_function(wrap_pyfunction!(compact, module)?)?;
    module.add_function(wrap_pyfunction!(buffer::array_type, module)?)?;
    module.add_class::<Block>()?;
    module.add_class::<Pinned>()
}
