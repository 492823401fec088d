//! What /proc says of a thread of this process. Any thread of ours may ask: nothing here uses the heap.

use crate::procfs::{File, number};
use crate::syscall::nr;
use core::fmt::Write;

/// The processor on which a thread of this process ran last.
#[must_use]
pub fn processor_of(thread: u32) -> Option<usize> {
    /// Of the fields behind the name, the 39th of all.
    const PROCESSOR: usize = 36;
    let mut line = [0; 512];
    parse_processor(of_thread(thread, "stat", &mut line)?, PROCESSOR)
}

/// How often a thread of this process has waited: given its processor up itself.
#[must_use]
pub fn waits_of(thread: u32) -> Option<usize> {
    let mut text = [0; 4096];
    parse_waits(of_thread(thread, "status", &mut text)?)
}

/// The arguments of the mremap that a thread of this process waits in: old address, old and new
/// size, flags, and the address that is asked for by MREMAP_FIXED, all in bytes. `None` if it
/// waits in none, or that cannot be told.
#[must_use]
pub fn mremap_waited_in(thread: u32) -> Option<[usize; 5]> {
    let mut text = [0; 192];
    match parse_call(of_thread(thread, "syscall", &mut text)?)? {
        (nr::MREMAP, args) => Some(args),
        _ => None,
    }
}

/// A system call and its first arguments, as /proc/PID/syscall has them: none of a thread that
/// runs, or waits in none.
fn parse_call(text: &[u8]) -> Option<(usize, [usize; 5])> {
    let mut words = text.split(|byte| byte.is_ascii_whitespace());
    let call = number(words.next()?, 10)?;
    let mut args = [0; 5];
    for arg in &mut args {
        *arg = number(words.next()?.strip_prefix(b"0x")?, 16)?;
    }
    Some((call, args))
}

/// The beginning of a file about a thread of this process.
fn of_thread<'a>(thread: u32, file: &str, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 48];
    let name = {
        let mut text = Cursor(&mut path, 0);
        write!(text, "/proc/self/task/{thread}/{file}\0").ok()?;
        let len = text.1;
        core::ffi::CStr::from_bytes_with_nul(&path[..len]).ok()?
    };
    let file = File::open(name).ok()?;
    let len = file.read_at(into, 0);
    file.close();
    into.get(..len.ok()?)
}

fn parse_processor(line: &[u8], field: usize) -> Option<usize> {
    let name_ends = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = line.get(name_ends + 2..)?.split(|byte| *byte == b' ');
    number(fields.nth(field)?, 10)
}

fn parse_waits(status: &[u8]) -> Option<usize> {
    let mut lines = status.split(|byte| *byte == b'\n');
    number(
        lines.find_map(|line| line.strip_prefix(b"voluntary_ctxt_switches:"))?,
        10,
    )
}

/// Text written into bytes.
struct Cursor<'a>(&'a mut [u8], usize);

impl Write for Cursor<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.1 + text.len();
        let into = self.0.get_mut(self.1..end).ok_or(core::fmt::Error)?;
        into.copy_from_slice(text.as_bytes());
        self.1 = end;
        Ok(())
    }
}

/// What a thread of this process waits in, in the kernel, by the name that /proc/PID/wchan has for
/// it: `0` of one that runs or could; `None` of one that is not there.
#[must_use]
pub fn wait_channel(thread: u32, into: &mut [u8; 64]) -> Option<&str> {
    core::str::from_utf8(of_thread(thread, "wchan", into)?).ok()
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn a_call_is_told_from_none() {
        let mremap = b"25 0x7f00 0x1000 0x2000 0x3 0x7f0000 0x0 0x7ffe 0x7f00\n";
        let args = [0x7f00, 0x1000, 0x2000, 3, 0x7f_0000];
        assert_eq!(parse_call(mremap), Some((25, args)));
        assert_eq!(parse_call(&mremap[..20]), None);
        assert_eq!(parse_call(b"-1 0x7ffe 0x7f00\n"), None);
        assert_eq!(parse_call(b"running\n"), None);
        assert_eq!(mremap_waited_in(u32::MAX), None);
    }

    #[test]
    fn waits_are_those_that_a_thread_chose() {
        let status = b"Threads:\t1\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(parse_waits(status), Some(12));
        assert_eq!(parse_waits(&status[..20]), None);
        let here = crate::thread::id();
        let before = waits_of(here).unwrap();
        (0..3).for_each(|_| std::thread::sleep(core::time::Duration::from_millis(1)));
        assert!(waits_of(here).unwrap() >= before + 3);
        assert_eq!(waits_of(u32::MAX), None);
    }

    #[test]
    fn a_thread_that_runs_waits_in_nothing() {
        let mut name = [0; 64];
        let here = wait_channel(crate::thread::id(), &mut name);
        assert_eq!(here, Some("0"));
        assert_eq!(wait_channel(u32::MAX, &mut name), None);
    }
}
