//! The program's memory: which of it is managed, where each page is, and how pages come and
//! go.
//!
//! State: [`MemoryCore`](core::MemoryCore), under the core lock, and the words of pages, which are changed
//! under it and may be read without. Below: `raw`, `pins`, `threads`, `process`.
//!
//! | file | concept |
//! |---|---|
//! | [`words`] | where a page is |
//! | [`ranges`] | which mappings are managed |
//! | [`way`], [`ways`] | how pages are closed and opened: userfaultfd, guard markers, protection |
//! | [`steps`] | of a way, the steps by which pages are closed and opened |
//! | [`core`] | what the lock guards |
//! | [`layer`] | that, the words, and what is touched without the lock |
//! | [`manage`] | the pool, made when memory first runs short; limits and statistics now and then |
//! | [`follow`], [`following`] | calls, and threads that are stopped as they run, close pages where `high` has sunk |
//! | [`share`], [`said`] | what of a common `high` a process has while nothing of it is out |
//! | [`second_tier`] | the pool is made denser before calls that wait |
//! | [`zspages`] | zspage compaction, by who makes room and by who is stopped as it runs |
//! | [`bring`] | swap-in, and room for it |
//! | [`read_ahead`] | which pages come with one that is touched |
//! | [`reclaim`] | swap-out |
//! | [`refaults`] | of swap-out, which pages are spared |
//! | [`reclaimer`], [`pressure`] | of swap-out, what a thread of ours does beside the program's, and when |
//! | [`empty`] | memory that holds nothing is closed as whole runs |
//! | [`folios`] | of swap-out, how runs are stored, counted and split |
//! | [`inspect`](mod@inspect) | all of it in place, for who looks into the process |
//! | [`cannot_leave`] | what stays resident, since it is not managed, and why |
//! | [`limits`], [`bounds`] | what may be out, in the pool, and resident at most |
//! | [`outgoing`] | where pages are moved that leave, in-thread |
//! | [`copies`] | filling absent pages |
//! | [`remote`], [`fetch`], [`recall`] | waiting for a store without a lock, for a page and for many |
//! | [`writeback`], [`own_file`], [`own_store`] | what is behind the pool |
//! | [`clean`], [`clean_pages`] | pages that leave as they came |
//! | [`transit`] | swap-in and swap-out beside other threads, without the lock |
//! | [`space`], [`arguments`] | what system calls do to the address space |
//! | [`usable`] | of them, memory that becomes usable, and what is there from the start |
//! | [`remap`] | of them, mremap |
//! | [`at_fork`] | what the child of a fork has of them |
//! | [`texts`] | text of files, whose calls may be rewritten |

mod arguments;
mod at_fork;
mod bounds;
pub(crate) mod bring;
mod cannot_leave;
pub(crate) mod clean;
mod clean_pages;
mod copies;
pub(crate) mod core;
mod empty;
pub(crate) mod fetch;
pub(crate) mod folios;
mod follow;
pub(crate) mod following;
mod inspect;
pub(crate) mod layer;
mod limits;
mod manage;
mod mapping_limit;
mod mappings;
mod outgoing;
mod own_file;
mod own_store;
pub(crate) mod pressure;
pub(crate) mod ranges;
mod read_ahead;
mod readers;
mod recall;
pub(crate) mod reclaim;
mod reclaimer;
mod refaults;
mod remap;
pub(crate) mod remote;
mod said;
mod second_tier;
mod share;
pub(crate) mod space;
mod steps;
pub(crate) mod texts;
pub(crate) mod transit;
mod usable;
pub(crate) mod way;
mod ways;
pub(crate) mod words;
mod writeback;
mod zspages;

/// A page's number: its address over the page size.
pub(crate) type Vpn = usize;
