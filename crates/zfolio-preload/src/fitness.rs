//! What keeps a program from being managed, as far as it can be known from
//! inside: tools that stop our threads, or end whoever makes them.

use crate::outside::has_leak_checker;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use zfolio_runtime::process::Host;
use zfolio_sys::limits::filters;

/// valgrind runs the program itself and knows no threads but libc's.
pub(crate) const VALGRIND: &str = "it runs under valgrind, which ends programs with such threads";
/// The filter may kill the process for a call of ours.
pub(crate) const FILTERED: &str = "it filters its system calls (seccomp), and ours with them";
/// The leak checker of LSan stops all threads and then looks at all memory,
/// and would wait for ever for what is moved out.
const LEAK_CHECKED: &str = "the leak checker in it (LSan) would stop the manager while it looks at memory; with ASAN_OPTIONS=detect_leaks=0 it can be managed";

/// 1: leaks are not looked for.
static UNCHECKED: AtomicU32 = AtomicU32::new(0);

/// Looks at the environment, in the constructor; false in a program that must
/// have no thread of ours.
pub(crate) fn look(environment: impl Fn(&str) -> Option<&'static CStr>) -> bool {
    let has = |name, word: &[u8]| environment(name).is_some_and(|value| contains(value, word));
    let off = b"detect_leaks=0";
    if has("ASAN_OPTIONS", off) || has("LSAN_OPTIONS", off) {
        UNCHECKED.store(1, Ordering::Relaxed);
    }
    // The loader is asked to preload valgrind's own part in the programs it runs.
    !has("LD_PRELOAD", b"vgpreload_core")
}

fn contains(text: &CStr, word: &[u8]) -> bool {
    text.to_bytes().windows(word.len()).any(|part| part == word)
}

/// Why the program is not to be managed, though it may be watched.
pub(crate) fn unfit() -> Option<&'static str> {
    (has_leak_checker() && UNCHECKED.load(Ordering::Relaxed) == 0).then_some(LEAK_CHECKED)
}

/// Whether the calls of a manager's thread are as free as those of `zfolio
/// run` were: a filter that the program has put on itself since may kill it
/// for any of them.
pub(crate) fn may_have_threads(host: &Host) -> bool {
    let now = filters();
    now == 0
        || (host.open_segment)()
            .is_ok_and(|segment| now <= segment.config().runner.filters.load(Ordering::Relaxed))
}
