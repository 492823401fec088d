//! What this command knows of itself: which build it is, what it has, and the preload library inside it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use zfolio_runtime::segment::{Stamp, faults};

/// A preload library inside the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside {
    /// The file.
    pub(crate) bytes: &'static [u8],
    /// Names its content.
    pub(crate) hash: &'static str,
}

// `INSIDE`: the library, where this command was built with one (build.rs).
include!(concat!(env!("OUT_DIR"), "/inside.rs"));

/// The commit this was built from; none where that is not known.
pub(crate) const COMMIT: Option<&str> = option_env!("ZFOLIO_COMMIT");

impl Inside {
    /// Whether that is what the file has, byte for byte.
    pub(crate) fn is_content_of(&self, path: &Path) -> bool {
        File::open(path).is_ok_and(|file| self.is_in(file))
    }

    /// As [`Self::is_content_of`]; false if it cannot be read.
    pub(crate) fn is_in(&self, file: File) -> bool {
        let len = self.bytes.len();
        let same_length = |found: u64| usize::try_from(found) == Ok(len);
        if !file
            .metadata()
            .is_ok_and(|of| of.is_file() && same_length(of.len()))
        {
            return false;
        }
        let mut found = Vec::with_capacity(len + 1);
        let read = file.take(len as u64 + 1).read_to_end(&mut found);
        read.is_ok() && found == self.bytes
    }
}

/// The build of this command, as its library has it.
pub(crate) fn build() -> &'static str {
    const THIS: &Stamp = &Stamp::THIS;
    text(THIS.build()).unwrap_or_default()
}

/// What `zfolio --version` says, but for the name.
pub(crate) fn version() -> String {
    let commit = COMMIT.map(|commit| format!(" (commit {commit})"));
    format!(
        "{}{}",
        env!("CARGO_PKG_VERSION"),
        commit.unwrap_or_default()
    )
}

/// As [`version`], and what this build has.
pub(crate) fn long_version() -> String {
    let library = INSIDE.map_or("installed with it".to_owned(), |inside| {
        format!("inside, {}", inside.hash)
    });
    format!(
        "{}\nbuild: {}\npreload library: {library}\ncompressors: lz4, zstd, deflate-iaa\npictures: {}\nfaults: {}",
        version(),
        build(),
        if cfg!(feature = "png") {
            "svg, png"
        } else {
            "svg"
        },
        faults::NAMES[1..].join(", ")
    )
}

/// The build that a library says it is of; none if it says nothing.
pub(crate) fn build_of(library: &[u8]) -> Option<&str> {
    let begin = Stamp::BEGIN;
    let at = library
        .windows(begin.len())
        .position(|part| part == begin)?;
    text(&library[at + begin.len()..])
}

/// The text up to a NUL, if it is a short one.
fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().take(64).position(|byte| *byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok()
}
