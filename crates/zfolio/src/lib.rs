//! The runtime: whose memory is moved, when, and which part of it.
#![no_std]

extern crate alloc;

pub mod control;
