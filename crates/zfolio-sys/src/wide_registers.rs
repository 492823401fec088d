//! The vector registers beyond their first 128 bits, kept as the program has them.
//!
//! What is compiled here uses the lower halves of sixteen vector registers, which who enters from a
//! program's system call saves ([in-thread](../../../docs/in-thread.md)), and never the rest: no instruction of ours
//! writes there. Some of what is linked in chooses wider instructions when it runs. It is called in
//! [`keeping`], which saves the rest and gives it back: to the program a system call changes none of it.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, Ordering};

/// Components of the processor's state (Intel SDM volume 1, 13.1): the second halves of the first
/// sixteen registers, the masks, the rest of those, and the other sixteen.
const COMPONENTS: [u32; 4] = [2, 5, 6, 7];
/// Bytes of the area that they are saved in; they end far before (2688 at most on processors there are).
const AREA: usize = 4096;
/// Not yet known, which components there are.
const UNKNOWN: u64 = u64::MAX;

/// As XSAVE writes it: the state of 1987, the header of 64 bytes, the components. It reads the header alone.
#[repr(C, align(64))]
struct Area {
    legacy: MaybeUninit<[u8; 512]>,
    header: [u64; 8],
    components: MaybeUninit<[u8; AREA - 512 - 64]>,
}

/// Runs `f`, which may use all vector registers there are, and gives the caller the wide ones back as
/// they were.
///
/// # Panics
/// Where the processor wants more room for them than there is.
pub fn keeping<R>(f: impl FnOnce() -> R) -> R {
    let components = components();
    if components == 0 {
        return f();
    }
    let mut area = Area {
        legacy: MaybeUninit::uninit(),
        header: [0; 8],
        components: MaybeUninit::uninit(),
    };
    // SAFETY: writes no further than the components end, which fit, and the header.
    unsafe { save(&mut area, components) };
    let result = f();
    // SAFETY: what `save` has written, with a header that was zero before.
    unsafe { restore(&area, components) };
    result
}

/// Those that the processor has and the kernel has switched on, a bit each.
fn components() -> u64 {
    static KNOWN: AtomicU64 = AtomicU64::new(UNKNOWN);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let found = find();
    KNOWN.store(found, Ordering::Relaxed);
    found
}

#[cfg(not(miri))]
fn find() -> u64 {
    const XSAVE_AND_AVX: u32 = 0b11 << 27;
    if __cpuid(1).ecx & XSAVE_AND_AVX != XSAVE_AND_AVX {
        return 0;
    }
    // SAFETY: the processor has the instruction, and the kernel has switched it on.
    let on = unsafe { enabled() };
    let all = COMPONENTS.into_iter().filter(|of| on & 1 << of != 0);
    all.fold(0, |all, of| {
        let place = __cpuid_count(0xd, of);
        let end = place.eax as usize + place.ebx as usize;
        assert!(end <= AREA, "component {of} ends at {end}");
        all | 1 << of
    })
}

/// (What is interpreted has no such registers.)
#[cfg(miri)]
fn find() -> u64 {
    0
}

#[target_feature(enable = "xsave")]
unsafe fn enabled() -> u64 {
    // SAFETY: by contract.
    unsafe { _xgetbv(0) }
}

/// # Safety
/// `components` end within the area.
unsafe fn save(area: &mut Area, components: u64) {
    let [low, high] = halves(components);
    // SAFETY: by contract; it is aligned.
    unsafe {
        asm!(
            "xsave64 [{at}]",
            at = in(reg) area,
            in("eax") low,
            in("edx") high,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// The area is as [`save`] has left it, of the same components.
unsafe fn restore(area: &Area, components: u64) {
    let [low, high] = halves(components);
    // SAFETY: by contract. No code of Rust's relies on what is in the registers that this changes: it was there before.
    unsafe {
        asm!(
            "xrstor64 [{at}]",
            at = in(reg) area,
            in("eax") low,
            in("edx") high,
            options(nostack, preserves_flags, readonly),
        );
    }
}

const fn halves(of: u64) -> [u32; 2] {
    #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
    [of as u32, (of >> 32) as u32]
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// The second halves of two registers, which had 3, 4 and 7, 8, after a call of `function`.
    fn after(function: extern "C" fn()) -> [u64; 4] {
        let before = [1_u64, 2, 3, 4, 5, 6, 7, 8];
        let mut after = [0_u64; 8];
        // SAFETY: the processor has them; loads and stores of what is there.
        unsafe {
            asm!(
                "vmovdqu ymm6, [r12]",
                "vmovdqu ymm7, [r12 + 32]",
                "call {function}",
                "vmovdqu [r13], ymm6",
                "vmovdqu [r13 + 32], ymm7",
                function = in(reg) function,
                in("r12") &before,
                in("r13") &mut after,
                clobber_abi("C"),
            );
        }
        [after[2], after[3], after[6], after[7]]
    }

    extern "C" fn clears() {
        // SAFETY: called only where there are such registers.
        unsafe { asm!("vzeroupper") };
    }

    extern "C" fn clears_and_keeps() {
        keeping(|| clears());
    }

    #[test]
    fn what_is_beyond_128_bits_is_as_it_was() {
        if components() != 0 {
            assert_eq!(after(clears), [0; 4]);
            assert_eq!(after(clears_and_keeps), [3, 4, 7, 8]);
        }
    }

    #[test]
    fn results_pass() {
        assert_eq!(keeping(|| 7), 7);
        assert_eq!(components() & !0b1110_0100, 0);
    }
}
