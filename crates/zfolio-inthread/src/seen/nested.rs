//! Calls of which one argument says what another points to: ioctl, socket options, semctl.

use super::pinning::{END, GUESS, Keeper};
use crate::program_memory;
use crate::raw::{self, PAGE, SHIFT};

/// ioctls with an array behind their structure, and the bytes of an element.
const FS_IOC_FIEMAP: usize = 0xc020_660b;
const EXTENT: usize = 56;
const FIDEDUPERANGE: usize = 0xc018_9436;
const DEDUPE: usize = 32;
/// ioctls with other buffers named in their structure.
const PROCMAP_QUERY: usize = 0xc068_6611;
const PAGEMAP_SCAN: usize = 0xc060_6610;
const REGION: usize = 24;
const FS_IOC_GETFSMAP: usize = 0xc0c0_583b;
const FSMAP: usize = 64;
const SG_IO: usize = 0x2285;
const SIOCGIFCONF: usize = 0x8912;
/// Words of a structure that are looked at for pointers, where it is not known.
const NESTED: usize = 16;
/// prctl.
const PR_SET_MM: usize = 35;
const PR_SET_MM_AUXV: usize = 12;
const PR_SET_MM_MAP: usize = 14;
const PR_GET_AUXV: usize = 0x4155_5856;
/// In a `struct sigevent`; and the bytes that the kernel reads behind its value.
const SIGEV_THREAD: u64 = 2;
const COOKIE: usize = 32;
/// Options of sockets that have a program of the packet filter's: instructions of 8 bytes.
const SOL_SOCKET: usize = 1;
const ATTACH_FILTER: usize = 26;
const ATTACH_REUSEPORT_FILTER: usize = 51;
const SOL_PACKET: usize = 263;
const FANOUT_DATA: usize = 22;
/// Bytes of a `struct sock_fprog`.
const PROGRAM: usize = 16;
const INSTRUCTION: usize = 8;
/// ptrace by a vector.
const GETREGSET: usize = 0x4204;
const SETREGSET: usize = 0x4205;
/// ptrace with an array of `siginfo_t`, as many as the structure at its third argument says.
const PEEKSIGINFO: usize = 0x4209;
const SIGINFO: usize = 128;
/// ptrace that gives a program of instructions, which are so many at most.
const SECCOMP_GET_FILTER: usize = 0x420c;
const INSTRUCTIONS: usize = 4096;
/// getsockopt that names other buffers in its structure.
const IPPROTO_TCP: usize = 6;
const ZEROCOPY_RECEIVE: usize = 35;
/// semctl for all semaphores of a set, of which there are so many at most.
const GETALL: usize = 13;
const SETALL: usize = 17;
const SEMAPHORES: usize = 32_000;

impl Keeper<'_> {
    /// ioctl: its number says how much it points to, mostly.
    pub(crate) fn keep_for_device(&self, request: usize, address: usize) {
        let len = request >> 16 & 0x3fff;
        self.keep(address, len.max(GUESS));
        let word = |at: usize| {
            let word = program_memory::read::<u64>(address.wrapping_add(at)).unwrap_or(0);
            usize::try_from(word).unwrap_or(0)
        };
        let count =
            |at: usize| program_memory::read::<u32>(address.wrapping_add(at)).unwrap_or(0) as usize;
        match request & 0xffff_ffff {
            FS_IOC_FIEMAP => self.keep(address.wrapping_add(len), count(24) * EXTENT),
            FIDEDUPERANGE => self.keep(address.wrapping_add(len), (count(16) & 0xffff) * DEDUPE),
            FS_IOC_GETFSMAP => self.keep(address.wrapping_add(len), count(8) * FSMAP),
            PROCMAP_QUERY => {
                self.keep(word(88), count(80));
                self.keep(word(96), count(84));
            }
            PAGEMAP_SCAN => self.keep(word(40), word(48).min(END).saturating_mul(REGION)),
            SIOCGIFCONF => self.keep(word(8), count(0)),
            SG_IO => {
                self.keep_nested(address);
                self.keep(word(16), count(12));
            }
            // Some name a buffer in their structure.
            _ => self.keep_nested(address),
        }
    }

    /// Keeps a page behind each of the first words at `address` that could be a pointer to
    /// managed memory.
    fn keep_nested(&self, address: usize) {
        // (Small numbers are no addresses, but where page 0 is mapped.)
        if address >= END || address < PAGE && !raw::is_mapped(&(0..PAGE)) {
            return;
        }
        for at in 0..NESTED {
            let Some(word) = program_memory::read::<u64>(address.wrapping_add(at * 8)) else {
                return;
            };
            let word = usize::try_from(word).unwrap_or(0);
            let last = word.saturating_add(PAGE).min(END - 1);
            let words = &self.state.words;
            if word < END && (words.is_known(word >> SHIFT) || words.is_known(last >> SHIFT)) {
                self.keep(word, PAGE);
            }
        }
    }

    /// prctl.
    pub(crate) fn keep_for_process(&self, args: &[usize; 6]) {
        self.keep_guesses(args);
        match *args {
            [PR_GET_AUXV, at, len, ..] | [PR_SET_MM, PR_SET_MM_AUXV, at, len, ..] => {
                self.keep(at, len.min(PAGE));
            }
            [PR_SET_MM, PR_SET_MM_MAP, at, ..] => {
                // Eleven addresses, the vector's, and its size.
                if let Some([vector, len]) = program_memory::read::<[u64; 2]>(at.wrapping_add(88)) {
                    let len = usize::try_from(len & 0xffff_ffff).unwrap_or(0);
                    self.keep(usize::try_from(vector).unwrap_or(0), len.min(PAGE));
                }
            }
            _ => {}
        }
    }

    /// mq_notify: the value of an event for a thread is the address of a cookie.
    pub(crate) fn keep_notification(&self, address: usize) {
        self.keep(address, 64);
        if let Some([value, kind]) = program_memory::read::<[u64; 2]>(address)
            && kind >> 32 == SIGEV_THREAD
        {
            self.keep(usize::try_from(value).unwrap_or(0), COOKIE);
        }
    }

    /// setsockopt.
    pub(crate) fn keep_option(&self, args: &[usize; 6]) {
        let [_, level, option, value, len, _] = *args;
        self.keep(value, len & 0xffff_ffff);
        let is_filter = match level {
            SOL_SOCKET => matches!(option, ATTACH_FILTER | ATTACH_REUSEPORT_FILTER),
            SOL_PACKET => option == FANOUT_DATA && len & 0xffff_ffff == PROGRAM,
            _ => false,
        };
        if is_filter && let Some([count, at]) = program_memory::read::<[u64; 2]>(value) {
            let count = usize::try_from(count & 0xffff).unwrap_or(0);
            self.keep(usize::try_from(at).unwrap_or(0), count * INSTRUCTION);
        }
    }

    /// getsockopt: the length is told by bytes, of a filter by instructions.
    pub(crate) fn keep_option_asked(&self, args: &[usize; 6]) {
        let [_, level, option, value, len_at, _] = *args;
        self.keep(len_at, 4);
        let Some(len) = program_memory::read::<u32>(len_at) else {
            return;
        };
        let is_filter = level == SOL_SOCKET && option == ATTACH_FILTER;
        let unit = if is_filter { INSTRUCTION } else { 1 };
        self.keep(value, (len as usize).min(1 << 20) * unit);
        if level == IPPROTO_TCP && option == ZEROCOPY_RECEIVE {
            let word = |at: usize| {
                let is_there = at + 8 <= len as usize;
                let word = is_there.then(|| program_memory::read::<u64>(value.wrapping_add(at)));
                usize::try_from(word.flatten().unwrap_or(0)).unwrap_or(0)
            };
            // The buffer for what cannot be mapped, its length; control data, its length.
            self.keep(word(24), word(32) & 0x7fff_ffff);
            self.keep(word(40), word(48).min(1 << 20));
        }
    }

    /// The `struct xattr_args` of getxattrat and setxattrat: value, its length, flags.
    pub(crate) fn keep_attribute(&self, address: usize) {
        self.keep(address, 16);
        if let Some([value, rest]) = program_memory::read::<[u64; 2]>(address) {
            let len = usize::try_from(rest & 0xffff_ffff).unwrap_or(0);
            self.keep(usize::try_from(value).unwrap_or(0), len);
        }
    }

    /// ptrace: sets of registers, the largest of them by a vector.
    pub(crate) fn keep_traced(&self, args: &[usize; 6]) {
        match args[0] {
            PEEKSIGINFO => {
                self.keep(args[2], 16);
                let asked =
                    program_memory::read::<[u64; 2]>(args[2]).map_or(0, |asked| asked[1] >> 32);
                let count = usize::try_from(asked & 0x7fff_ffff).unwrap_or(0);
                self.keep(args[3], count.saturating_mul(SIGINFO));
            }
            SECCOMP_GET_FILTER => self.keep(args[3], INSTRUCTIONS * INSTRUCTION),
            _ => self.keep(args[3], 2 * PAGE),
        }
        if matches!(args[0], GETREGSET | SETREGSET) {
            self.keep_vectors(args[3], 1);
        }
    }

    /// semctl.
    pub(crate) fn keep_semaphores(&self, args: &[usize; 6]) {
        let all = matches!(args[2] & 0xff, GETALL | SETALL);
        self.keep(args[3], if all { SEMAPHORES * 2 } else { GUESS });
    }
}
