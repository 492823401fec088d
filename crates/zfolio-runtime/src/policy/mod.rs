//! Rules without effects: what stays, what comes along, which codec is worth it.
//!
//! - [`readahead`], [`strides`] and [`locality`]: how much a fault brings.
//! - [`refault`]: which pages are spared, by the distance at which they came back.
//! - [`watermarks`]: when reclaim starts and stops.
//! - [`codec_choice`]: how dense the pool is to be.
//!
//! State: none of its own. The types are held by the rooms that ask them, under their locks.
//! No system call is made here, so the tests need no kernel.
//!
//! Below: numbers of pages only.

pub mod codec_choice;
pub mod locality;
pub mod readahead;
pub mod refault;
pub mod strides;
pub(crate) mod watermarks;
