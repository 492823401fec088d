//! Keeping what a call will touch in memory, as long as it runs.

use super::plain_stack::is_plain;
use super::table::Pointer;
use crate::program_memory;
use crate::raw::{PAGE, SHIFT};
use crate::state::State;
use crate::threads::Record;
use core::ops::Range;

/// End of the addresses that a program has.
pub(crate) const END: usize = 1 << 47;
/// Most bytes of a path, its end included.
const PATH: usize = 4096;
/// Behind an argument of an unknown call.
pub(super) const GUESS: usize = 256;
/// Most bytes above a stack pointer that are taken for that stack's.
const OF_STACK: usize = 64 << 10;

/// A call that is being prepared.
pub(crate) struct Keeper<'a> {
    pub(crate) state: &'a State,
    pub(crate) record: &'static Record,
    /// The program's stack pointer.
    pub(crate) stack: usize,
    pub(crate) in_handler: bool,
}

impl Keeper<'_> {
    /// Keeps `len` bytes at `address` and brings what of them is out. Memory that is not there
    /// is nobody's business but the kernel's.
    pub(crate) fn keep(&self, address: usize, len: usize) {
        let Some(range) = closable(address, len) else {
            return;
        };
        if !self.is_of_stack(&range) && self.publish(&range) {
            self.bring(&range);
        }
    }

    /// Whether a range is of the stack that the call is made on, above it, where that is known
    /// not to be managed: nobody closes it.
    pub(super) fn is_of_stack(&self, range: &Range<usize>) -> bool {
        self.stack <= range.start
            && range.end - self.stack < OF_STACK
            && is_plain(self.record, &(self.stack..range.end))
    }

    /// Keeps whatever is open, until the call returns.
    pub(crate) fn keep_everything(&self) {
        self.publish(&(0..usize::MAX));
        // (What was chosen before goes, and what is touched from here on comes back.)
        self.state.locked(|_| ());
    }

    pub(super) fn publish(&self, range: &Range<usize>) -> bool {
        if self
            .record
            .pinned
            .publish(range, self.stack, self.in_handler)
        {
            return true;
        }
        (self.state.entries.leave)("calls within calls in signal handlers, too many");
        false
    }

    /// Brings what of a range that is pinned is out, and lets the kernel write there.
    pub(super) fn bring(&self, range: &Range<usize>) {
        if self.state.batches.is_under_way() {
            self.state.await_batch();
        }
        let end = ((range.end - 1) >> SHIFT) + 1;
        let mut page = range.start >> SHIFT;
        while let Some(closed) = self.state.words.next_unready(page, end) {
            if self.state.has_left() {
                return;
            }
            self.state.wait_at_max();
            self.state.wait_for_writes();
            self.state.bring(self.record, closed << SHIFT);
            page = closed;
        }
    }

    /// Keeps a string.
    pub(crate) fn keep_text(&self, address: usize) {
        // (One at 0 ends within that page.)
        if !(1..END).contains(&address) {
            return;
        }
        let range = address..(address + PATH).min(END);
        if !self.publish(&range) {
            return;
        }
        let border = (address | (PAGE - 1)) + 1;
        self.bring(&(address..border));
        // It ends before the next page, most often; that one need not be there.
        if self.state.words.get(border >> SHIFT).is_closed() && !ends_before(address, border) {
            self.bring(&(border..range.end.max(border + 1)));
        }
    }

    /// Keeps all that the table says of a call.
    pub(crate) fn keep_all(&self, pointers: &[Pointer], args: &[usize; 6]) {
        let arg = |at: u8| args[usize::from(at)];
        // Counts are of 32 bits, mostly; where one is of 64, no buffer is as long.
        let count = |at: u8| match arg(at) {
            count if count < END => count,
            count => count & 0xffff_ffff,
        };
        for pointer in pointers {
            match *pointer {
                Pointer::Bytes(at, len) => self.keep(arg(at), usize::from(len)),
                Pointer::Array(at, of, size) => {
                    self.keep(arg(at), count(of).saturating_mul(usize::from(size)));
                }
                Pointer::Text(at) => self.keep_text(arg(at)),
                Pointer::Vectors(at, of) => self.keep_vectors(arg(at), count(of)),
                Pointer::Message(at) => self.keep_message(arg(at)),
                Pointer::Messages(at, of) => self.keep_messages(arg(at), count(of) & 0xffff_ffff),
                Pointer::Bits(at, of) => {
                    let bits = (count(of) & 0xffff_ffff).min(1 << 20);
                    self.keep(arg(at), bits.div_ceil(64) * 8);
                }
                Pointer::Words(at, of) => self.keep_words(arg(at), count(of)),
                Pointer::Measured(at, len_at) => {
                    self.keep(arg(len_at), 4);
                    if let Some(len) = program_memory::read::<u32>(arg(len_at)) {
                        self.keep(arg(at), (len as usize).min(1 << 20));
                    }
                }
            }
        }
    }

    /// Keeps a little behind everything that could be a pointer.
    pub(crate) fn keep_guesses(&self, args: &[usize; 6]) {
        for arg in args {
            self.keep(*arg, GUESS);
        }
    }
}

/// The addresses of `len` bytes at `address` that may be closed, which those of page 0 never are;
/// `None` where there are none.
pub(super) fn closable(address: usize, len: usize) -> Option<Range<usize>> {
    let range = address.max(PAGE)..address.saturating_add(len).min(END);
    (!range.is_empty()).then_some(range)
}

/// Whether a string ends before `border`, which is at the end of a page.
fn ends_before(address: usize, border: usize) -> bool {
    let mut at = address;
    let mut bytes = [0_u8; 64];
    while at < border {
        let len = (border - at).min(bytes.len());
        if !program_memory::read_bytes(at, &mut bytes[..len]) || bytes[..len].contains(&0) {
            return true;
        }
        at += len;
    }
    false
}
