//! userfaultfd: descriptors, messages and the ioctls on them.
//!
//! Constants are those of the kernel's `linux/userfaultfd.h` as of 6.18
//! (MOVE came with 6.8, later than many distributions' headers); the test at
//! the end checks them against the values a C compiler prints.
//!
//! These calls move whole pages between addresses. They are safe to *call* in
//! Rust's sense only because no Rust reference ever covers a program range,
//! and arena blocks are referenced only by whoever holds them (see
//! `zfolio_mm::Memory`): that is the contract of every `usize` address here.

use crate::limits::{give_from_reserve, reserve_descriptors, with_descriptors};
use crate::syscall::{Errno, Kernel, Linux, nr};
use core::marker::PhantomData;

/// Pages can be write-protected.
pub const FEATURE_WRITE_PROTECT: u64 = 1;
/// Ranges of one descriptor tell about forks.
pub const FEATURE_EVENT_FORK: u64 = 1 << 1;
/// Pages may be write-protected: who writes to one faults.
pub const FEATURE_WP: u64 = 1 << 0;
/// Ranges of one descriptor tell about mremap.
pub const FEATURE_EVENT_REMAP: u64 = 1 << 2;
/// ... about madvise(DONTNEED, FREE, REMOVE).
pub const FEATURE_EVENT_REMOVE: u64 = 1 << 3;
/// ... about munmap and what else unmaps.
pub const FEATURE_EVENT_UNMAP: u64 = 1 << 6;
/// A missing page raises SIGBUS in the toucher and no message.
pub const FEATURE_SIGBUS: u64 = 1 << 7;
/// A missing page's message names the thread.
pub const FEATURE_THREAD_ID: u64 = 1 << 8;
/// `UFFDIO_MOVE` exists.
pub const FEATURE_MOVE: u64 = 1 << 16;

const API: u64 = 0xAA;
const REGISTER_MODE_MISSING: u64 = 1;
const REGISTER_MODE_WP: u64 = 2;
const COPY_MODE_WP: u64 = 2;

const IOC_API: usize = 0xc018_aa3f;
const IOC_REGISTER: usize = 0xc020_aa00;
const IOC_UNREGISTER: usize = 0x8010_aa01;
const IOC_WAKE: usize = 0x8010_aa02;
const IOC_COPY: usize = 0xc028_aa03;
const IOC_CONTINUE: usize = 0xc020_aa07;
const IOC_MOVE: usize = 0xc028_aa05;
const IOC_WRITEPROTECT: usize = 0xc018_aa06;
/// UFFDIO_WRITEPROTECT_MODE_WP.
const MODE_WP: u64 = 1;
/// `USERFAULTFD_IOC_NEW` on /dev/userfaultfd.
const IOC_NEW: usize = 0xaa00;

const O_CLOEXEC: usize = 0o2_000_000;
const O_NONBLOCK: usize = 0o4000;
const USER_MODE_ONLY: usize = 1;

const EVENT_PAGEFAULT: u8 = 0x12;
const EVENT_FORK: u8 = 0x13;
const EVENT_REMAP: u8 = 0x14;
const EVENT_REMOVE: u8 = 0x15;
const EVENT_UNMAP: u8 = 0x16;

/// One `struct uffd_msg`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct RawMessage {
    event: u8,
    _reserved: [u8; 7],
    arg: [u64; 3],
}

/// What the kernel said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A thread waits for the page at `address`.
    Fault {
        /// Address touched, page-aligned.
        address: usize,
        /// The access was a write.
        write: bool,
        /// Which thread; 0 without [`FEATURE_THREAD_ID`].
        thread: u32,
    },
    /// The program forked; `fd` serves the child's ranges.
    Fork {
        /// New descriptor, in the reader's table.
        fd: i32,
    },
    /// mremap moved a range.
    Remap {
        /// Old start.
        from: usize,
        /// New start.
        to: usize,
        /// Bytes.
        len: usize,
    },
    /// The program is about to discard a range.
    Remove {
        /// First byte.
        start: usize,
        /// One past the last.
        end: usize,
    },
    /// A range was unmapped.
    Unmap {
        /// First byte.
        start: usize,
        /// One past the last.
        end: usize,
    },
}

impl RawMessage {
    /// The typed message; `None` for a kind this version does not know.
    #[must_use]
    pub fn decode(&self) -> Option<Message> {
        let [a, b, c] = self.arg;
        let at = |word: u64| usize::try_from(word).unwrap_or(0);
        Some(match self.event {
            EVENT_PAGEFAULT => Message::Fault {
                address: at(b) & !0xfff,
                write: a & 1 != 0,
                thread: u32::try_from(c & 0xffff_ffff).unwrap_or(0),
            },
            EVENT_FORK => Message::Fork {
                fd: i32::try_from(a & 0xffff_ffff).ok()?,
            },
            EVENT_REMAP => Message::Remap {
                from: at(a),
                to: at(b),
                len: at(c),
            },
            EVENT_REMOVE => Message::Remove {
                start: at(a),
                end: at(b),
            },
            EVENT_UNMAP => Message::Unmap {
                start: at(a),
                end: at(b),
            },
            _ => return None,
        })
    }
}

/// How a move or copy of several pages ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes done, from the front.
    pub done: usize,
    /// Why it stopped, when it stopped early.
    pub stopped: Option<Errno>,
}

/// A userfaultfd descriptor. Not closed on drop: losing one means zero pages
/// in the program, so closing is explicit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UffdOf<K> {
    fd: i32,
    kernel: PhantomData<K>,
}

/// One of the kernel that this process runs on.
pub type Uffd = UffdOf<Linux>;

impl<K: Kernel> UffdOf<K> {
    /// Opens a descriptor that also sees faults from inside system calls.
    ///
    /// Tries the system call (needs `CAP_SYS_PTRACE` or
    /// `vm.unprivileged_userfaultfd=1`), then `/dev/userfaultfd`.
    ///
    /// # Errors
    /// What the system call returned, or the API handshake.
    pub fn open(features: u64) -> Result<Self, Errno> {
        Self::open_with(features, O_CLOEXEC | O_NONBLOCK)
    }

    /// Opens one that sees only faults of user code: needs no privilege. From
    /// inside a system call, a missing page is EFAULT.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for_user_faults(features: u64) -> Result<Self, Errno> {
        Self::open_with(features, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY)
    }

    fn open_with(features: u64, flags: usize) -> Result<Self, Errno> {
        // SAFETY: takes flags, returns a descriptor.
        let fd = unsafe { K::call(nr::USERFAULTFD, [flags, 0, 0, 0, 0, 0]) }
            .or_else(|first| Self::open_device(flags).map_err(|_| first))?;
        let this = Self::from_fd(i32::try_from(fd).map_err(|_| Errno::INVAL)?);
        let mut api = [API, features, 0];
        this.ioctl(IOC_API, &mut api)
            .inspect_err(|_| this.close())?;
        Ok(this)
    }

    fn open_device(flags: usize) -> Result<usize, Errno> {
        let path = c"/dev/userfaultfd".as_ptr() as usize;
        // SAFETY: the path is a NUL-terminated constant.
        let device = unsafe { K::call(nr::OPEN, [path, 2 | O_CLOEXEC, 0, 0, 0, 0]) }?;
        // SAFETY: takes flags, returns a descriptor.
        let fd = unsafe { K::call(nr::IOCTL, [device, IOC_NEW, flags, 0, 0, 0]) };
        // SAFETY: our own descriptor, not used afterwards.
        let _ = unsafe { K::call(nr::CLOSE, [device, 0, 0, 0, 0, 0]) };
        fd
    }

    /// Wraps a descriptor that came with a FORK event.
    #[must_use]
    pub const fn from_fd(fd: i32) -> Self {
        Self {
            fd,
            kernel: PhantomData,
        }
    }

    /// The descriptor number.
    #[must_use]
    pub const fn fd(self) -> i32 {
        self.fd
    }

    /// Closes it. The last close unregisters every range.
    pub fn close(self) {
        // SAFETY: the caller gives the descriptor up.
        let _ = unsafe { K::call(nr::CLOSE, [self.raw(), 0, 0, 0, 0, 0]) };
    }

    /// As [`Self::close`], for one that came with a FORK event.
    pub fn close_of_child(self) {
        self.close();
        reserve_descriptors();
    }

    fn raw(self) -> usize {
        usize::try_from(self.fd).unwrap_or(usize::MAX)
    }

    fn ioctl<const N: usize>(self, request: usize, arg: &mut [u64; N]) -> Result<usize, Errno> {
        // SAFETY: `arg` has the layout and size the request number encodes.
        unsafe {
            K::call(
                nr::IOCTL,
                [self.raw(), request, arg.as_mut_ptr() as usize, 0, 0, 0],
            )
        }
    }

    /// Registers `start .. start + len` for missing pages.
    ///
    /// # Errors
    /// `INVAL` where a mapping cannot be registered, `NOMEM` at the limit of
    /// mappings, `BUSY` where another descriptor has it.
    pub fn register(self, start: usize, len: usize) -> Result<(), Errno> {
        self.register_with(start, len, REGISTER_MODE_MISSING)
    }

    /// As [`Self::register`], for pages that may be write-protected too.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn register_protectable(self, start: usize, len: usize) -> Result<(), Errno> {
        self.register_with(start, len, REGISTER_MODE_MISSING | REGISTER_MODE_WP)
    }

    fn register_with(self, start: usize, len: usize, mode: u64) -> Result<(), Errno> {
        let mut arg = [start as u64, len as u64, mode, 0];
        self.ioctl(IOC_REGISTER, &mut arg).map(drop)
    }

    /// Ends the registration of a range.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn unregister(self, start: usize, len: usize) -> Result<(), Errno> {
        self.ioctl(IOC_UNREGISTER, &mut [start as u64, len as u64])
            .map(drop)
    }

    /// Wakes threads that wait for pages in a range.
    pub fn wake(self, start: usize, len: usize) {
        let _ = self.ioctl(IOC_WAKE, &mut [start as u64, len as u64]);
    }

    /// Moves pages from `from` to `to` without copying and wakes the waiters.
    /// The report is the kernel's: see [`crate::moves`].
    #[must_use]
    pub(crate) fn move_pages(self, to: usize, from: usize, len: usize) -> Progress {
        let mut arg = [to as u64, from as u64, len as u64, 0, 0];
        let result = self.ioctl(IOC_MOVE, &mut arg);
        Progress::from_ioctl(result, arg[4], len)
    }

    /// Copies pages to `to`, which must be absent, and wakes the waiters.
    #[must_use]
    pub fn copy_pages(self, to: usize, from: usize, len: usize) -> Progress {
        self.copy_with(to, from, len, 0)
    }

    /// As [`Self::copy_pages`]; who writes to them faults again.
    #[must_use]
    pub fn copy_pages_protected(self, to: usize, from: usize, len: usize) -> Progress {
        self.copy_with(to, from, len, COPY_MODE_WP)
    }

    /// Has who writes to pages fault, of those that are there: absent ones are reported as before.
    ///
    /// # Errors
    /// `NOENT` where some of it is not registered ([`Self::register_protectable`]), `AGAIN` while an event is
    /// in flight.
    pub fn protect(self, start: usize, len: usize) -> Result<(), Errno> {
        self.ioctl(IOC_WRITEPROTECT, &mut [start as u64, len as u64, MODE_WP])
            .map(drop)
    }

    /// Lets pages be written to, and wakes who waits for that.
    ///
    /// # Errors
    /// `NOENT` where some of it is not registered, `AGAIN` while an event is in flight.
    pub fn unprotect(self, start: usize, len: usize) -> Result<(), Errno> {
        self.ioctl(IOC_WRITEPROTECT, &mut [start as u64, len as u64, 0])
            .map(drop)
    }

    fn copy_with(self, to: usize, from: usize, len: usize, mode: u64) -> Progress {
        let mut arg = [to as u64, from as u64, len as u64, mode, 0];
        let result = self.ioctl(IOC_COPY, &mut arg);
        Progress::from_ioctl(result, arg[4], len)
    }

    /// Whether the page at `address` lies in a range registered with
    /// userfaultfd, in the process that this descriptor is for. Changes
    /// nothing: CONTINUE is for shared memory, and refused for what we manage
    /// after the registration has been looked up.
    ///
    /// Either answer is of a moment at which no event was in flight, as long as nobody
    /// reads the descriptor meanwhile.
    ///
    /// # Errors
    /// `AGAIN` while an event of that process is in flight, `SRCH` when it is
    /// gone.
    pub fn is_registered(self, address: usize) -> Result<bool, Errno> {
        let ask = || match self.ioctl(IOC_CONTINUE, &mut [address as u64, 4096, 0, 0]) {
            Err(errno @ (Errno::AGAIN | Errno::SRCH)) => Err(errno),
            Err(Errno::NOENT) => Ok(false),
            _ => Ok(true),
        };
        // The kernel looks for events, then for the mapping, and only where there is one
        // for events again. A mapping that leaves between the first two is "not there".
        if ask()? { Ok(true) } else { ask() }
    }

    /// Whether no event is in flight: every change of the address space that
    /// sends one has had it read. `elsewhere` is a page of private memory that is
    /// not registered with this descriptor. Needs no lock of the address space if there is
    /// a page in that mapping already.
    #[must_use]
    pub fn is_quiet(self, elsewhere: usize) -> bool {
        let asked = self.ioctl(IOC_CONTINUE, &mut [elsewhere as u64, 4096, 0, 0]);
        asked != Err(Errno::AGAIN)
    }

    /// Reads waiting messages without blocking; returns how many.
    ///
    /// # Errors
    /// Anything but "nothing there".
    pub fn read(self, into: &mut [RawMessage]) -> Result<usize, Errno> {
        let bytes = size_of_val(into);
        let mut read = || {
            // SAFETY: the kernel writes at most `bytes` into the slice.
            unsafe {
                K::call(
                    nr::READ,
                    [self.raw(), into.as_mut_ptr() as usize, bytes, 0, 0, 0],
                )
            }
        };
        // A FORK event comes with a descriptor; without room for one it stays
        // where it is.
        let mut got = read();
        while got == Err(Errno::MFILE) && give_from_reserve() {
            got = read();
        }
        if got == Err(Errno::MFILE) {
            got = with_descriptors(read);
        }
        match got {
            Ok(bytes) => Ok(bytes / size_of::<RawMessage>()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(other) => Err(other),
        }
    }

    /// Sleeps until a message waits, `timeout_ns` at most. False on timeout.
    #[must_use]
    pub fn wait(self, timeout_ns: Option<u64>) -> bool {
        #[repr(C)]
        struct PollFd {
            fd: i32,
            events: i16,
            revents: i16,
        }
        let mut poll = PollFd {
            fd: self.fd,
            events: 1,
            revents: 0,
        };
        let spec = timeout_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
        let spec_ptr = spec.as_ref().map_or(0, |s| s.as_ptr() as usize);
        // SAFETY: one pollfd and a timespec that outlive the call; no mask.
        let got = unsafe { K::call(nr::PPOLL, [(&raw mut poll) as usize, 1, spec_ptr, 0, 8, 0]) };
        matches!(got, Ok(count) if count > 0)
    }
}

impl Progress {
    /// The kernel reports bytes done (or -errno) in a field of the argument;
    /// a short result is an EAGAIN with a positive field.
    fn from_ioctl(result: Result<usize, Errno>, field: u64, len: usize) -> Self {
        let field = field.cast_signed();
        match result {
            Ok(_) => Self {
                done: len,
                stopped: None,
            },
            Err(errno) if field > 0 => {
                let done = usize::try_from(field).unwrap_or(0).min(len);
                Self {
                    done,
                    stopped: Some(errno),
                }
            }
            Err(errno) => Self {
                done: 0,
                stopped: Some(errno),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn iowr(size: usize, number: usize) -> usize {
        3 << 30 | size << 16 | 0xAA << 8 | number
    }

    #[test]
    fn requests_encode_their_argument_sizes() {
        assert_eq!(IOC_API, iowr(24, 0x3f));
        assert_eq!(IOC_REGISTER, iowr(32, 0));
        assert_eq!(IOC_COPY, iowr(40, 3));
        assert_eq!(IOC_MOVE, iowr(40, 5));
        assert_eq!(IOC_CONTINUE, iowr(32, 7));
        assert_eq!(IOC_WRITEPROTECT, iowr(24, 6));
        assert_eq!(IOC_WAKE, 2 << 30 | 16 << 16 | 0xAA << 8 | 2);
        assert_eq!(size_of::<RawMessage>(), 32);
    }

    #[test]
    fn messages_decode() {
        let fault = RawMessage {
            event: 0x12,
            _reserved: [0; 7],
            arg: [1, 0x7000_1000, 0xffff_ffff_0000_0007],
        };
        assert_eq!(
            fault.decode(),
            Some(Message::Fault {
                address: 0x7000_1000,
                write: true,
                thread: 7,
            })
        );
        let remap = RawMessage {
            event: 0x14,
            _reserved: [0; 7],
            arg: [1, 2, 3],
        };
        assert_eq!(
            remap.decode(),
            Some(Message::Remap {
                from: 1,
                to: 2,
                len: 3
            })
        );
        assert_eq!(
            RawMessage {
                event: 0x77,
                ..fault
            }
            .decode(),
            None
        );
    }
}
