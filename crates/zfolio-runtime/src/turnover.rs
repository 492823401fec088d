//! Whether what is stored comes back: then time is worth more than room.

/// Pages that came or left between two judgements.
const WINDOW: u64 = 4096;
/// Of so many pages stored, one that comes back is many.
const MANY: u64 = 4;

/// What came from the pool and went there, judged window by window.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Turnover {
    came: u64,
    went: u64,
    returns: bool,
}

impl Turnover {
    /// As last judged.
    pub(crate) const fn returns(&self) -> bool {
        self.returns
    }

    /// Takes the totals so far, in pages; returns whether in the last whole window
    /// many came back.
    pub(crate) fn judge(&mut self, came: u64, went: u64) -> bool {
        let back = came.saturating_sub(self.came);
        let out = went.saturating_sub(self.went);
        if back + out >= WINDOW {
            *self = Self {
                came,
                went,
                returns: back * MANY > out,
            };
        }
        self.returns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_alone_does_not_return_and_a_working_set_does() {
        let mut turnover = Turnover::default();
        assert!(!turnover.judge(100, 50_000));
        assert!(!turnover.judge(600, 52_000), "too little to judge by");
        assert!(turnover.judge(20_000, 70_000));
        assert!(!turnover.judge(20_001, 90_000));
    }
}
