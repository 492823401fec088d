//! Stubs: the code that a site jumps to. Each does what the site's instructions did, and goes
//! to the entry with two addresses: in rcx where the call returns by the program's own text,
//! which is what unwinders see, and in r11 where it really goes on.

use super::forms::{Form, JUMP, MOST_MOVED, Moved, SYSCALL};
use crate::program_memory;
use crate::raw::{self, PAGE, nr};
use core::ops::Range;
use core::ptr;
use zfolio_sys::arena::{reserve_private, unmap};
use zfolio_sys::syscall::Errno;

/// Bytes of a stub. The first one's place is the entry's address.
const STUB: usize = 32;
/// In a stub of the form *after*: where the call goes on.
const GOES_ON: usize = 20;
const READ_EXECUTE: usize = 5;
const ALL: usize = 7;

/// In a stub of the form *after*, seen from where the call goes on: the four bytes that say how far
/// the place that the call returns to by the program's own text is, and from where.
pub(crate) const BACK_AT: usize = GOES_ON - 10;
pub(crate) const BACK_FROM: usize = GOES_ON - 14;

/// Bytes reserved for stubs at a place.
const AREA: usize = 256 << 10;
/// Bytes from a text to the stubs below it: the first distance that is free.
const BELOW: [usize; 4] = [1 << 20, 2 << 20, 64 << 20, 512 << 20];
/// Most bytes between a site and its stub.
const REACH: usize = 1 << 30;

/// The stubs made so far: at most two places for them, since a jump reaches 2 GiB.
pub(crate) struct Stubs {
    areas: [Area; 2],
    /// Where they go.
    entry: usize,
    /// Something was refused: no more is made.
    refused: bool,
}

/// A place for stubs.
struct Area {
    memory: Range<usize>,
    /// Places of stubs that are taken. The first one holds the entry's address.
    made: usize,
}

impl Stubs {
    pub(crate) const NONE: Self = Self {
        areas: [const {
            Area {
                memory: 0..0,
                made: 1,
            }
        }; 2],
        entry: 0,
        refused: false,
    };

    /// For stubs that go to `entry`: reserves a place among the libraries, or right below them. So before anything else
    /// of ours is mapped there: that may be gigabytes, behind which no jump reaches.
    pub(crate) fn reserve(&mut self, entry: usize) -> Result<(), Errno> {
        self.entry = entry;
        self.areas[0].memory = reserve_private(AREA, c"zfolio stubs")?;
        Ok(())
    }

    /// Reserves another place near the program's own text, which starts at `program`, where it is far from the
    /// libraries. Where that is refused, calls from there keep their signal.
    pub(crate) fn reserve_near(&mut self, program: usize) {
        if program.abs_diff(self.areas[0].memory.start) <= REACH {
            return;
        }
        let places = BELOW.iter().filter_map(|below| program.checked_sub(*below));
        let reserved = places
            .filter(|place| *place >= AREA)
            .find_map(|place| reserve_at(place & !(PAGE - 1)));
        if let Some(memory) = reserved {
            self.areas[1].memory = memory;
        }
    }

    /// Makes a stub for the site whose call returns to `back`, and has the site jump to it.
    /// `aligned`: by one store of eight bytes, since others may run it meanwhile. `None` if
    /// the site stays as it was.
    pub(crate) fn redirect(
        &mut self,
        (form, number, back): (Form, usize, usize),
        aligned: bool,
    ) -> Option<Stub> {
        let site = match form {
            Form::Before => back - SYSCALL - JUMP,
            Form::After(_) => back - SYSCALL,
        };
        let is_near = |area: &&mut Area| area.memory.start.abs_diff(site) <= REACH;
        let area = self.areas.iter_mut().find(is_near)?;
        let (memory, stub) = (&area.memory, area.memory.start + area.made * STUB);
        if self.refused || stub + STUB > memory.end || aligned && site % 8 + JUMP > 8 {
            return None;
        }
        let jump = jump(site, stub)?;
        let mut code = [0x90_u8; STUB];
        assemble(&mut code, stub, memory.start, (form, number, back))?;
        let entry = self.entry.to_le_bytes();
        let is_first = area.made == 1;
        let done = (!is_first || write(memory.start, &entry, false))
            && write(stub, &code, false)
            && write(site, &jump, aligned);
        if !done {
            self.refused = true;
            return None;
        }
        area.made += 1;
        Some(Stub(stub))
    }

    /// The stub that `bytes` at `site` jump to, if they do.
    pub(crate) fn target(&self, site: usize, bytes: [u8; JUMP]) -> Option<Stub> {
        let [0xe9, distance @ ..] = bytes else {
            return None;
        };
        let distance = i32::from_le_bytes(distance) as isize;
        let stub = (site + JUMP).wrapping_add_signed(distance);
        let is_one = |area: &Area| {
            let made = area.memory.start + STUB..area.memory.start + area.made * STUB;
            made.contains(&stub) && (stub - area.memory.start).is_multiple_of(STUB)
        };
        self.areas.iter().any(is_one).then_some(Stub(stub))
    }
}

/// Reserves memory for stubs at `place`, if nothing is there.
fn reserve_at(place: usize) -> Option<Range<usize>> {
    const PRIVATE_ANONYMOUS_NORESERVE_THERE: usize = 0x2 | 0x20 | 0x4000 | 0x10_0000;
    // SAFETY: a fresh mapping, where there is none.
    let at = unsafe {
        let flags = PRIVATE_ANONYMOUS_NORESERVE_THERE;
        raw::call(nr::MMAP, [place, AREA, 3, flags, usize::MAX, 0])
    };
    if raw::is_error(at) {
        return None;
    }
    let range = at.cast_unsigned()..at.cast_unsigned() + AREA;
    if range.start != place {
        // (A kernel that takes the place for a hint.)
        unmap(range);
        return None;
    }
    Some(range)
}

/// Where a stub lies.
pub(crate) struct Stub(usize);

impl Stub {
    /// Where calls by a stub of the form *after* go on.
    pub(crate) fn goes_on(&self) -> usize {
        self.0 + GOES_ON
    }
}

/// The jump from `from` to `to`; `None` if it is too far.
fn jump(from: usize, to: usize) -> Option<[u8; JUMP]> {
    let mut jump = [0xe9; JUMP];
    jump[1..].copy_from_slice(&near(from + JUMP, to)?);
    Some(jump)
}

/// The distance between two addresses, as instructions have it.
fn near(from: usize, to: usize) -> Option<[u8; 4]> {
    let distance = i32::try_from(to.wrapping_sub(from).cast_signed()).ok()?;
    Some(distance.to_le_bytes())
}

/// ```text
/// before:  mov $number, %eax           after:  lea goes_on, %r11
///          lea back, %rcx                      lea back, %rcx
///          mov %rcx, %r11                      jmp *entry
///          jmp *entry                 goes_on: what followed the syscall
///                                              jmp to what follows that
/// ```
fn assemble(
    code: &mut [u8; STUB],
    at: usize,
    entry: usize,
    (form, number, back): (Form, usize, usize),
) -> Option<()> {
    const TO_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];
    const TO_R11: [u8; 3] = [0x4c, 0x8d, 0x1d];
    let mut end = 0;
    let mut put = |bytes: &[u8]| {
        code[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    match form {
        Form::Before => {
            put(&[0xb8]);
            put(&u32::try_from(number).ok()?.to_le_bytes());
            put(&TO_RCX);
            put(&near(at + 12, back)?);
            put(&[0x49, 0x89, 0xcb]);
            put(&[0xff, 0x25]);
            put(&near(at + 21, entry)?);
        }
        Form::After(Moved { len, .. }) => {
            put(&TO_R11);
            put(&near(at + 7, at + GOES_ON)?);
            put(&TO_RCX);
            put(&near(at + 14, back)?);
            put(&[0xff, 0x25]);
            put(&near(at + GOES_ON, entry)?);
            let mut followed = [0; MOST_MOVED];
            if !program_memory::read_bytes(back, &mut followed[..len]) {
                return None;
            }
            put(&followed[..len]);
            put(&jump(at + GOES_ON + len, back + len)?);
        }
    }
    Some(())
}

const _: () = assert!(GOES_ON + MOST_MOVED + JUMP <= STUB);

/// Changes what may be done to the pages of `range`.
fn protect(range: &Range<usize>, as_: usize) -> bool {
    let start = range.start & !(PAGE - 1);
    let len = range.end.next_multiple_of(PAGE) - start;
    raw::own(nr::MPROTECT, [start, len, as_]) == 0
}

/// Writes code at `at`. Where others may run the bytes that change they are `aligned`: within
/// eight that are stored at once.
fn write(at: usize, code: &[u8], aligned: bool) -> bool {
    let range = at..at + code.len();
    // (Others may run what lies beside it: it stays executable.)
    if !protect(&range, ALL) {
        return false;
    }
    if aligned {
        use core::sync::atomic::{AtomicU64, Ordering};
        let word = at & !7;
        // SAFETY: eight bytes of mapped text, writable now.
        let word_at = unsafe { &*(word as *const AtomicU64) };
        let mut bytes = word_at.load(Ordering::Relaxed).to_le_bytes();
        bytes[at - word..at - word + code.len()].copy_from_slice(code);
        word_at.store(u64::from_le_bytes(bytes), Ordering::SeqCst);
    } else {
        // SAFETY: writable now; memory of stubs that nobody runs yet, or a site while this is
        // the one thread.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
    }
    protect(&range, READ_EXECUTE)
}
