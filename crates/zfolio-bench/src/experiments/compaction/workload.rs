//! Arenas with folios of mixed orders, aged and then thinned out to a fill level.
//!
//! The names are those of vm-scalability's cases. Imitated is what compaction sees of
//! them: the sizes of folios, and in what order they come and go.

use super::arena::Layout;
use crate::sequence::mix;
use zfolio_mm::Pfn;

/// What is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Freed {
    /// Any folio.
    AtRandom,
    /// Neighbours in time, so many at once.
    InRuns(usize),
    /// What one of so many threads read, whose folios lie between those of the others, so
    /// many at once.
    InStreams(usize, usize),
    /// The whole of a file, so many folios, and no other for a while.
    Files(usize),
    /// The oldest, but for so many percent that stay (the active list).
    Oldest(u64),
}

/// One kind of memory use.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// What it imitates, in a few words.
    pub(super) about: &'static str,
    /// Folio lengths in pages, and their shares of the memory.
    sizes: &'static [(usize, u64)],
    freed: Freed,
    /// Of 10,000 folios so many cannot move.
    pinned: u64,
    /// Whether folios may be cut into pages.
    splittable: bool,
}

/// All of them.
pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "anon-w-rand",
        about: "anonymous memory of all orders, freed at random",
        sizes: &[(1, 30), (4, 10), (16, 30), (64, 15), (256, 15)],
        freed: Freed::AtRandom,
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "anon-r-seq",
        about: "64K to 1M folios, freed in the order they were filled",
        sizes: &[(1, 10), (16, 40), (64, 30), (256, 20)],
        freed: Freed::InRuns(24),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "anon-cow-rand",
        about: "single pages copied out of larger folios",
        sizes: &[(1, 60), (16, 30), (64, 10)],
        freed: Freed::AtRandom,
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "mmap-pread-seq",
        about: "readahead of 16K to 128K, dropped in runs",
        sizes: &[(1, 5), (4, 25), (8, 30), (16, 25), (32, 15)],
        freed: Freed::InRuns(8),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "anon-r-rand",
        about: "64K to 1M folios, read and freed at random",
        sizes: &[(1, 10), (16, 40), (64, 30), (256, 20)],
        freed: Freed::AtRandom,
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "mmap-pread-seq-mt",
        about: "readahead of 16K to 128K of one file by four threads side by side",
        sizes: &[(1, 5), (4, 25), (8, 30), (16, 25), (32, 15)],
        freed: Freed::InStreams(4, 8),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "mmap-xread-seq-mt",
        about: "readahead of 16K to 128K of a file each by eight threads",
        sizes: &[(1, 10), (4, 30), (8, 30), (16, 20), (32, 10)],
        freed: Freed::InStreams(8, 16),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "shm-xread-seq-mt",
        about: "shared memory of 64K and 2M steps by four threads, some of it mapped elsewhere",
        sizes: &[(1, 20), (16, 60), (64, 20)],
        freed: Freed::InStreams(4, 32),
        pinned: 20,
        splittable: true,
    },
    Workload {
        name: "truncate",
        about: "files of small and large folios, each gone at once",
        sizes: &[(1, 20), (4, 30), (16, 30), (32, 20)],
        freed: Freed::Files(64),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "lru-file-readtwice",
        about: "readahead, the oldest dropped, a third read again and kept",
        sizes: &[(1, 10), (4, 20), (8, 30), (16, 40)],
        freed: Freed::Oldest(33),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "lru-file-mmap-read",
        about: "single pages and readahead, the oldest dropped",
        sizes: &[(1, 50), (4, 20), (8, 20), (16, 10)],
        freed: Freed::Oldest(10),
        pinned: 0,
        splittable: true,
    },
    Workload {
        name: "msync",
        about: "single pages and some under writeback, which do not move",
        sizes: &[(1, 80), (4, 20)],
        freed: Freed::AtRandom,
        pinned: 4,
        splittable: true,
    },
    Workload {
        name: "zspages",
        about: "runs of 1 to 8 pages as the pool has them, never cut, some read just now",
        sizes: &[
            (1, 10),
            (2, 10),
            (3, 20),
            (4, 15),
            (5, 15),
            (6, 10),
            (7, 10),
            (8, 10),
        ],
        freed: Freed::AtRandom,
        pinned: 2,
        splittable: false,
    },
];

/// Numbers that follow from a seed.
#[derive(Debug)]
struct Rng(u64);

impl Rng {
    /// A number below `bound`, which is at least 1.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }
}

impl Workload {
    /// An arena of `blocks` pageblocks in which about `fill` percent of the frames
    /// are in use.
    pub(super) fn build(&self, blocks: usize, fill: usize, seed: u64) -> Layout {
        let mut layout = Layout::new(blocks);
        let slots = layout.slots();
        // Every seed a sequence of its own.
        let mut rng = Rng(mix(seed));
        // Oldest first.
        let mut folios = Vec::new();
        for _ in 0..4 {
            self.grow(&mut layout, &mut folios, slots * 97 / 100, &mut rng);
            self.shrink(&mut layout, &mut folios, slots * 70 / 100, &mut rng);
        }
        self.grow(&mut layout, &mut folios, slots * 97 / 100, &mut rng);
        self.shrink(&mut layout, &mut folios, slots * fill / 100, &mut rng);
        for at in &folios {
            if rng.below(10_000) < self.pinned {
                layout.pin(*at);
            }
        }
        layout
    }

    /// Allocates until `pages` are in use, or nothing fits.
    fn grow(&self, layout: &mut Layout, folios: &mut Vec<Pfn>, pages: usize, rng: &mut Rng) {
        while layout.used_pages() < pages {
            let wanted = self.size(rng);
            let smaller = std::iter::successors(Some(wanted), |n| (*n > 1).then(|| n / 2));
            let got = smaller
                .map(|n| layout.alloc(n, self.splittable))
                .find_map(|at| at);
            let Some(at) = got else { return };
            folios.push(at);
        }
    }

    /// A length, by its share of the memory: short ones come more often.
    fn size(&self, rng: &mut Rng) -> usize {
        // So many of 256 pages' worth each.
        let weight = |(pages, share): (usize, u64)| share * 256 / pages as u64;
        let sum: u64 = self.sizes.iter().copied().map(weight).sum();
        let mut at = rng.below(sum);
        for size in self.sizes {
            if at < weight(*size) {
                return size.0;
            }
            at -= weight(*size);
        }
        1
    }

    /// Frees until `pages` are in use.
    fn shrink(&self, layout: &mut Layout, folios: &mut Vec<Pfn>, pages: usize, rng: &mut Rng) {
        let mut freed = vec![false; folios.len()];
        let (mut oldest, mut passes) = (0, 0);
        while layout.used_pages() > pages {
            let mut step = 1;
            let (first, count) = match self.freed {
                Freed::AtRandom => (rng.index(folios.len()), 1),
                Freed::InRuns(run) => (rng.index(folios.len()), run),
                Freed::InStreams(threads, run) => {
                    step = threads;
                    (rng.index(folios.len()), run)
                }
                Freed::Files(folios_of_one) => {
                    let file = rng.index(folios.len()) / folios_of_one;
                    (file * folios_of_one, folios_of_one)
                }
                Freed::Oldest(kept) => {
                    if oldest == folios.len() {
                        (oldest, passes) = (0, passes + 1);
                    }
                    oldest += 1;
                    // The active ones go too when nothing else is left.
                    let stays = passes == 0 && rng.below(100) < kept;
                    (oldest - 1, usize::from(!stays))
                }
            };
            for n in (first..folios.len()).step_by(step).take(count) {
                if layout.used_pages() > pages && !std::mem::replace(&mut freed[n], true) {
                    layout.free(folios[n]);
                }
            }
        }
        let mut freed = freed.iter();
        folios.retain(|_| !freed.next().copied().unwrap_or(false));
    }
}
