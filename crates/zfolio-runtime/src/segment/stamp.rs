//! The mark by which the command recognises the preload library of its own build in a file.

use super::layout::VERSION;

/// What the preload library has in it, once: words to find it by, then the build.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    begin: [u8; 24],
    build: [u8; 40],
}

impl Stamp {
    /// What stands before the build.
    pub const BEGIN: [u8; 24] = *b"zfolio preload library: ";
    /// This build's: the version of zfolio and that of the segment, as text; NULs after it.
    pub const THIS: Self = Self {
        begin: Self::BEGIN,
        build: build(),
    };

    /// The build, with NULs after it.
    pub const fn build(&self) -> &[u8] {
        &self.build
    }
}

const fn build() -> [u8; 40] {
    let (version, between) = (env!("CARGO_PKG_VERSION").as_bytes(), b", segment ");
    let digits = [
        b'0' + (VERSION / 100 % 10) as u8,
        b'0' + (VERSION / 10 % 10) as u8,
        b'0' + (VERSION % 10) as u8,
    ];
    let mut text = [0; 40];
    let (first, rest) = text.split_at_mut(version.len());
    let (second, rest) = rest.split_at_mut(between.len());
    let (third, rest) = rest.split_at_mut(digits.len());
    first.copy_from_slice(version);
    second.copy_from_slice(between);
    third.copy_from_slice(&digits);
    // A NUL ends it.
    assert!(VERSION < 1000 && !rest.is_empty());
    text
}
