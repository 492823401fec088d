//! Sites of calls that become jumps: a call that dispatch stops costs a signal, one that
//! jumps to us a few instructions. [`super::forms`] says which, [`super::stubs`] writes it.
//!
//! Only text of files is rewritten that nobody changes or shares (`memory::texts`).
//!
//! - With one thread, when a call first comes through a site: no other thread can run the
//!   bytes that change.
//! - Before the second thread, all sites of which the bytes leave no doubt, in the texts that
//!   calls have come from.
//! - With several threads, a site whose five bytes lie within eight that one store changes.
//!   The others keep their signal.
//!
//! # Invariant
//! No call of a site that can take the form *after* ever returns to what follows its
//! `syscall`: it returns to the stub's copy. So a site takes it when the first call comes
//! through, or never: whatever keeps it from that (its bytes, its place, no room for stubs, a
//! refusal, several threads) does not pass. In the child of a fork, too, sites are treated as
//! with several threads once there were several.

use super::forms::{self, AROUND, Form, JUMP, MOST_MOVED, Moved, SYSCALL};
use super::stubs::Stubs;
use super::table::CALLS;
use crate::program_memory;
use crate::raw::{self, PAGE, nr};
use crate::state::State;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use zfolio_sys::lock::{Mutex, RawFutexMutex, RawMutex};
use zfolio_sys::syscall::Errno;

const POPULATE_READ: usize = 22;
/// Most bytes of a text in which all sites are looked for.
const MOST_SEARCHED: usize = 4 << 20;
/// Sites known not to take the form *after*; one a place, by address.
const DENIED: usize = 64;

static STUBS: Mutex<Stubs> = Mutex::from_raw(RawFutexMutex::INIT, Stubs::NONE);
/// There are several threads, or were in an ancestor.
static SEVERAL: AtomicBool = AtomicBool::new(false);
/// What lies around a site could not be looked at once: the form *after* is not taken again.
static BLIND: AtomicBool = AtomicBool::new(false);
static DENIALS: [AtomicUsize; DENIED] = [const { AtomicUsize::new(0) }; DENIED];

/// Has memory for stubs, which go to `entry`: the first that is reserved of ours.
///
/// # Errors
/// As the kernel refuses it.
pub(crate) fn reserve(entry: usize) -> Result<(), Errno> {
    STUBS.lock().reserve(entry)
}

/// And for those of the program's own text, which starts at `program`.
pub(crate) fn reserve_near(program: usize) {
    STUBS.lock().reserve_near(program);
}

/// A call has come from before `back`, by dispatch. Returns where it goes on. In a signal
/// handler, all signals blocked.
pub(crate) fn consider(state: &State, back: usize, number: usize) -> usize {
    if state.filtered.load(Ordering::Relaxed) != 0 {
        return back;
    }
    let Some(text) = state.texts.lock().note_call(back) else {
        return back;
    };
    let site = back - SYSCALL;
    // (What was just run can be read. A fault here would end the process.)
    let Some([0x0f, 0x05]) = read(site) else {
        // Another thread has been here first.
        let jump = read(site).unwrap_or([0; JUMP]);
        let stub = STUBS.lock().target(site, jump);
        return stub.map_or(back, |stub| stub.goes_on());
    };
    let aligned = SEVERAL.load(Ordering::Relaxed);
    match form_of(&text, site, number) {
        Some(Form::Before) => {
            let mut stubs = STUBS.lock();
            stubs.redirect((Form::Before, number, back), aligned);
            back
        }
        Some(form @ Form::After(moved)) if !aligned || site % 8 + JUMP <= 8 => {
            if is_before_done(&STUBS.lock(), &text, site) {
                return back;
            }
            let denial = &DENIALS[site % DENIED];
            if BLIND.load(Ordering::Relaxed) || denial.load(Ordering::Relaxed) == site {
                return back;
            }
            // Nobody unmaps what lies around the site.
            let core = state.core.lock();
            let window = around(&text, site);
            if !is_present(&window) {
                BLIND.store(true, Ordering::Relaxed);
                return back;
            }
            if has_jump_into(&window, back, moved) {
                denial.store(site, Ordering::Relaxed);
                return back;
            }
            let mut stubs = STUBS.lock();
            // Another thread may have been here first.
            let stub = match stubs.target(site, read(site).unwrap_or([0; JUMP])) {
                None => stubs.redirect((form, number, back), aligned),
                made => made,
            };
            drop(core);
            stub.map_or(back, |stub| stub.goes_on())
        }
        _ => back,
    }
}

fn read<const N: usize>(at: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    program_memory::read_bytes(at, &mut bytes).then_some(bytes)
}

/// Whether `range` is of a text, and of the page that `site` lies in, which was just run.
fn can_be_read(text: &Range<usize>, site: usize, range: Range<usize>) -> bool {
    let page = site & !(PAGE - 1);
    range.start >= page.max(text.start) && range.end <= (page + PAGE).min(text.end)
}

/// The form that a site could take by its own bytes; all of them of the page it lies in.
fn form_of(text: &Range<usize>, site: usize, number: usize) -> Option<Form> {
    let from = site.wrapping_sub(JUMP + 1);
    if can_be_read(text, site, from..site + SYSCALL)
        && number < CALLS
        && forms::is_before(&read(from)?, number)
    {
        return Some(Form::Before);
    }
    let end = site + SYSCALL + MOST_MOVED;
    if !can_be_read(text, site, site..end) {
        return None;
    }
    let [0x0f, 0x05, followed @ ..] = read::<{ SYSCALL + MOST_MOVED }>(site)? else {
        return None;
    };
    forms::moved(&followed).map(Form::After)
}

/// The addresses from which a site may be jumped into by what is looked at.
fn around(text: &Range<usize>, site: usize) -> Range<usize> {
    text.start.max(site.saturating_sub(AROUND))..text.end.min(site + AROUND)
}

/// Has the kernel map all pages of `range`; false where it cannot, or does not know how to.
fn is_present(range: &Range<usize>) -> bool {
    let start = range.start & !(PAGE - 1);
    let len = range.end.next_multiple_of(PAGE) - start;
    raw::own(nr::MADVISE, [start, len, POPULATE_READ]) == 0
}

/// Whether any jump of `window`, which is present, may lead to what would move from `back`.
fn has_jump_into(window: &Range<usize>, back: usize, moved: Moved) -> bool {
    let mut code = [0; 2 * AROUND];
    let code = &mut code[..window.len()];
    !program_memory::read_bytes(window.start, code)
        || forms::has_jump_into(code, window.start, back, moved)
}

/// Before there is a second thread: rewrites all sites of which the bytes leave no doubt. The
/// core lock is held, and this is the service stack.
pub(crate) fn before_second_thread(state: &State) {
    if SEVERAL.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut stubs = STUBS.lock();
    let mut from = 0;
    loop {
        let text = state.texts.lock().next_with_calls(from);
        let Some(text) = text else { break };
        from = text.end;
        if text.len() <= MOST_SEARCHED && is_present(&text) {
            rewrite_all(&mut stubs, &text);
        }
    }
}

/// All certain sites of a text, which is present.
fn rewrite_all(stubs: &mut Stubs, text: &Range<usize>) {
    let mut code = [0; PAGE];
    let mut at = text.start;
    while at < text.end {
        let code = &mut code[..(text.end - at).min(PAGE)];
        if !program_memory::read_bytes(at, code) {
            return;
        }
        for offset in forms::certain(code) {
            rewrite_certain(stubs, text, at + offset);
        }
        at += PAGE;
    }
}

fn rewrite_certain(stubs: &mut Stubs, text: &Range<usize>, site: usize) {
    // (Of no number: the form *before* is for those that were run.)
    let Some(form @ Form::After(moved)) = form_of(text, site, CALLS) else {
        return;
    };
    let back = site + SYSCALL;
    if !is_before_done(stubs, text, site) && !has_jump_into(&around(text, site), back, moved) {
        stubs.redirect((form, CALLS, back), false);
    }
}

/// Whether the mov before a site is a jump already: then calls return to what follows it. (It
/// may be jumped to from elsewhere, too.)
fn is_before_done(stubs: &Stubs, text: &Range<usize>, site: usize) -> bool {
    let from = site.wrapping_sub(JUMP);
    can_be_read(text, site, from..site)
        && read(from).is_some_and(|jump| stubs.target(from, jump).is_some())
}

/// In the child of a fork: nobody is making a stub.
pub(crate) fn reset_in_child(state: &State) {
    // (Whoever changes it holds the core lock, as the fork did.)
    zfolio_sys::lock::reset_in_fork_child(&state.texts);
    zfolio_sys::lock::reset_in_fork_child(&STUBS);
}
