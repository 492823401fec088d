//! Calls that move bytes, of which a long one is made in pieces: what is moved is kept, and one call
//! would keep all its pages as long as it lasts.
//!
//! It answers as one call would. So what is one record (of a datagram socket, of most devices) is one
//! call; a piece that ends short is the last; and where a signal's handler ran behind the first piece
//! of what may be waited for, what was moved is the result ([`pieces`](crate::signal::pieces)). Of a
//! socket, a later piece raises no SIGPIPE, as one call that has sent something does not.

use super::kinds::{self, Kind};
use crate::program_memory;
use crate::raw::{self, err, is_error, nr};
use crate::seen::pinning::{END, Keeper};
use crate::seen::vectors::{self, Vectors};

/// Most bytes that one call moves at a time.
const PIECE: usize = 256 << 10;
/// Most bytes that the kernel moves in a call.
const MOST: usize = 0x7fff_f000;
const MSG_DONTWAIT: usize = 0x40;
const MSG_NOSIGNAL: usize = 0x4000;
const MSG_MORE: usize = 0x8000;
/// Of pwritev2: all or nothing; at the end of the file, or in spite of O_APPEND not there.
const RWF_ATOMIC: usize = 0x40;
const RWF_APPEND: usize = 0x10;
const RWF_NOAPPEND: usize = 0x20;

/// What of a call's arguments says where the bytes are.
enum Memory {
    Flat {
        at: usize,
        len: usize,
    },
    Vectors(Vectors),
    /// A `struct msghdr` and its vectors.
    Message([u64; 7], Vectors),
}

/// A call that moves bytes.
struct Transfer {
    number: usize,
    args: [usize; 6],
    memory: Memory,
}

/// Makes a call that moves bytes; `None` if it is not one that is cut.
pub(super) fn transfer(keeper: &Keeper<'_>, number: usize, args: [usize; 6]) -> Option<isize> {
    let memory = memory_of(number, &args)?;
    let len = match &memory {
        Memory::Flat { len, .. } => *len,
        Memory::Vectors(vectors) | Memory::Message(_, vectors) => vectors.len(),
    };
    if len <= PIECE {
        return None;
    }
    let call = Transfer {
        number,
        args,
        memory,
    };
    let kind = if number == nr::GETRANDOM {
        Kind::Stream
    } else {
        kinds::of(args[0])
    };
    let largest = match kind {
        Kind::File => {
            let share = (keeper.state.options.high << raw::SHIFT) / 16;
            PIECE.max(share & !(raw::PAGE - 1))
        }
        Kind::Record => return None,
        _ => PIECE,
    };
    if kind != Kind::Socket && call.is_of_socket() || !call.may_be_cut(keeper, kind) {
        return None;
    }
    let len = len.min(MOST);
    let claimed = match kind {
        Kind::File if len > largest => call.claim(len, largest),
        _ => None,
    };
    let before = keeper.record.pieces.begin();
    let result = match claimed {
        Some((at, len)) => {
            let result = call.placed(at).in_pieces(keeper, kind, len, largest);
            kinds::give_back(args[0], len - result.max(0).cast_unsigned());
            result
        }
        None => call.in_pieces(keeper, kind, len, largest),
    };
    keeper.record.pieces.end(before);
    Some(result)
}

/// Where the bytes of a call are, if it is one that may be cut, as far as its arguments say.
fn memory_of(number: usize, args: &[usize; 6]) -> Option<Memory> {
    let [_, buffer, len, flags, name, _] = *args;
    let flat = |at: usize, len: usize| {
        // (What does not lie within a program's addresses is refused by the kernel, whole.)
        let is_one = at.checked_add(len).is_some_and(|end| end <= END);
        is_one.then_some(Memory::Flat { at, len })
    };
    let of_vectors = || Vectors::read(buffer, len).map(Memory::Vectors);
    match number {
        nr::READ | nr::WRITE | nr::PREAD64 | nr::PWRITE64 => flat(buffer, len),
        nr::GETRANDOM => flat(args[0], buffer),
        nr::SENDTO if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) == 0 && name == 0 => {
            flat(buffer, len)
        }
        nr::RECVFROM if flags & !(MSG_DONTWAIT | MSG_NOSIGNAL) == 0 && name == 0 => {
            flat(buffer, len)
        }
        nr::READV | nr::WRITEV | nr::PREADV | nr::PWRITEV => of_vectors(),
        nr::PREADV2 | nr::PWRITEV2 if args[5] & RWF_ATOMIC == 0 => of_vectors(),
        nr::SENDMSG if len & !(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE) == 0 => {
            let header = program_memory::read::<[u64; 7]>(buffer)?;
            let vectors = vectors::of_message(&header)?;
            Some(Memory::Message(header, vectors))
        }
        _ => None,
    }
}

impl Transfer {
    const fn is_of_socket(&self) -> bool {
        matches!(self.number, nr::SENDTO | nr::RECVFROM | nr::SENDMSG)
    }

    const fn writes(&self) -> bool {
        matches!(
            self.number,
            nr::WRITE
                | nr::PWRITE64
                | nr::SENDTO
                | nr::SENDMSG
                | nr::WRITEV
                | nr::PWRITEV
                | nr::PWRITEV2
        )
    }

    /// Where it begins in a file, by its own argument.
    const fn offset(&self) -> Option<usize> {
        match self.number {
            nr::PREAD64 | nr::PWRITE64 | nr::PREADV | nr::PWRITEV => Some(self.args[3]),
            // (-1: where the file is.)
            nr::PREADV2 | nr::PWRITEV2 if self.args[3] != usize::MAX => Some(self.args[3]),
            _ => None,
        }
    }

    /// A call that goes on where the file's descriptor is takes its part of the file at once, as one call would: another
    /// thread's or process's, by the same descriptor, begins behind it. Where its part begins, and its bytes; `None`
    /// where one piece does, where it says itself, or where that cannot be.
    fn claim(&self, len: usize, largest: usize) -> Option<(usize, usize)> {
        let fd = self.args[0];
        let goes_on = match self.number {
            nr::READ | nr::WRITE | nr::READV | nr::WRITEV => true,
            nr::PREADV2 | nr::PWRITEV2 => {
                self.offset().is_none() && self.args[5] & (RWF_APPEND | RWF_NOAPPEND) == 0
            }
            _ => false,
        };
        if !goes_on {
            return None;
        }
        let part = if !self.writes() {
            // (No more than there is: nobody is to find a place beyond the end.)
            len.min(kinds::size(fd)?.saturating_sub(kinds::position(fd)))
        } else if kinds::appends(fd) {
            0
        } else {
            len
        };
        let claimed = (part > largest).then(|| kinds::claim(fd, part)).flatten();
        claimed.map(|at| (at, part))
    }

    /// The same call at a place of the file that it names.
    fn placed(self, at: usize) -> Self {
        let number = match self.number {
            nr::READ => nr::PREAD64,
            nr::WRITE => nr::PWRITE64,
            nr::READV => nr::PREADV,
            nr::WRITEV => nr::PWRITEV,
            number => number,
        };
        let [fd, buffer, len, .., flags] = self.args;
        Self {
            number,
            args: [fd, buffer, len, at, 0, flags],
            memory: self.memory,
        }
    }

    /// Whether what the call says of all its bytes can be said of pieces. What comes with a message
    /// comes with the first: that is right for descriptors, which the first bytes bring.
    fn may_be_cut(&self, keeper: &Keeper<'_>, kind: Kind) -> bool {
        let Memory::Message(header, _) = &self.memory else {
            return true;
        };
        if header[1] & 0xffff_ffff != 0 || kind != Kind::Socket {
            return false;
        }
        let (at, len) = (vectors::word(header, 4), vectors::word(header, 5));
        if len == 0 {
            return true;
        }
        keeper.keep(at, len.min(raw::PAGE));
        kinds::is_local(self.args[0]) && vectors::is_only_descriptors(at, len)
    }

    fn in_pieces(&self, keeper: &Keeper<'_>, kind: Kind, len: usize, largest: usize) -> isize {
        // A read of anything but a file or a device may end at any length; a write goes on as long
        // as it would.
        let goes_on = self.writes() || kind != Kind::Socket && kind != Kind::Pipe;
        let depth = keeper.record.pinned.depth();
        let mut done = 0;
        loop {
            if done > 0 && kind == Kind::File && self.is_at_limit(done) {
                // (As one write it would have ended here, without a signal.)
                return done.cast_signed();
            }
            let (result, piece) = self.piece(keeper, kind, done, (len - done).min(largest));
            keeper.record.pinned.cut(depth);
            if is_error(result) {
                let is_over = kind == Kind::Socket && done > 0 && self.is_over(result);
                return if done > 0 && !is_over {
                    done.cast_signed()
                } else {
                    result
                };
            }
            done += result.cast_unsigned();
            if result.cast_unsigned() < piece || result == 0 || done == len || !goes_on {
                return done.cast_signed();
            }
        }
    }

    /// Makes the piece that begins `done` bytes into it, of `most` at most; its result, and how much
    /// it would be.
    fn piece(&self, keeper: &Keeper<'_>, kind: Kind, done: usize, most: usize) -> (isize, usize) {
        let mut args = self.args;
        let mut number = self.number;
        // (What the kernel is told instead of the program's own.)
        let mut vector = [0_u64; 2];
        let mut header;
        let is_later = done > 0;
        let piece = match &self.memory {
            Memory::Flat { at, .. } => {
                keeper.keep(at + done, most);
                let first = usize::from(number != nr::GETRANDOM);
                (args[first], args[first + 1]) = (at + done, most);
                most
            }
            Memory::Vectors(vectors) | Memory::Message(_, vectors) => {
                let (mut at, mut count, piece) = vectors.part(done, most, &mut vector);
                if at == 0 {
                    (at, count) = (vector.as_ptr() as usize, 1);
                    keeper.keep(vectors::word(&vector, 0), piece);
                } else {
                    keeper.keep_vectors(at, count);
                }
                if let Memory::Message(of, _) = &self.memory {
                    header = *of;
                    (header[2], header[3]) = (at as u64, count as u64);
                    if is_later {
                        (header[4], header[5]) = (0, 0);
                    } else {
                        keeper.keep(vectors::word(of, 4), vectors::word(of, 5));
                    }
                    args[1] = header.as_ptr() as usize;
                } else {
                    (args[1], args[2]) = (at, count);
                }
                piece
            }
        };
        if let Some(offset) = self.offset() {
            args[3] = offset.wrapping_add(done);
        }
        if is_later && kind == Kind::Socket && self.writes() {
            match number {
                nr::SENDMSG => args[2] |= MSG_NOSIGNAL,
                nr::SENDTO => args[3] |= MSG_NOSIGNAL,
                nr::WRITE => {
                    number = nr::SENDTO;
                    (args[3], args[4], args[5]) = (MSG_NOSIGNAL, 0, 0);
                }
                nr::WRITEV | nr::PWRITEV2 => {
                    let [at, count] = [args[1] as u64, args[2] as u64];
                    header = [0, 0, at, count, 0, 0, 0];
                    number = nr::SENDMSG;
                    (args[1], args[2]) = (header.as_ptr() as usize, MSG_NOSIGNAL);
                }
                _ => {}
            }
        }
        let record = keeper.record;
        let result = if kind == Kind::File {
            record.cancellation.call(number, args)
        } else {
            let (stack, stop) = (record.cancellation.stack(), record.cancellation.stop());
            record.pieces.call(stack, number, args, stop)
        };
        (result, piece)
    }

    /// Whether a connection has ended with an error that is told once: it would come with the next
    /// call, and nobody would be told of it.
    fn is_over(&self, result: isize) -> bool {
        matches!(result, err::CONNABORTED | err::CONNRESET | err::TIMEDOUT)
            && !kinds::is_local(self.args[0])
    }

    /// Whether a file may not grow beyond what has been written of it: the next write would be
    /// refused, and the process told so by a signal.
    fn is_at_limit(&self, done: usize) -> bool {
        const FSIZE: usize = 1;
        let mut limit = [u64::MAX; 2];
        let into = limit.as_mut_ptr() as usize;
        if !self.writes() || raw::own(nr::GETRLIMIT, [FSIZE, into, 0]) != 0 || limit[0] == u64::MAX
        {
            return false;
        }
        let at = match self.offset() {
            Some(offset) => offset.wrapping_add(done),
            None => kinds::position(self.args[0]),
        };
        at as u64 >= limit[0]
    }
}
