//! What is done between rounds of reclaim.
//!
//! - [`zspage_compaction`]: objects of the emptiest zspages move into the fullest.
//! - [`folio_compaction`]: frames move so that runs of them come to be.
//! - [`huge_reserve`]: a huge page is made for a reader that wishes for one.
//! - [`writeback`]: the coldest of the pool goes to the backing.
//! - [`recompress`]: what stays in the pool is compressed again, denser.
//! - [`statistics`], [`cannot_leave`]: gauges for whoever looks.
//!
//! State: where each of them stopped.
//!
//! Lock: each takes what it needs; the control thread alone does this, but for what faults ask of
//! folio compaction.
//!
//! Below: `swapout`, `transfer`.

pub(crate) mod cannot_leave;
pub(crate) mod folio_compaction;
pub(crate) mod huge_reserve;
pub(crate) mod recompress;
pub mod statistics;
pub(crate) mod writeback;
pub(crate) mod zspage_compaction;
