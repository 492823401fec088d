//! bpf: what its structure points to, by command.

use super::pinning::Keeper;
use crate::program_memory;
use crate::raw::{self, PAGE, nr};

/// Commands on an element of a map: looked up, changed, deleted, the next key, looked up and deleted.
const ELEMENT: [usize; 5] = [1, 2, 3, 4, 21];
/// On many: looked up, likewise and deleted, changed, deleted.
const BATCH: [usize; 4] = [24, 25, 26, 27];
const PROG_LOAD: usize = 5;
const PROG_TEST_RUN: usize = 10;
const OBJ_GET_INFO_BY_FD: usize = 15;
const BTF_LOAD: usize = 18;
/// Kinds of maps with a value for each processor, of which there are so many at most.
const OF_PROCESSORS: [u32; 4] = [5, 6, 10, 21];
const PROCESSORS: usize = 512;
/// Most bytes of one thing.
const MOST: usize = 64 << 20;
/// Words of the structure.
const WORDS: usize = 20;

impl Keeper<'_> {
    /// bpf. Whatever word of its structure could be a pointer is taken for one, to some pages; what a
    /// command is known to point to may be more.
    pub(crate) fn keep_for_bpf(&self, args: &[usize; 6]) {
        let [command, address, len, ..] = *args;
        self.keep(address, len.min(WORDS * 8));
        let mut words = [0_u64; WORDS];
        for (index, word) in words.iter_mut().enumerate().take(len / 8) {
            *word = program_memory::read::<u64>(address.wrapping_add(index * 8)).unwrap_or(0);
            self.keep(usize::try_from(*word).unwrap_or(0), 4 * PAGE);
        }
        let half = |at: usize| (words[at / 8] >> (at % 8 * 8) & 0xffff_ffff) as usize;
        let keep = |at: usize, len: usize| {
            self.keep(usize::try_from(words[at / 8]).unwrap_or(0), len.min(MOST));
        };
        match command & 0xffff_ffff {
            command if ELEMENT.contains(&command) => {
                let [key, value] = sizes(half(0));
                keep(8, key);
                keep(16, value.max(key));
            }
            command if BATCH.contains(&command) => {
                let ([key, value], count) = (sizes(half(36)), half(32));
                // (Where it goes on: a key, or a number.)
                keep(0, key);
                keep(8, key);
                keep(16, key.saturating_mul(count));
                keep(24, value.saturating_mul(count));
            }
            PROG_LOAD => {
                keep(8, half(4) * 8);
                keep(32, half(28));
            }
            PROG_TEST_RUN => {
                keep(16, half(8));
                keep(24, half(12));
            }
            OBJ_GET_INFO_BY_FD => keep(8, half(4)),
            BTF_LOAD => {
                keep(0, half(16));
                keep(8, half(20));
            }
            _ => {}
        }
    }
}

/// Bytes of a key and a value of a map, as system calls have them.
fn sizes(map: usize) -> [usize; 2] {
    // type, id, bytes of a key, of a value
    let mut info = [0_u32; 16];
    let (len, at) = (size_of_val(&info) as u64, info.as_mut_ptr() as u64);
    let asked = [map as u64 & 0xffff_ffff | len << 32, at];
    let into = asked.as_ptr() as usize;
    let args = [OBJ_GET_INFO_BY_FD, into, size_of_val(&asked)];
    if raw::own(nr::BPF, args) != 0 {
        return [0; 2];
    }
    let value = (info[3] as usize).next_multiple_of(8);
    let each = if OF_PROCESSORS.contains(&info[0]) {
        PROCESSORS
    } else {
        1
    };
    [info[2] as usize, value.saturating_mul(each)]
}
