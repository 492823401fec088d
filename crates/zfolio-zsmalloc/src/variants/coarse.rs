//! The four groups the kernel's zsmalloc had before it had twelve.

use crate::grouping::Grouping;

/// Empty, almost empty (at most three quarters in use), almost full, full.
#[derive(Clone, Copy, Debug)]
pub struct Coarse;

impl Grouping for Coarse {
    const COMPARED: usize = 1;

    fn groups(_objs: u16) -> u16 {
        4
    }

    fn of(inuse: u16, objs: u16) -> u16 {
        if inuse == 0 {
            0
        } else if inuse >= objs {
            3
        } else if u32::from(inuse) <= 3 * u32::from(objs) / 4 {
            1
        } else {
            2
        }
    }
}

/// [`Coarse`] with the rule its lists had before the series took it out: who has fewer slots
/// in use than the head goes second.
#[derive(Clone, Copy, Debug)]
pub struct CoarseFullerFirst;

impl Grouping for CoarseFullerFirst {
    const COMPARED: usize = Coarse::COMPARED;
    const FULLER_FIRST: bool = true;

    fn groups(objs: u16) -> u16 {
        Coarse::groups(objs)
    }

    fn of(inuse: u16, objs: u16) -> u16 {
        Coarse::of(inuse, objs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_are_almost_empty() {
        for (inuse, objs, group) in [
            (0, 16, 0),
            (1, 16, 1),
            (12, 16, 1),
            (13, 16, 2),
            (15, 16, 2),
            (16, 16, 3),
            (3, 5, 1),
            (4, 5, 2),
            (1, 2, 1),
        ] {
            assert_eq!(Coarse::of(inuse, objs), group, "{inuse} of {objs}");
        }
    }
}
