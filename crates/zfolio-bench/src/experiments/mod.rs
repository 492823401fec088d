//! The experiments, each called as on the command line.
//!
//! | module | question |
//! |---|---|
//! | `zsmalloc` | what zspage compaction costs, five ways |
//! | `compaction` | what folio compaction gets, and costs, six ways |
//! | `arena` | what folio compaction does for a running program |
//! | `tier` | what the second tier gains and costs for a program that is idle |
//! | `compressors` | codecs, units, batches and engines on real pages |
//! | `pool` | memory used for the same pages, ours beside the kernel's |
//! | `peers` | a workload native, under `zfolio run`, and on the kernel's swap |
//! | `usemem` | the runs of the kernel's swap series, ours and the kernel's way |
//! | `kernel_build` | a project that is compiled in less memory than it needs, ours and the kernel's way |
//! | `store` | a store behind the pool, beside a file and the kernel's swap file |
//! | `saved` | memory saved at a slowdown, by codec |
//! | `advise` | the same of a program of one's own: `zfolio advise` |

pub(crate) mod advise;
pub(crate) mod arena;
pub(crate) mod compaction;
pub(crate) mod compressors;
pub(crate) mod kernel_build;
pub(crate) mod peers;
pub(crate) mod pool;
pub(crate) mod saved;
pub(crate) mod store;
pub(crate) mod tier;
pub(crate) mod usemem;
pub(crate) mod zsmalloc;
