//! Where text lies that nobody changes: private mappings of files that may be executed and not
//! written. Only there are system calls rewritten. Elsewhere the program makes code as it runs,
//! or shares the file with others, who would run our jump.

use super::arguments::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_TYPE, range_of};
use crate::raw::{PAGE, is_error, nr};
use alloc::vec;
use core::ops::Range;
use zfolio_sys::procfs::{File, for_each_mapping};

/// Most of them; sites in others keep their signal.
const MOST: usize = 256;
const PROT_WRITE: usize = 2;
const PROT_EXEC: usize = 4;

/// Written under the core lock; read in handlers.
pub(crate) struct Texts {
    ranges: [Text; MOST],
    count: usize,
}

#[derive(Clone, Copy)]
struct Text {
    start: usize,
    end: usize,
    /// Calls have come from it.
    calls: bool,
}

impl Texts {
    const NONE: Self = Self {
        ranges: [Text {
            start: 0,
            end: 0,
            calls: false,
        }; MOST],
        count: 0,
    };

    /// What there is now. Where the kernel does not tell: none.
    pub(crate) fn now() -> Self {
        let mut texts = Self::NONE;
        let Ok(file) = File::open(c"/proc/self/maps") else {
            return texts;
        };
        let mut buffer = vec![0; 4 * PAGE];
        let read = for_each_mapping(file, &mut buffer, |mapping| {
            if mapping.perms == b"r-xp" && mapping.inode != 0 {
                texts.add(mapping.start..mapping.end, false);
            }
        });
        file.close();
        if read.is_ok() { texts } else { Self::NONE }
    }

    fn add(&mut self, Range { start, end }: Range<usize>, calls: bool) {
        if self.count < MOST && start < end {
            self.ranges[self.count] = Text { start, end, calls };
            self.count += 1;
        }
    }

    /// What is in `range` is text no more.
    fn remove(&mut self, range: &Range<usize>) {
        let mut at = 0;
        while at < self.count {
            let Text { start, end, calls } = self.ranges[at];
            if end <= range.start || range.end <= start {
                at += 1;
                continue;
            }
            self.count -= 1;
            self.ranges[at] = self.ranges[self.count];
            for rest in [start..range.start.max(start), range.end.min(end)..end] {
                self.add(rest, calls);
            }
        }
    }

    /// A call has come from the two bytes before `back`. Returns the text they are in.
    pub(crate) fn note_call(&mut self, back: usize) -> Option<Range<usize>> {
        let is_around = |text: &&mut Text| text.start + 2 <= back && back <= text.end;
        let text = self.ranges[..self.count].iter_mut().find(is_around)?;
        text.calls = true;
        Some(text.start..text.end)
    }

    /// Where the lowest one starts: the program's own, as a rule.
    pub(crate) fn lowest(&self) -> Option<usize> {
        let texts = self.ranges[..self.count].iter();
        texts.map(|text| text.start).min()
    }

    /// The first text from `from` on that calls have come from.
    pub(crate) fn next_with_calls(&self, from: usize) -> Option<Range<usize>> {
        let texts = self.ranges[..self.count].iter();
        let text = texts
            .filter(|text| text.calls && text.start >= from)
            .min_by_key(|text| text.start)?;
        Some(text.start..text.end)
    }

    /// A call has changed the address space.
    pub(super) fn follow(&mut self, number: usize, args: [usize; 6], result: isize) {
        match number {
            nr::MMAP if !is_error(result) => {
                let range = range_of(result.cast_unsigned(), args[1]);
                self.remove(&range);
                let is_text = args[2] & (PROT_WRITE | PROT_EXEC) == PROT_EXEC
                    && args[3] & (MAP_TYPE | MAP_ANONYMOUS) == MAP_PRIVATE;
                if is_text {
                    self.add(range, false);
                }
            }
            // (One that fails may have changed a part.)
            nr::MPROTECT | nr::PKEY_MPROTECT if args[2] & (PROT_WRITE | PROT_EXEC) != PROT_EXEC => {
                self.remove(&range_of(args[0], args[1]));
            }
            nr::MUNMAP => self.remove(&range_of(args[0], args[1])),
            nr::MREMAP if !is_error(result) => {
                self.remove(&range_of(args[0], args[1]));
                self.remove(&range_of(result.cast_unsigned(), args[2]));
            }
            // (It may have replaced something, of a size that is not told.)
            nr::SHMAT if args[2] != 0 && !is_error(result) => self.count = 0,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn texts_are_what_a_page_by_page_model_says(
            steps in proptest::collection::vec((0_usize..60, 1_usize..12, 0_usize..4), 1..60)
        ) {
            let mut texts = Texts::NONE;
            let mut model = [false; 80];
            for (start, len, what) in steps {
                let (at, bytes) = (start * PAGE, len * PAGE);
                let fixed = [at, bytes, PROT_EXEC | 1, MAP_PRIVATE, 3, 0];
                match what {
                    0 => texts.follow(nr::MUNMAP, [at, bytes, 0, 0, 0, 0], 0),
                    1 => texts.follow(nr::MPROTECT, [at, bytes, 7, 0, 0, 0], 0),
                    2 => texts.follow(nr::MPROTECT, [at, bytes, 5, 0, 0, 0], 0),
                    _ => texts.follow(nr::MMAP, fixed, at.cast_signed()),
                }
                match what {
                    0 | 1 => model[start..start + len].fill(false),
                    2 => {}
                    _ => model[start..start + len].fill(true),
                }
                for (page, is_text) in model.iter().enumerate() {
                    let text = texts.note_call(page * PAGE + 8);
                    prop_assert_eq!(text.is_some(), *is_text);
                    if let Some(text) = text {
                        prop_assert!(model[text.start / PAGE..text.end / PAGE].iter().all(|is| *is));
                    }
                }
                let (mut from, mut pages) = (0, 0);
                while let Some(text) = texts.next_with_calls(from) {
                    from = text.end;
                    pages += text.len() / PAGE;
                }
                prop_assert_eq!(pages, model.iter().filter(|is| **is).count());
            }
        }
    }
}
