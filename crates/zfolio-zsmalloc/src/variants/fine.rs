//! The kernel's twelve groups as the kernel uses them, and the finest there are.

use crate::grouping::{Grouping, Tenths};

/// [`Tenths`] of which a compaction takes the head, whatever is in it: the
/// kernel's way.
#[derive(Clone, Copy, Debug)]
pub struct PlainTenths;

impl Grouping for PlainTenths {
    const COMPARED: usize = 1;

    fn groups(objs: u16) -> u16 {
        Tenths::groups(objs)
    }

    fn of(inuse: u16, objs: u16) -> u16 {
        Tenths::of(inuse, objs)
    }
}

/// A group for each number of slots in use: the head of the first is the fullest
/// or the emptiest. Each malloc and free moves a zspage between lists.
#[derive(Clone, Copy, Debug)]
pub struct Exact;

impl Grouping for Exact {
    const COMPARED: usize = 1;

    fn groups(objs: u16) -> u16 {
        objs + 1
    }

    fn of(inuse: u16, _objs: u16) -> u16 {
        inuse
    }
}
