//! A panic in a manager thread: one line, and the process ends.

use core::fmt::Write;
use core::panic::PanicInfo;
use zfolio_runtime::fatal::{EXIT_FAILED, Line};

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let mut line = Line::default();
    let _ = writeln!(line, "zfolio: internal error, process ended: {info}");
    zfolio_sys::process::say(line.as_str());
    zfolio_sys::process::exit_now(EXIT_FAILED)
}

// Precompiled parts of the standard library name this symbol in their unwind
// tables; with panic = "abort" nobody calls it. Hidden, so that a program with
// a Rust runtime of its own keeps its own.
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    "ud2",
);
