//! Counters under the kernel's names.
//!
//! Events only grow; gauges say how it is now and change under the pool lock,
//! together with what they count.

use crate::by_distance::ByDistance;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use zfolio_mm::{ORDERS, Order, PAGE_SIZE};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters while they change. Read them with [`Stats::snapshot`].
        #[derive(Debug)]
        pub struct Stats {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) order_zswpout: [AtomicU64; ORDERS],
            pub(crate) order_zswpin: [AtomicU64; ORDERS],
            pub(crate) order_swpin: [AtomicU64; ORDERS],
            pub(crate) order_swpin_fallback: [AtomicU64; ORDERS],
            pub(crate) order_swpout_fallback: [AtomicU64; ORDERS],
            pub(crate) order_split: [AtomicU64; ORDERS],
            pub(crate) order_split_failed: [AtomicU64; ORDERS],
        }

        /// The counters at one moment. Each is right; taken while stores and
        /// loads run they are not all of the same instant.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Snapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Folios stored whole, by order; those of zeros only are not
            /// counted, they never reach the pool.
            pub order_zswpout: [u64; ORDERS],
            /// Folios loaded whole, of which a page at least was in the pool, by order (the
            /// caller says which were: [`Zswap::count_load`](crate::Zswap::count_load)).
            pub order_zswpin: [u64; ORDERS],
            /// Folios loaded whole from the backing, by order (as above).
            pub order_swpin: [u64; ORDERS],
            /// Folios that were to be loaded whole and came in less, for want of frames, by
            /// order (the caller says which:
            /// [`Zswap::count_load_fallback`](crate::Zswap::count_load_fallback)).
            pub order_swpin_fallback: [u64; ORDERS],
            /// Folios of order 1 and above that could not be stored, so that
            /// the caller has to split them, by order.
            pub order_swpout_fallback: [u64; ORDERS],
            /// Of these, that were split and of which pages went in then, by order (the
            /// caller says which: [`Zswap::count_split`](crate::Zswap::count_split)).
            pub order_split: [u64; ORDERS],
            /// Of these, no page of which could be stored either, by order.
            pub order_split_failed: [u64; ORDERS],
        }

        impl Stats {
            pub(crate) const fn new() -> Self {
                Self {
                    $($name: AtomicU64::new(0),)*
                    order_zswpout: [const { AtomicU64::new(0) }; ORDERS],
                    order_zswpin: [const { AtomicU64::new(0) }; ORDERS],
                    order_swpin: [const { AtomicU64::new(0) }; ORDERS],
                    order_swpin_fallback: [const { AtomicU64::new(0) }; ORDERS],
                    order_swpout_fallback: [const { AtomicU64::new(0) }; ORDERS],
                    order_split: [const { AtomicU64::new(0) }; ORDERS],
                    order_split_failed: [const { AtomicU64::new(0) }; ORDERS],
                }
            }

            /// All counters now.
            #[must_use]
            pub fn snapshot(&self) -> Snapshot {
                Snapshot {
                    $($name: self.$name.load(Relaxed),)*
                    order_zswpout: read(&self.order_zswpout),
                    order_zswpin: read(&self.order_zswpin),
                    order_swpin: read(&self.order_swpin),
                    order_swpin_fallback: read(&self.order_swpin_fallback),
                    order_swpout_fallback: read(&self.order_swpout_fallback),
                    order_split: read(&self.order_split),
                    order_split_failed: read(&self.order_split_failed),
                }
            }
        }

        impl Snapshot {
            /// Every counter that is not by order, with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Pages loaded from the pool (same-filled ones included, zero pages not).
    zswpin,
    /// Pages stored (same-filled ones included, zero pages not).
    zswpout,
    /// Pages written from the pool to a backing.
    zswpwb,
    /// Pages read from a backing.
    pswpin,
    /// Pages written to a backing.
    pswpout,
    /// Of those read, from a store on other machines.
    pswpin_store,
    /// Of those written, to one.
    pswpout_store,
    /// Zero pages loaded.
    swpin_zero,
    /// Zero pages stored.
    swpout_zero,
    /// Attempts to store refused because the pool was at its maximum.
    pool_limit_hit,
    /// Times that the pool was to be shrunk and could not be: nothing in it may
    /// be written back, or the backing would not have it.
    reject_reclaim_fail,
    /// Attempts to store refused for want of frames, entries or handles.
    reject_alloc_fail,
    /// Attempts to store refused because the codec failed.
    reject_compress_fail,
    /// Attempts to store refused because a page did not compress.
    reject_compress_poor,
    /// Pages that failed a check or to decompress when loaded.
    decompress_fail,
    /// Pages written back, as debugfs counts them.
    written_back_pages,
    /// Writes to the backing that failed.
    backing_write_fail,
    /// Times that there was no room left in the backing.
    backing_full,
    /// Pages that could not be read from the backing, or were not what was
    /// written.
    backing_read_fail,
    /// Pages stored as they are, those that have gone since included.
    huge_pages_since,
    /// Objects moved by zspage compaction.
    objs_moved,
    /// Of these, by a compaction because it was time.
    objs_moved_period,
    /// Of these, by one because frames were short.
    objs_moved_pressure,
    /// Of these, by one that was asked for.
    objs_moved_request,
    /// Pages freed by it.
    pages_compacted,
    /// Pages compressed again into less room.
    recompressed_pages,
    /// Bytes by which their objects became shorter.
    recompress_saved_bytes,
    /// Pages that would not have become shorter by enough.
    recompress_poor,
    /// Units of several pages made.
    units_made,
    /// Pages taken out of units because few of their pages were left.
    unit_split_pages,
    /// Dictionaries trained.
    dictionary_trainings,
    /// Of those, that were installed.
    dictionary_installed,
    /// Of those, that new pages do without since: they saved too little, or the pool is
    /// too small for one.
    dictionary_retired,
    /// Pages compressed with one, of `recompressed_pages`.
    dictionary_pages,
    /// Bytes by which those of them that are compressed alone are shorter than without, as
    /// far as samples tell.
    dictionary_saved_bytes,
    /// Pages compressed again to be rid of a dictionary that few need.
    dictionary_drained_pages,
    /// Bytes they became longer by.
    dictionary_drained_bytes,
    /// Gauge: pages of all zspages.
    pool_pages,
    /// Gauge: entries in use.
    stored_pages,
    /// Gauge: of those, pages kept as they are.
    stored_incompressible_pages,
    /// Gauge: of those, pages of one repeated word.
    same_filled_pages,
    /// Gauge: units of several pages.
    units,
    /// Gauge: pages in them.
    unit_pages,
    /// Gauge: objects in the pool or the backing that need a dictionary.
    dictionary_units,
    /// Gauge: bytes of memory of all dictionaries.
    dictionary_bytes,
    /// Gauge: pages in the backing.
    backing_pages,
    /// Gauge: of those, in a store on other machines.
    backing_store_pages,
    /// Gauge: bytes of the backing in use, gaps included.
    backing_bytes,
    /// Gauge: of those, of a store on other machines.
    backing_store_bytes,
    /// Gauge: bytes of all objects as the codec (or a kept page) made them.
    compressed_bytes,
}

impl Snapshot {
    /// Bytes of the backing in use, gaps included.
    #[must_use]
    pub const fn backing_used(&self) -> ByDistance<u64> {
        ByDistance {
            near: self.backing_bytes.saturating_sub(self.backing_store_bytes),
            far: self.backing_store_bytes,
        }
    }

    /// Bytes of all zspages (debugfs `pool_total_size`).
    #[must_use]
    pub fn pool_total_size(&self) -> u64 {
        self.pool_pages * PAGE_SIZE as u64
    }
}

impl Stats {
    /// Starts the events anew and keeps the gauges: for the child of a fork,
    /// whose pool begins as a copy but whose history does not.
    pub fn restart(&self) {
        let events = [
            &self.zswpin,
            &self.zswpout,
            &self.zswpwb,
            &self.pswpin,
            &self.pswpout,
            &self.pswpin_store,
            &self.pswpout_store,
            &self.swpin_zero,
            &self.swpout_zero,
            &self.pool_limit_hit,
            &self.reject_reclaim_fail,
            &self.reject_alloc_fail,
            &self.reject_compress_fail,
            &self.reject_compress_poor,
            &self.decompress_fail,
            &self.written_back_pages,
            &self.backing_write_fail,
            &self.backing_full,
            &self.backing_read_fail,
            &self.huge_pages_since,
            &self.objs_moved,
            &self.objs_moved_period,
            &self.objs_moved_pressure,
            &self.objs_moved_request,
            &self.pages_compacted,
            &self.recompressed_pages,
            &self.recompress_saved_bytes,
            &self.recompress_poor,
            &self.units_made,
            &self.unit_split_pages,
            &self.dictionary_trainings,
            &self.dictionary_installed,
            &self.dictionary_retired,
            &self.dictionary_pages,
            &self.dictionary_saved_bytes,
            &self.dictionary_drained_pages,
            &self.dictionary_drained_bytes,
        ];
        let orders = [
            &self.order_zswpout,
            &self.order_zswpin,
            &self.order_swpin,
            &self.order_swpin_fallback,
            &self.order_swpout_fallback,
            &self.order_split,
            &self.order_split_failed,
        ];
        for counter in events.into_iter().chain(orders.into_iter().flatten()) {
            counter.store(0, Relaxed);
        }
    }
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Relaxed);
}

/// Takes from a gauge.
pub(crate) fn sub(gauge: &AtomicU64, amount: u64) {
    gauge.fetch_sub(amount, Relaxed);
}

/// Adds one at an order.
pub(crate) fn add_order(counters: &[AtomicU64; ORDERS], order: Order) {
    add(&counters[order.index()], 1);
}

fn read(counters: &[AtomicU64; ORDERS]) -> [u64; ORDERS] {
    core::array::from_fn(|order| counters[order].load(Relaxed))
}
