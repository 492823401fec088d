//! What libraries loaded after this one define under names that it defines too: its own
//! function is called first, and goes on to theirs.
//!
//! Found by reading the tables of the loaded objects, as a loader does. (What libc offers for
//! this is in a library of its own up to glibc 2.33, which a program need not have, and may not
//! be called everywhere.)

use crate::image;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

core::arch::global_asm!(
    ".weak dl_iterate_phdr",
    ".hidden zfolio_iterate",
    "zfolio_iterate:",
    "mov rax, [rip + dl_iterate_phdr@GOTPCREL]",
    "ret",
);

unsafe extern "C" {
    fn zfolio_iterate() -> Option<Iterate>;
}

/// dl_iterate_phdr: ends with what the function returned, when that is not 0.
type Iterate = unsafe extern "C" fn(with: With, data: *mut c_void) -> c_int;
type With = unsafe extern "C" fn(object: *const Object, size: usize, data: *mut c_void) -> c_int;

/// The head of `struct dl_phdr_info`.
#[repr(C)]
struct Object {
    base: usize,
    _name: *const c_char,
    segments: *const image::Segment,
    count: u16,
}

/// An entry of a dynamic section.
#[repr(C)]
struct Dynamic {
    tag: usize,
    value: usize,
}

/// A symbol of 64 bits.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    _other: u8,
    section: u16,
    value: usize,
    _size: usize,
}

const PT_DYNAMIC: u32 = 2;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
/// Kind of a symbol: a function.
const STT_FUNC: u8 = 2;

/// A function behind ours, by its name.
pub(crate) struct Behind {
    name: &'static CStr,
    found: AtomicUsize,
}

/// A search under way.
struct Search {
    name: &'static CStr,
    /// Whether this library was passed.
    passed: bool,
    found: usize,
}

impl Behind {
    /// Where in it its address is, 0 before it was found: for code without a stack frame.
    pub(crate) const FOUND: usize = core::mem::offset_of!(Self, found);

    pub(crate) const fn new(name: &'static CStr) -> Self {
        let found = AtomicUsize::new(0);
        Self { name, found }
    }

    /// Its address; 0: no library behind ours has it.
    pub(crate) fn find(&self) -> usize {
        let known = self.found.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let mut search = Search {
            name: self.name,
            passed: false,
            found: 0,
        };
        // SAFETY: reads an entry of the library's own offset table; what it names calls `look`
        // with each object, while none of them is unloaded.
        unsafe {
            if let Some(iterate) = zfolio_iterate() {
                iterate(look, (&raw mut search).cast());
            }
        }
        self.found.store(search.found, Ordering::Relaxed);
        search.found
    }
}

/// Looks into one object, once this library was passed; not 0 when it is found.
unsafe extern "C" fn look(object: *const Object, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: as `find` passed it, and as the loader describes its object.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
    if object.base == image::range().start {
        search.passed = true;
    } else if search.passed {
        // SAFETY: an object that is loaded.
        search.found = unsafe { defined(object, search.name) }.unwrap_or(0);
    }
    c_int::from(search.found != 0)
}

/// Address of the function of a name in an object.
///
/// # Safety
/// The object is loaded.
unsafe fn defined(object: &Object, name: &CStr) -> Option<usize> {
    // SAFETY: the loader's own table of as many segments.
    let segments =
        unsafe { core::slice::from_raw_parts(object.segments, usize::from(object.count)) };
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let mut entry = (object.base + dynamic.address) as *const Dynamic;
    let (mut names, mut symbols, mut gnu, mut old) = (0, 0, 0, 0);
    // SAFETY: the section ends with an entry of tag 0.
    while let Dynamic { tag: 1.., value } = unsafe { &*entry } {
        // (Some loaders leave offsets here.)
        let at = if *value < object.base {
            object.base + value
        } else {
            *value
        };
        // SAFETY: as above.
        match unsafe { (*entry).tag } {
            DT_STRTAB => names = at,
            DT_SYMTAB => symbols = at,
            DT_GNU_HASH => gnu = at,
            DT_HASH => old = at,
            _ => {}
        }
        // SAFETY: not past the last.
        entry = unsafe { entry.add(1) };
    }
    if names == 0 || symbols == 0 {
        return None;
    }
    let is_it = |index: u32| {
        // SAFETY: an index of the object's own hash table, into its tables of symbols and names.
        unsafe {
            let symbol = &*(symbols as *const Symbol).add(index as usize);
            (symbol.section != 0
                && symbol.info & 0xf == STT_FUNC
                && CStr::from_ptr((names + symbol.name as usize) as *const c_char) == name)
                .then_some(object.base + symbol.value)
        }
    };
    // SAFETY: the object's hash tables.
    unsafe {
        if gnu != 0 {
            by_gnu_hash(gnu, name, is_it)
        } else if old != 0 {
            // Buckets, symbols.
            (0..*(old as *const u32).add(1)).find_map(is_it)
        } else {
            None
        }
    }
}

/// The first symbol that `is_it` and that the table at `table` has for `name`.
///
/// # Safety
/// The table is one.
unsafe fn by_gnu_hash(
    table: usize,
    name: &CStr,
    is_it: impl Fn(u32) -> Option<usize>,
) -> Option<usize> {
    let hash = name.to_bytes().iter().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    });
    // Buckets, index of the first symbol, words of 64 bits that follow the head, a shift.
    let word = |index: usize| {
        // SAFETY: within the table, as its head and its chains say.
        unsafe { *(table as *const u32).add(index) }
    };
    let (count, first, filter) = (word(0), word(1), word(2) as usize);
    let buckets = 4 + 2 * filter;
    let chains = buckets + count as usize;
    let mut index = word(buckets + hash.checked_rem(count)? as usize);
    if index < first {
        return None;
    }
    loop {
        // (The lowest bit says that the chain ends.)
        let chained = word(chains + (index - first) as usize);
        let found = (chained | 1 == hash | 1).then(|| is_it(index)).flatten();
        if found.is_some() || chained & 1 == 1 {
            return found;
        }
        index += 1;
    }
}
