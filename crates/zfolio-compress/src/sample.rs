//! Made-up pages, the same on every machine: what benches and tests of every
//! crate above compress when no corpus is given.

/// A small generator (Marsaglia's xorshift64), for reproducible bytes.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Seeded; every seed, zero included, gives a different stream.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = 0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xd134_2543_de82_ef95);
        Self(if state == 0 { 1 } else { state })
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Fills `out` with 64-byte records as a program's heap might hold them:
/// counters, a small integer, text, a random word, zeros and a double. lz4
/// makes about half of it. `base` is the offset of `out` in the whole data set
/// and shows in the records.
pub fn records(out: &mut [u8], seed: u64, base: u64) {
    let mut random = Rng::new(seed ^ base.rotate_left(32));
    let mut offset = base;
    for record in out.chunks_mut(64) {
        let small = random.word() & 0xffff;
        let words = [
            offset,
            small,
            0x4142_4344_4546_4748,
            random.word(),
            small * 3,
            0,
            0x3ff0_0000_0000_0000 + (random.word() & 0xff),
            offset >> 12,
        ];
        for (chunk, word) in record.chunks_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        offset += 64;
    }
}

/// Fills `out` with random bytes, which no codec can shorten.
pub fn noise(out: &mut [u8], seed: u64) {
    let mut random = Rng::new(seed);
    for chunk in out.chunks_mut(8) {
        chunk.copy_from_slice(&random.word().to_le_bytes()[..chunk.len()]);
    }
}
