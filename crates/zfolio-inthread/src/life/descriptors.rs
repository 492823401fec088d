//! Descriptors: ours, which the program is to neither see nor close, and files it opens by which
//! its memory is reached without a fault: devices, and its own memory as a file.

use super::leave;
use crate::memory::core::MemoryCore;
use crate::memory::way::Kind;
use crate::program_memory;
use crate::raw::{self, PAGE, err, is_error, nr};
use crate::state::State;
use core::sync::atomic::{AtomicBool, Ordering};

/// Since our descriptors were opened there was a call that [may forbid](may_forbid_opening) the child of a fork to open them.
static OPENING_IN_DOUBT: AtomicBool = AtomicBool::new(false);

/// Such a call is about to be made.
pub(crate) fn doubt_opening() {
    OPENING_IN_DOUBT.store(true, Ordering::SeqCst);
}

/// Whether a call may limit, hide or forbid what the child of a fork opens: numbers, /proc, this process's files
/// there. So may those that are made without a thread of ours (`reclaimer::is_alone`): of users, sandboxes,
/// namespaces, tables of descriptors.
pub(crate) const fn may_forbid_opening(number: usize, args: &[usize; 6]) -> bool {
    match number {
        nr::SETRLIMIT
        | nr::PIVOT_ROOT
        | nr::CHROOT
        | nr::MOUNT
        | nr::UMOUNT2
        | nr::MOVE_MOUNT
        | nr::MOUNT_SETATTR => true,
        nr::PRLIMIT64 => args[2] != 0,
        _ => false,
    }
}

/// Whether the child of a fork can open what its memory is brought back with. `shared`: with the parent's numbers.
///
/// It closes as many as it opens, so it can as long as nothing has changed. Only where something may have is it tried
/// here: what is opened has the lowest number meanwhile, which another thread may be about to give to
/// something else. (What is done from outside, or by what is written to a security module's file, is not seen: a child
/// that cannot open them then ends, with a line.)
pub(super) fn can_child_open(state: &State, shared: bool) -> bool {
    let in_doubt = shared || OPENING_IN_DOUBT.load(Ordering::SeqCst);
    !in_doubt || state.locked(|core| core.way.can_be_renewed())
}

/// Calls that close or take a descriptor's number. Ours are not there for the program.
pub(crate) fn change(state: &State, number: usize, args: [usize; 6]) -> isize {
    let [first, last, flags, ..] = args;
    let (first, last) = (first & 0xffff_ffff, last & 0xffff_ffff);
    match number {
        nr::CLOSE if state.is_our_descriptor(first) => err::BADF,
        nr::CLOSE => {
            state.own_memory.forget(first);
            raw::for_program(number, args)
        }
        // (The child of posix_spawn has a table of its own, and its parent's memory.)
        nr::DUP2 | nr::DUP3 if state.is_our_descriptor(last) && !state.is_own_process() => {
            err::BUSY
        }
        nr::DUP2 | nr::DUP3 if state.is_our_descriptor(last) => {
            state.locked(|core| {
                if !state.has_tables_apart() {
                    core.way.move_descriptor(last);
                    state.note_descriptors(&core.way);
                }
            });
            if state.is_our_descriptor(last) {
                return err::BUSY;
            }
            copied(state, number, args)
        }
        nr::DUP | nr::DUP2 | nr::DUP3 | nr::FCNTL => copied(state, number, args),
        nr::CLOSE_RANGE if first <= last && flags & !CLOSE_RANGE_FLAGS == 0 => {
            if flags & CLOSE_RANGE_UNSHARE != 0 {
                let nothing = [
                    u32::MAX as usize,
                    u32::MAX as usize,
                    CLOSE_RANGE_UNSHARE,
                    0,
                    0,
                    0,
                ];
                let result = unshare(state, nr::CLOSE_RANGE, nothing);
                if is_error(result) {
                    return result;
                }
            }
            let mut ours = state.descriptors();
            ours.sort_unstable();
            let mut from = first;
            for fd in ours.into_iter().filter(|fd| (first..=last).contains(fd)) {
                if fd > from {
                    let result = raw::for_program(number, [from, fd - 1, flags, 0, 0, 0]);
                    if is_error(result) {
                        return result;
                    }
                }
                from = fd + 1;
            }
            if flags & CLOSE_RANGE_CLOEXEC == 0 {
                state.own_memory.forget_from(first..=last);
            }
            if from > last {
                return 0;
            }
            raw::for_program(number, [from, last, flags, 0, 0, 0])
        }
        _ => raw::for_program(number, args),
    }
}

/// Makes a call by which this thread has a table of descriptors of its own, if it shared one. To give way
/// in one table is not to do so in the others, so nothing of ours gives way from then on.
pub(crate) fn unshare(state: &State, number: usize, args: [usize; 6]) -> isize {
    if !state.is_several() || !state.is_own_process() {
        return raw::for_program(number, args);
    }
    state.locked(|_| {
        let result = raw::for_program(number, args);
        if !is_error(result) {
            let process = zfolio_sys::thread::pid();
            state.tables_apart.store(process, Ordering::Relaxed);
        }
        result
    })
}

impl State {
    /// Whether threads of this process have tables of descriptors of their own.
    fn has_tables_apart(&self) -> bool {
        self.tables_apart.load(Ordering::Relaxed) == zfolio_sys::thread::pid()
    }
}

/// Makes a copy of a descriptor, which is the process's own memory if that is.
fn copied(state: &State, number: usize, args: [usize; 6]) -> isize {
    let copy = raw::for_program(number, args);
    if !is_error(copy) && copy.cast_unsigned() != args[0] {
        let memory = &state.own_memory;
        memory.forget(copy.cast_unsigned());
        if memory.is_one(args[0]) && !memory.note(copy) {
            leave::leave(state, "it opened its own memory as a file, too often");
        }
    }
    copy
}

const O_CLOEXEC: usize = 0o2_000_000;
const CLOSE_RANGE_UNSHARE: usize = 2;
const CLOSE_RANGE_CLOEXEC: usize = 4;
/// Flags of close_range that there are: of others the kernel tells.
const CLOSE_RANGE_FLAGS: usize = 6;
/// Bytes of a name of a descriptor in /proc/self, its end included.
const NAME: usize = 32;
/// Digits of a descriptor, at most.
const DIGITS: usize = 10;

/// `directory`, which ends with a slash, with a descriptor's number behind it.
fn name_of(directory: &[u8], fd: usize) -> [u8; NAME] {
    let mut name = [0_u8; NAME];
    name[..directory.len()].copy_from_slice(directory);
    let mut digits = [0_u8; DIGITS];
    let (mut rest, mut first) = (fd, DIGITS);
    while first == DIGITS || (rest > 0 && first > 0) {
        first -= 1;
        digits[first] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    let number = &digits[first..];
    name[directory.len()..directory.len() + number.len()].copy_from_slice(number);
    name
}

fn number(text: &[u8]) -> usize {
    let digits = text.iter().take_while(|digit| digit.is_ascii_digit());
    digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
}

/// Whether a descriptor is /proc/PID/mem of this process, by whatever name it was opened.
fn is_own_memory(fd: isize) -> bool {
    let name = name_of(b"/proc/self/fd/", fd.cast_unsigned());
    let mut target = [0_u8; 64];
    let into = target.as_mut_ptr() as usize;
    let len = raw::own(nr::READLINK, [name.as_ptr() as usize, into, target.len()]);
    if is_error(len) {
        return false;
    }
    let target = &target[..len.cast_unsigned()];
    let of = target
        .strip_prefix(b"/proc/")
        .and_then(|of| of.strip_suffix(b"/mem"));
    of.is_some_and(|of| number(of) == raw::own(nr::GETPID, [0; 3]).cast_unsigned())
}

/// The process that a pidfd is of.
pub(crate) fn process_of(fd: i32) -> Option<usize> {
    let name = name_of(b"/proc/self/fdinfo/", usize::try_from(fd).ok()?);
    let mut text = [0_u8; 256];
    let opened = raw::own(nr::OPEN, [name.as_ptr() as usize, O_CLOEXEC, 0]);
    if is_error(opened) {
        return None;
    }
    let opened = opened.cast_unsigned();
    let len = raw::own(nr::READ, [opened, text.as_mut_ptr() as usize, text.len()]);
    raw::own(nr::CLOSE, [opened, 0, 0]);
    let text = text.get(..usize::try_from(len).ok()?)?;
    let line = text
        .split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Pid:\t"))?;
    Some(number(line))
}

/// A file has been opened. Devices may keep pages of the program for themselves, which only
/// userfaultfd refuses to move.
pub(crate) fn opened(state: &State, number: usize, args: [usize; 6], fd: isize) {
    let path = if number == nr::OPEN { args[0] } else { args[1] };
    // The beginning of the name; what lies on the next page need not be there.
    let mut name = [0_u8; 40];
    let here = name.len().min(PAGE - path % PAGE);
    if !program_memory::read_bytes(path, &mut name[..here]) {
        return;
    }
    if !name[..here].contains(&0) {
        program_memory::read_bytes(path.wrapping_add(here), &mut name[here..]);
    }
    let len = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    let name = &name[..len];
    if name.ends_with(b"mem") && is_own_memory(fd) && !state.own_memory.note(fd) {
        leave::leave(state, "it opened its own memory as a file, too often");
    }
    let Some(device) = name.strip_prefix(b"/dev/") else {
        return;
    };
    if device == b"userfaultfd" {
        leave::leave(state, "it uses userfaultfd itself");
        return;
    }
    let kind = Device::named(device);
    if kind == Device::Harmless {
        return;
    }
    let unseen = |core: &mut MemoryCore| {
        core.has_devices = true;
        core.way.kind != Kind::InThread
    };
    if state.locked(unseen) && kind == Device::KeepsPages {
        leave::leave(state, "it opened a device that keeps pages of the program");
    }
}

/// What a device may do with the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Device {
    /// Nothing but in reads and writes.
    Harmless,
    /// It is not known.
    Unknown,
    /// It keeps pages, and writes to them.
    KeepsPages,
}

impl Device {
    /// By its name in /dev.
    fn named(name: &[u8]) -> Self {
        const HARMLESS: [&[u8]; 11] = [
            b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"ptmx", b"stdin", b"stdout",
            b"stderr", b"log",
        ];
        const DIRECTORIES: [&[u8]; 4] = [b"shm/", b"pts/", b"fd/", b"mqueue/"];
        const PINNING: [&[u8]; 8] = [
            b"nvidia",
            b"kfd",
            b"dri/",
            b"infiniband",
            b"vfio",
            b"kvm",
            b"accel",
            b"iax",
        ];
        let begins = |all: &[&[u8]]| all.iter().any(|prefix| name.starts_with(prefix));
        if begins(&PINNING) {
            Self::KeepsPages
        } else if HARMLESS.contains(&name) || begins(&DIRECTORIES) {
            Self::Harmless
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, may_forbid_opening};
    use crate::raw::nr;
    use crate::seen::table::{CALLS, PLAIN};

    #[test]
    fn a_device_that_is_not_known_is_not_harmless() {
        for name in ["null", "shm/x", "pts/3", "urandom"] {
            assert_eq!(Device::named(name.as_bytes()), Device::Harmless, "{name}");
        }
        for name in ["dri/renderD128", "kvm", "nvidia0"] {
            assert_eq!(Device::named(name.as_bytes()), Device::KeepsPages, "{name}");
        }
        for name in ["video0", "vhost-net", "nullx", "sg0", "shm", ""] {
            assert_eq!(Device::named(name.as_bytes()), Device::Unknown, "{name}");
        }
    }

    #[test]
    fn calls_that_may_forbid_opening_come_by_us() {
        let args = [0, 0, 1, 0, 0, 0];
        let ones = (0..CALLS).filter(|number| may_forbid_opening(*number, &args));
        assert_eq!(ones.clone().count(), 8);
        for number in ones {
            assert_eq!(PLAIN[number], 0, "{number} goes straight to the kernel");
        }
        assert!(!may_forbid_opening(nr::PRLIMIT64, &[0; 6]), "it asks");
    }
}
