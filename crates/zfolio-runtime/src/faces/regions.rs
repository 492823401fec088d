//! The other scope: memory that a program asks for, instead of all it has.
//!
//! The same engine with less round it. There are no events: what happens to a
//! region goes through the calls below, which change words under the core
//! lock. Faults are served in the thread that touches (`faults/by_sigbus.rs`), or by
//! threads that read the descriptor, as for a process. Nobody else's memory
//! is counted: every frame of a region came out of the arena or was counted as
//! it came, so that usage is a sum and not a question to /proc.

use crate::address_space::RangeRules;
use crate::address_space::place::Place;
use crate::budget::fair_share::Membership;
use crate::control::Manager;
use crate::descriptors::SOURCE_FEATURES;
use crate::error::{PinError, Unavailable, step};
use crate::faces::assemble::{OpenedFiles, Parts, assemble};
use crate::frames::reserve_arena;
use crate::kernel::{File, Pagemap, Uffd, discard};
use crate::options::{IN_THREAD, Options, STACK};
use crate::page::{EXTENT_PAGES, Vpn, addresses_of, pages_within};
use crate::pager::{Access, RegionEngine};
use crate::protect::Protected;
use crate::scope::{FirstTouches, Regions, Scope, Serving};
use crate::segment::run_group::RUN;
use crate::segment::{
    Counter, MAX_FAULT_THREADS, MIN_FAULT_THREADS, ProcessSlot, Segment, describe, state,
};
use crate::swapout::compress_threads::EngineThreads;
use crate::transfer::move_out::EvictMode;
use crate::upkeep::class_table;
use crate::upkeep::zspage_compaction::compact_on_request;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::arena::{ArenaMap, SharedWords, prefer_huge_pages};
use zfolio_sys::lock::Mutex;
use zfolio_sys::region::{keep_from_children, lift_descriptor};
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{CallStack, pid, processors};
use zfolio_sys::uffd::{FEATURE_MOVE, FEATURE_SIGBUS, FEATURE_THREAD_ID, FEATURE_WRITE_PROTECT};

/// Makes the engine that `serving` names; where userfaultfd is refused,
/// [`Serving::InThread`] is had without it.
///
/// # Errors
/// What the system refused.
pub fn engine_for(
    segment: &'static Segment,
    options: Options,
    serving: Serving,
    before_moving: fn(),
) -> Result<&'static dyn RegionEngine, Unavailable> {
    let protected = || -> Result<&'static dyn RegionEngine, Unavailable> {
        Ok(Protected::start(segment, options, before_moving)?)
    };
    let moving = || -> Result<&'static dyn RegionEngine, Unavailable> {
        Ok(Manager::for_regions(
            segment,
            options,
            serving,
            before_moving,
        )?)
    };
    match serving {
        Serving::Protected => protected(),
        Serving::InThread => moving().or_else(|_| protected()),
        Serving::Threads => moving(),
    }
}

impl Manager {
    /// Makes a manager for regions; `before_moving` is called now and then, in
    /// the thread that reclaims, before it moves anything out. Threads are the caller's to start:
    /// [`Self::control_regions`], and [`Self::serve_regions`] for
    /// [`Serving::Threads`].
    ///
    /// # Errors
    /// What the system refused.
    pub(crate) fn for_regions(
        segment: &'static Segment,
        options: Options,
        serving: Serving,
        before_moving: fn(),
    ) -> Result<&'static Self, Unavailable> {
        let lifted = |uffd: Uffd| {
            let fd = usize::try_from(uffd.fd()).unwrap_or(usize::MAX);
            Uffd::from_fd(i32::try_from(lift_descriptor(fd)).unwrap_or(-1))
        };
        let in_thread = serving == Serving::InThread;
        let open = |features: u64| {
            if in_thread {
                Uffd::open_for_user_faults(FEATURE_MOVE | FEATURE_SIGBUS | features)
            } else {
                Uffd::open(FEATURE_MOVE | FEATURE_THREAD_ID | features)
            }
        };
        let protecting = open(FEATURE_WRITE_PROTECT);
        let protects = protecting.is_ok();
        let opened = protecting.or_else(|_| open(0));
        let program = lifted(step("userfaultfd", opened)?);
        let pagemap = step("opening /proc/thread-self/pagemap", Pagemap::open())?;
        let pagemap = Pagemap::from_file(File::from_fd(lift_descriptor(pagemap.file().fd())));
        let source = Uffd::open_for_user_faults(SOURCE_FEATURES);
        let source = lifted(step("userfaultfd", source)?);
        let words = step("mapping shared memory", SharedWords::map())?;
        let map = step(
            "reserving the arena",
            reserve_arena(options.high, usize::MAX),
        )?;
        step("advice on the arena", keep_from_children(&map.range()))?;
        let workers = if in_thread {
            (2 * processors()).clamp(IN_THREAD.start, IN_THREAD.end)
        } else {
            processors().clamp(MIN_FAULT_THREADS, MAX_FAULT_THREADS)
        };
        let mut stacks = Vec::new();
        if in_thread {
            for _ in 0..workers {
                stacks.push(step("mapping a stack", CallStack::map(STACK))?);
            }
        }
        let nursery = step(
            "reserving addresses",
            ArenaMap::reserve(Order::HUGE.pages()),
        )?;
        step("advice", keep_from_children(&nursery.range()))?;
        let nursery = nursery.range().start;
        prefer_huge_pages(nursery, Order::HUGE.bytes());
        let statistics = segment.claim(pid());
        let none = File::from_fd(usize::MAX);
        let manager = assemble(Parts {
            options,
            membership: Membership::of(RUN),
            map,
            opened: OpenedFiles {
                program,
                source,
                statm: none,
                pagemap,
                maps: none,
            },
            words,
            private: Vec::new(),
            stack: None,
            rules: RangeRules {
                left_alone: |_| false,
                is_sealed: |_| false,
            },
            segment,
            statistics,
            workers,
            scope: Scope::Regions(Regions {
                serving,
                protects,
                high: AtomicUsize::new(options.high),
                stacks,
                before_moving,
                charged: AtomicUsize::new(0),
                first_touches: FirstTouches {
                    nursery: Mutex::new(nursery),
                    no_huge: AtomicU32::new(0),
                },
                backing_fd: AtomicUsize::new(usize::MAX),
                generation: AtomicU32::new(0),
            }),
        })?;
        let registered = manager.register_arena();
        step("registering with userfaultfd", registered)?;
        if manager.options.backing.is_some() && !manager.zswap.is_backed() {
            let errno = manager.counter(Counter::BackingRefused);
            let errno = Errno(i32::try_from(errno).unwrap_or(0));
            step("opening the backing", Err(errno))?;
        }
        describe(manager.stats());
        let state = &manager.stats().state;
        state.store(state::MANAGING, Ordering::Release);
        Ok(manager)
    }
}

impl RegionEngine for Manager {
    fn serving(&self) -> Serving {
        if self.scope.serves_in_thread() {
            Serving::InThread
        } else {
            Serving::Threads
        }
    }

    fn descriptors(&self) -> Vec<usize> {
        let fd = |uffd: Uffd| usize::try_from(uffd.fd()).unwrap_or(usize::MAX);
        let mut all = alloc::vec![
            fd(self.fds.program()),
            fd(self.arena().moves().uffd),
            self.fds.pagemap().file().fd(),
        ];
        all.extend(self.scope.backing());
        all
    }

    fn control_regions(&'static self) -> ! {
        self.control_thread()
    }

    fn serve_regions(&'static self, index: usize) -> ! {
        self.fault_thread(index)
    }

    fn serving_threads(&self) -> usize {
        if self.scope.serves_in_thread() {
            0
        } else {
            self.workers.len() - 1
        }
    }

    fn add_region(&self, range: &Range<usize>) -> Result<(), Errno> {
        let program = self.fds.program();
        if self.scope.protects() {
            program.register_protectable(range.start, range.len())?;
        } else {
            program.register(range.start, range.len())?;
        }
        self.core.lock().pages.registered.insert(range.clone());
        self.scope.changed();
        Ok(())
    }

    fn remove_region(&self, range: &Range<usize>) {
        let pages = pages_within(range.start, range.end);
        {
            let mut core = self.core.lock();
            core.pages.registered.remove(range.clone());
            self.drop_contents(&mut core, pages.clone());
            core.pages.extents.prune(pages);
        }
        // Nothing is moved out of it from here on. (A load under way finds its
        // word changed; who touches what is being dropped is on his own.)
        let mut present = 0;
        self.each_present(range, |run| {
            present += (run.end() - run.start()) / PAGE_SIZE
        });
        self.scope.uncharge(present);
        self.scope.changed();
        self.wakeups.frames_freed();
    }

    fn pin(&self, range: Range<usize>) -> Result<(), PinError> {
        let mut core = self.core.lock();
        if !core.pages.registered.contains(&range) {
            return Err(PinError::NotManaged);
        }
        core.pages.pins.hold(range.clone(), self.high())?;
        self.make_dirty_within(&mut core, &pages_within(range.start, range.end));
        Ok(())
    }

    fn unpin(&self, range: &Range<usize>) {
        let held = self.core.lock().pages.pins.remove(range);
        assert!(held, "a pin is removed once");
    }

    fn advise_cold(&self, range: &Range<usize>) {
        let mut next = range.start.next_multiple_of(PAGE_SIZE);
        while next < range.end {
            let border = (next + 1).next_multiple_of(Order::HUGE.bytes());
            let part = next..border.min(range.end);
            let pages = pages_within(part.start, part.end);
            let huge = pages.len() == EXTENT_PAGES && self.is_huge(part.start);
            let how = EvictMode {
                huge,
                cold: true,
                may_fault: false,
            };
            if huge {
                let _ = self.move_run(pages, how);
            } else {
                self.each_present(&addresses_of(&pages), |run| {
                    let run = pages_within(run.start(), run.end());
                    let _ = self.move_run(run, how);
                });
            }
            next = border;
        }
        self.drop_clean_of(&pages_within(range.start, range.end));
        self.wakeups.wake_control();
    }

    fn discard(&self, range: &Range<usize>) {
        let pages = pages_within(range.start, range.end);
        let inner = addresses_of(&pages);
        if inner.is_empty() {
            return;
        }
        let mut core = self.core.lock();
        // Under the lock nothing of it goes out or comes in.
        self.drop_contents(&mut core, pages);
        let mut present = 0;
        self.each_present(&inner, |run| {
            present += (run.end() - run.start()) / PAGE_SIZE
        });
        if discard(inner.start, inner.len()).is_ok() {
            self.scope.uncharge(present);
        }
    }

    fn next_out(&self, from: Vpn, end: Vpn) -> Option<Vpn> {
        let core = self.core.lock();
        core.pages
            .extents
            .tracked(from..end)
            .find(|(_, place)| !matches!(place, Place::Gone | Place::Clean(_)))
            .map(|(vpn, _)| vpn)
    }

    fn usage_bytes(&self) -> usize {
        self.usage() * PAGE_SIZE
    }

    fn set_high_bytes(&self, bytes: usize) -> bool {
        let pages = bytes / PAGE_SIZE;
        let fits = pages <= self.arena().map().slots() / 2 && self.scope.set_high(pages);
        if fits {
            self.set_allowance(pages);
            // (Whoever was publishing with the old one does so again.)
            self.wakeups.wake_control();
        }
        fits
    }

    fn engines(&self) -> usize {
        self.engine_threads().map_or(0, EngineThreads::count)
    }

    fn engine_thread(&'static self, index: usize) {
        if let Some(threads) = self.engine_threads() {
            threads.serve(index);
        }
    }

    fn statistics(&self) -> &'static ProcessSlot {
        self.stats()
    }

    fn refresh_statistics(&self) {
        class_table::ask(self.stats());
        self.publish(self.usage());
    }

    fn compact_zspages(&self) -> (u64, u64) {
        let done = compact_on_request(&self.zswap);
        // (What came free is the system's beyond what is kept.)
        self.wakeups.wake_control();
        done
    }

    fn serve_here(&self, address: usize, access: Access) -> bool {
        self.serve_in_thread(address, access)
    }

    fn validate(&self) -> Result<(), String> {
        self.zswap.validate()?;
        self.validate_clean(&self.core.lock())?;
        self.arena().frames().validate()
    }
}
