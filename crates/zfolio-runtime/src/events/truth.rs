//! What the kernel says of an address space when it is asked, once for each address.

/// Answers of the kernel's that are remembered.
const KNOWN: usize = 128;

/// What the kernel says of its side now. `None`: it will not.
pub(crate) trait Truth {
    /// Whether an answer was refused that may be had a moment later.
    fn was_put_off(&self) -> bool;
    /// Whether `address` is registered.
    fn is_registered(&mut self, address: usize) -> Option<bool>;
    /// Whether a registered mapping begins at `address`.
    fn begins_at(&mut self, address: usize) -> Option<bool>;
}

/// What the kernel said at one moment, so that it is asked once only.
pub(crate) struct Asked<T> {
    truth: T,
    /// Address, whether it was asked for a beginning, and the answer.
    known: [(usize, bool, Option<bool>); KNOWN],
    /// Answers had, of which the last `KNOWN` are known.
    count: usize,
}

impl<T: Truth> Asked<T> {
    /// Of one moment's answers.
    pub(crate) fn new(truth: T) -> Self {
        Self {
            truth,
            known: [(0, false, None); KNOWN],
            count: 0,
        }
    }

    fn ask(
        &mut self,
        address: usize,
        beginning: bool,
        ask: impl Fn(&mut T, usize) -> Option<bool>,
    ) -> Option<bool> {
        let had = &self.known[..self.count.min(KNOWN)];
        let same = |known: &&(usize, bool, _)| (known.0, known.1) == (address, beginning);
        if let Some((_, _, answer)) = had.iter().find(same) {
            return *answer;
        }
        let answer = ask(&mut self.truth, address);
        self.known[self.count % KNOWN] = (address, beginning, answer);
        self.count += 1;
        answer
    }
}

impl<T: Truth> Truth for Asked<T> {
    fn was_put_off(&self) -> bool {
        self.truth.was_put_off()
    }

    fn is_registered(&mut self, address: usize) -> Option<bool> {
        self.ask(address, false, T::is_registered)
    }

    fn begins_at(&mut self, address: usize) -> Option<bool> {
        self.ask(address, true, T::begins_at)
    }
}
