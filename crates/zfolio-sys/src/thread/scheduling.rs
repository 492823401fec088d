//! Where and when the calling thread runs: processors, priority, timer slack.

use crate::syscall::{nr, syscall};

/// Has the calling thread's sleeps end when they should, and not up to 50 us later (the
/// kernel's default timer slack).
pub fn sleep_exactly() {
    const PR_SET_TIMERSLACK: usize = 29;
    // SAFETY: takes numbers only.
    let _ = unsafe { syscall(nr::PRCTL, [PR_SET_TIMERSLACK, 1, 0, 0, 0, 0]) };
}

/// Asks that the calling thread be run soon after it wakes: a higher priority
/// where that is allowed (CAP_SYS_NICE), else a short time slice, which the
/// scheduler takes as a wish for low latency (Linux 6.12).
pub fn ask_for_low_latency() {
    const NICE: isize = -10;
    const SLICE_NS: u64 = 200_000;
    // struct sched_attr: size, policy (normal), flags, nice, priority, runtime.
    let mut attr = [0_u64; 7];
    attr[0] = size_of_val(&attr) as u64;
    attr[3] = SLICE_NS;
    // SAFETY: takes numbers only; 0, 0 means the calling thread.
    let raised = unsafe { syscall(nr::SETPRIORITY, [0, 0, NICE.cast_unsigned(), 0, 0, 0]) }.is_ok();
    if raised {
        attr[2] = NICE.cast_unsigned() as u64 & 0xffff_ffff;
    }
    // SAFETY: the kernel reads `size` bytes of the structure.
    let _ = unsafe { syscall(nr::SCHED_SETATTR, [0, attr.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Processors that a thread may run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    mask: [u64; 16],
}

impl Affinity {
    /// The calling thread's. (None at all, should the kernel not say.)
    #[must_use]
    pub fn current() -> Self {
        let mut mask = [0_u64; 16];
        // SAFETY: the kernel writes at most the size given.
        let _ = unsafe {
            syscall(
                nr::SCHED_GETAFFINITY,
                [0, size_of_val(&mask), mask.as_mut_ptr() as usize, 0, 0, 0],
            )
        };
        Self { mask }
    }

    /// Of these the one, if it is among them.
    #[must_use]
    pub fn only(&self, processor: usize) -> Option<Self> {
        let bit = 1 << (processor % 64);
        if self.mask.get(processor / 64)? & bit == 0 {
            return None;
        }
        let mut mask = [0; 16];
        mask[processor / 64] = bit;
        Some(Self { mask })
    }

    /// Makes it the calling thread's; false if the kernel refuses.
    #[must_use]
    pub fn apply(&self) -> bool {
        let mask = &self.mask;
        // SAFETY: the kernel reads the mask.
        let done = unsafe {
            syscall(
                nr::SCHED_SETAFFINITY,
                [0, size_of_val(mask), mask.as_ptr() as usize, 0, 0, 0],
            )
        };
        done.is_ok()
    }

    /// How many there are, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        let ones = self.mask.iter().map(|word| word.count_ones() as usize);
        ones.sum::<usize>().max(1)
    }
}

/// Number of processors this process may run on, at least 1.
#[must_use]
pub fn processors() -> usize {
    Affinity::current().count()
}

/// The processor the calling thread runs on at this moment.
#[must_use]
pub fn processor() -> usize {
    let mut processor = 0_u32;
    // SAFETY: the kernel writes one word.
    let asked = unsafe { syscall(nr::GETCPU, [(&raw mut processor) as usize, 0, 0, 0, 0, 0]) };
    asked.map_or(0, |_| processor as usize)
}
