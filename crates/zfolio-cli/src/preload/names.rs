//! What the library is called, and which paths of it can be used.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Environment variable: where the library is, instead of searching.
pub(crate) const ENV_PRELOAD: &str = "ZFOLIO_PRELOAD";
/// The name of its file.
pub(super) const LIBRARY: &str = "libzfolio_preload.so";

/// Whether `LD_PRELOAD`, a list, can have this path in it.
pub(super) fn can_be_listed(path: &Path) -> bool {
    !path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :\t\n".contains(byte))
}
