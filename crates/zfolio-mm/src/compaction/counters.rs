//! What is counted, by the names of the kernel's `vmstat`.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counters of one compactor since it was made.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Names and values, in the order of the fields.
            #[must_use]
            pub fn rows(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name),)*]
            }

            /// What was counted since `before`.
            #[must_use]
            pub fn since(&self, before: &Self) -> Self {
                Self { $($name: self.$name - before.$name,)* }
            }
        }
    };
}

counters! {
    /// Slots passed by the migrate scanner.
    compact_migrate_scanned
    /// Slots passed by the free scanner.
    compact_free_scanned
    /// Pages isolated: of folios listed for migration, and free ones.
    compact_isolated
    /// Runs for an allocation.
    compact_stall
    /// Of these, without a large enough block in the end.
    compact_fail
    /// Of these, with one.
    compact_success
    /// Runs without an allocation waiting.
    compact_daemon_wake
    /// Pages moved.
    pgmigrate_success
    /// Pages that were to be moved and were not.
    pgmigrate_fail
    /// Folios of several pages moved. (The kernel counts order 9 only, which
    /// compaction never moves.)
    thp_migration_success
    /// Folios of several pages that were to be moved and were not.
    thp_migration_fail
    /// Folios of several pages cut into single ones to be moved.
    thp_migration_split
}
