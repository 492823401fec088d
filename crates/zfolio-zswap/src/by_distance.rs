//! What there is of each of two things, by how far away they are.

/// One of what is near, a file on this machine, and one of what is far, a store on others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ByDistance<T> {
    /// On this machine.
    pub near: T,
    /// On others.
    pub far: T,
}

impl<T> ByDistance<T> {
    /// The same, of each.
    pub const fn as_ref(&self) -> ByDistance<&T> {
        ByDistance {
            near: &self.near,
            far: &self.far,
        }
    }

    /// What `with` makes of each.
    pub fn map<U>(self, mut with: impl FnMut(T) -> U) -> ByDistance<U> {
        ByDistance {
            near: with(self.near),
            far: with(self.far),
        }
    }

    /// Each beside another.
    pub fn zip<U>(self, other: ByDistance<U>) -> ByDistance<(T, U)> {
        ByDistance {
            near: (self.near, other.near),
            far: (self.far, other.far),
        }
    }
}

impl ByDistance<u64> {
    /// Both together.
    #[must_use]
    pub const fn sum(self) -> u64 {
        self.near.saturating_add(self.far)
    }
}
