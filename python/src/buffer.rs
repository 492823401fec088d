//! The buffers of an array: what somebody was given of it stays in memory.
//!
//! Whoever reads or writes an array's memory for a system call (os.write,
//! socket.send, readinto, a memoryview) asks for it by Python's buffer protocol
//! and says when it is done. Where faults are served in the thread that
//! touches, that memory is pinned in between: what is out is EFAULT to the
//! system. numpy's own operations do not ask.

use crate::{Block, error, hold};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use zfolio::{Error, Pin};

/// `Py_buffer`, as it is from Python 3.9 on; of the stable interface since 3.11.
#[derive(Clone, Copy)]
#[repr(C)]
struct Buffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

unsafe extern "C" {
    fn PyObject_GetBuffer(of: *mut ffi::PyObject, view: *mut Buffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut Buffer);
}

// Numbers of slots, which Python takes from 3.9 on.
const GET_BUFFER: c_int = 1;
const RELEASE_BUFFER: c_int = 2;

/// Behind a buffer until it is released.
struct Held {
    // Before the block: it is dropped first.
    _pin: Option<Pin<'static>>,
    _block: Option<Py<Block>>,
    /// What numpy gave for the plain array; the buffer's shape is in it.
    plain: Buffer,
}

/// numpy's type of arrays.
static BASE: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// Makes a type of `base`, numpy's type of arrays, with buffers that are pinned.
#[pyfunction]
pub fn array_type<'py>(py: Python<'py>, base: Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let mut slots = [
        ffi::PyType_Slot {
            slot: GET_BUFFER,
            pfunc: get_buffer as *mut c_void,
        },
        ffi::PyType_Slot {
            slot: RELEASE_BUFFER,
            pfunc: release_buffer as *mut c_void,
        },
        ffi::PyType_Slot {
            slot: 0,
            pfunc: ptr::null_mut(),
        },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"zfolio.PinnedBuffers".as_ptr(),
        basicsize: 0, // the base's
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    let bases = (&base,).into_pyobject(py)?;
    // SAFETY: the slots' functions have the types that their numbers stand for;
    // Python copies what the specification says, but for the name, which is static.
    let made = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr()) };
    let _ = BASE.set(py, base.unbind());
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }
}

/// `bf_getbuffer`.
unsafe extern "C" fn get_buffer(
    array: *mut ffi::PyObject,
    view: *mut Buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: Python calls this with the interpreter held, an array of this
    // type, and a buffer to fill in.
    let (py, array, view) = unsafe {
        let py = Python::assume_attached();
        (py, Bound::from_borrowed_ptr(py, array), &mut *view)
    };
    view.obj = ptr::null_mut(); // so that a failure releases nothing
    match fill_in(&array, flags) {
        Ok(filled) => {
            *view = filled;
            0
        }
        Err(why) => {
            why.restore(py);
            -1
        }
    }
}

fn fill_in(array: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Buffer> {
    let py = array.py();
    let base = BASE.get(py).expect("set with the type");
    let of_numpy = array.call_method1(pyo3::intern!(py, "view"), (base,))?;
    // SAFETY: all zeros is an empty buffer.
    let mut plain: Buffer = unsafe { std::mem::zeroed() };
    // SAFETY: an array of numpy's, and a buffer to fill in.
    if unsafe { PyObject_GetBuffer(of_numpy.as_ptr(), &raw mut plain, flags) } != 0 {
        return Err(PyErr::fetch(py));
    }
    let mut held = Box::new(Held {
        _pin: None,
        _block: None,
        plain,
    });
    if let Some(block) = block_of(array)?
        && !block.get().open_to_system()
        && held.plain.len > 0
    {
        let (start, len) = held.plain.bytes();
        let offset = start - block.get().region.as_ptr() as usize;
        let block = block.unbind();
        held._pin = Some(hold(py, &block, offset, len).map_err(|why| refused(why, len))?);
        held._block = Some(block);
    }
    let plain = held.plain;
    Ok(Buffer {
        obj: array.clone().into_ptr(),
        internal: Box::into_raw(held).cast(),
        ..plain
    })
}

fn refused(why: Error, len: usize) -> PyErr {
    match why {
        Error::PinnedTooMuch => PyBufferError::new_err(format!(
            "{len} bytes of an array cannot be kept in memory at once, as a system call \
             needs them here: give a part of it, use tofile, or raise the limit \
             (numpy.asarray(a) for code that makes no system call with it)"
        )),
        other => error(other),
    }
}

/// The block that an array's memory is in, if it is in one.
fn block_of<'py>(array: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Block>>> {
    let name = pyo3::intern!(array.py(), "base");
    let mut at = array.clone();
    loop {
        if let Ok(block) = at.cast::<Block>() {
            return Ok(Some(block.clone()));
        }
        match at.getattr_opt(name)? {
            Some(next) if !next.is_none() => at = next,
            _ => return Ok(None),
        }
    }
}

impl Buffer {
    /// The address and the number of the bytes that it reaches. It is not empty.
    fn bytes(&self) -> (usize, usize) {
        let start = self.buf as usize;
        if self.shape.is_null() || self.strides.is_null() {
            return (start, self.len as usize);
        }
        let ndim = self.ndim as usize;
        // SAFETY: they have `ndim` entries each, says the protocol.
        let (shape, strides) = unsafe {
            (
                std::slice::from_raw_parts(self.shape, ndim),
                std::slice::from_raw_parts(self.strides, ndim),
            )
        };
        let (mut low, mut high) = (0isize, 0isize);
        for (&count, &stride) in shape.iter().zip(strides) {
            let last = (count - 1) * stride;
            low += last.min(0);
            high += last.max(0);
        }
        let low = start.wrapping_add_signed(low);
        let high = start.wrapping_add_signed(high + self.itemsize);
        (low, high - low)
    }
}

/// `bf_releasebuffer`.
unsafe extern "C" fn release_buffer(_array: *mut ffi::PyObject, view: *mut Buffer) {
    // SAFETY: made by `fill_in` for this buffer, and released once.
    let held = unsafe { Box::from_raw((*view).internal.cast::<Held>()) };
    drop(held);
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: filled in by numpy, released once; the interpreter is held, as
        // it is whenever a buffer is got or released.
        unsafe { PyBuffer_Release(&raw mut self.plain) };
    }
}
