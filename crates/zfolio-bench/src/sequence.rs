//! Pseudo-random numbers: the same seed, the same numbers.

/// splitmix64 (Steele, Lea, Flood 2014): a well mixed word for every input.
pub const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// A sequence of them: splitmix64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence(pub(crate) u64);

impl Sequence {
    /// A sequence of its own for each of `names`.
    pub(crate) fn named(names: &[u64]) -> Self {
        let state = names.iter().fold(0, |state, name| {
            Self(state ^ name.wrapping_mul(0xd134_2543_de82_ef95)).next()
        });
        Self(state)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let word = mix(self.0);
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word
    }

    /// True `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.next() % 100 < u64::from(percent)
    }
}
