//! The sizes and victims that every benchmark draws.

/// Numbers that look random and are the same each run (xorshift).
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    pub(crate) fn size(&mut self) -> usize {
        200 + self.below(3501)
    }
}
