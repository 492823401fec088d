//! Writes the name of a process into its slot.

use crate::segment::process_slot::ProcessSlot;
use core::sync::atomic::Ordering;
use zfolio_sys::procfs::File;
use zfolio_sys::thread;
use zfolio_sys::thread::{Clock, now_ns};

/// Puts this process's name into its statistics.
pub fn describe(slot: &ProcessSlot) {
    slot.process
        .started_ns
        .store(now_ns(Clock::Monotonic), Ordering::Relaxed);
    let mut name = thread::name();
    // (The first thread's name is the process's.)
    if thread::id() != thread::pid()
        && let Ok(file) = File::open(c"/proc/self/comm")
    {
        name = [0; 16];
        let len = file.read_at(&mut name, 0).unwrap_or(0);
        file.close();
        if len > 0 && name[len - 1] == b'\n' {
            name[len - 1] = 0;
        }
    }
    let (low, high) = name.split_at(8);
    for (word, half) in slot.process.comm.iter().zip([low, high]) {
        let raw = half.try_into().map_or(0, u64::from_le_bytes);
        word.store(raw, Ordering::Relaxed);
    }
}
