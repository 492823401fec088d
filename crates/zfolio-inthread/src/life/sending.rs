//! Signals of the three that are ours, to a thread of this process: [`posted`](crate::signal::posted).

use super::signals::SI_TKILL;
use crate::program_memory;
use crate::raw::{self, Blocked, OURS, err, nr};
use crate::signal::posted::{CARRIER, Signal, To};
use crate::signal::sent::{INFO, bit};
use crate::state::State;
use crate::threads::Record;

/// tkill, tgkill or rt_tgsigqueueinfo, whose pointers are pinned. `None`: it is for the kernel, as the
/// program made it.
pub(crate) fn to_thread(state: &State, number: usize, args: [usize; 6]) -> Option<isize> {
    let process = raw::own(nr::GETPID, [0; 3]).cast_unsigned();
    let [group, thread, signal, info_at] = match number {
        nr::TKILL => [process, args[0], args[1], 0],
        nr::TGKILL => [args[0], args[1], args[2], 0],
        _ => [args[0], args[1], args[2], args[3]],
    };
    if group != process || !(1..=64).contains(&signal) || bit(signal) & OURS == 0 {
        return None;
    }
    let is_it = |record: &&Record| record.thread().is_some_and(|of| of as usize == thread);
    let record = state.threads.all().find(is_it)?;
    let mut info = [0; INFO];
    if number == nr::RT_TGSIGQUEUEINFO {
        match program_memory::read::<[u64; INFO]>(info_at) {
            Some(given) => info = given,
            None => return Some(err::FAULT),
        }
        info[0] = info[0] & !0xffff_ffff | signal as u64;
    } else {
        let user = raw::own(nr::GETUID, [0; 3]).cast_unsigned() as u64;
        info[0] = signal as u64;
        info[1] = u64::from(SI_TKILL.cast_unsigned());
        info[2] = process as u64 | user << 32;
    }
    Some(send(record, &(signal, To::Thread, info)))
}

/// Sends a signal to the thread that has `record`: what the kernel said of it, 0 for done.
pub(crate) fn send(record: &Record, signal: &Signal) -> isize {
    let Some(thread) = record.thread() else {
        return err::NO_THREAD;
    };
    let _blocked = Blocked::new();
    if !record.signals.posted.put(thread, signal) {
        return 0;
    }
    let result = carry(thread, signal.0);
    if result != 0 {
        record.signals.posted.withdraw(thread, signal);
    }
    result
}

/// Sends a thread of this process a signal that says nothing.
pub(super) fn carry(thread: u32, signal: usize) -> isize {
    let process = raw::own(nr::GETPID, [0; 3]).cast_unsigned();
    let mut info = [0_u64; INFO];
    info[1] = u64::from(CARRIER.cast_unsigned());
    let at = info.as_ptr() as usize;
    let args = [process, thread as usize, signal, at, 0, 0];
    // SAFETY: a siginfo of ours.
    unsafe { raw::call(nr::RT_TGSIGQUEUEINFO, args) }
}
