//! Which threads faulted lately.

/// Faults in a row by one thread from which on it counts as the only one.
pub(crate) const ALONE: u32 = 64;

/// What one fault of another thread takes off those in a row.
const OTHER: u32 = 8;

/// Who faulted lately.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RecentFaulters {
    thread: u32,
    in_a_row: u32,
    /// Of all threads.
    pub(crate) faults: usize,
}

impl RecentFaulters {
    /// Notes a fault.
    pub(crate) fn note(&mut self, thread: u32) {
        self.faults += 1;
        if thread == self.thread {
            self.in_a_row = (self.in_a_row + 1).min(2 * ALONE);
        } else {
            self.in_a_row = self.in_a_row.saturating_sub(OTHER);
            if self.in_a_row == 0 {
                (self.thread, self.in_a_row) = (thread, 1);
            }
        }
    }

    /// The only thread that faults lately, if there is one.
    pub(crate) fn alone(self) -> Option<u32> {
        (self.in_a_row >= ALONE).then_some(self.thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_alone_is_followed_and_two_are_not() {
        let mut faulting = RecentFaulters::default();
        (0..ALONE).for_each(|_| faulting.note(7));
        assert_eq!(faulting.alone(), Some(7));
        (0..4 * ALONE).for_each(|n| faulting.note(7 + n % 2));
        assert_eq!(faulting.alone(), None);
        (0..4 * ALONE).for_each(|_| faulting.note(9));
        assert_eq!(faulting.alone(), Some(9));
    }
}
