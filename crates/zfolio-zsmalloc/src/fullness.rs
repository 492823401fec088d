//! Twelve groups of zspages by how full they are.
//!
//! Group 0 is empty, group 11 is full, and group `g` in 1 ..= 10 holds the
//! zspages with at least `10 * (g - 1)` and less than `10 * g` percent of their
//! objects in use. A zspage at exactly 50 % is therefore in the group labelled
//! 60 %. Fine groups let an allocation fill the fullest zspage and compaction
//! empty the emptiest. Source of the arithmetic: the kernel's zsmalloc since
//! it gave up its four coarse groups.

/// Number of fullness groups.
pub const GROUPS: usize = 12;

/// The group of one zspage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fullness(u8);

impl Fullness {
    /// Nothing in use. Such a zspage is freed at once, the group stays empty.
    pub const EMPTY: Self = Self(0);
    /// Every slot in use.
    pub const FULL: Self = Self(11);
    /// Labels of groups 1 ..= 11, as the statistics print them.
    pub const LABELS: [&str; GROUPS - 1] = [
        "10%", "20%", "30%", "40%", "50%", "60%", "70%", "80%", "90%", "99%", "100%",
    ];

    /// The group of a zspage with `inuse` of its `objs` slots in use.
    /// `inuse > objs` counts as full, `objs == 0` as empty.
    #[must_use]
    pub fn of(inuse: u16, objs: u16) -> Self {
        if inuse == 0 {
            return Self::EMPTY;
        }
        if inuse >= objs {
            return Self::FULL;
        }
        let tenth = u32::from(inuse) * 10 / u32::from(objs);
        Self(u8::try_from(tenth + 1).unwrap_or(Self::FULL.0))
    }

    /// The group as an array index, 0 ..= 11.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_full_is_in_the_sixty_percent_group() {
        let group = Fullness::of(8, 16);
        assert_eq!(group.index(), 6);
        assert_eq!(Fullness::LABELS[group.index() - 1], "60%");
    }

    #[test]
    fn borders() {
        assert_eq!(Fullness::of(0, 16), Fullness::EMPTY);
        assert_eq!(Fullness::of(16, 16), Fullness::FULL);
        assert_eq!(Fullness::of(1, 1), Fullness::FULL);
        for (inuse, group) in [(1, 1), (9, 1), (10, 2), (49, 5), (50, 6), (89, 9), (90, 10)] {
            assert_eq!(Fullness::of(inuse, 100).index(), group, "{inuse} %");
        }
        assert_eq!(Fullness::of(255, 256).index(), 10);
    }

    /// The published form rounds down to a percent first, then to a tenth.
    #[test]
    fn equals_the_percent_form() {
        for objs in 1..=512u16 {
            for inuse in 1..objs {
                let percent = 100 * u32::from(inuse) / u32::from(objs);
                let group = u32::try_from(Fullness::of(inuse, objs).index());
                assert_eq!(group, Ok(percent / 10 + 1), "{inuse} of {objs}");
            }
        }
    }
}
