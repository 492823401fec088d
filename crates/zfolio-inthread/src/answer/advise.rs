//! process_madvise: on the process's own memory it is so many calls of madvise.

use crate::life::descriptors;
use crate::memory::space;
use crate::program_memory;
use crate::raw::{self, err, is_error, nr};
use crate::seen::pinning::Keeper;

/// Bytes of a `struct iovec`, and most of them in a call.
const VECTOR: usize = 16;
const VECTORS: usize = 1024;
/// The kernel's names for this thread and this process, as descriptors.
const THIS_THREAD: i32 = -10_000;
const THIS_PROCESS: i32 = -10_001;

pub(super) fn advise(keeper: &Keeper<'_>, args: [usize; 6]) -> isize {
    let [process, vectors, count, advice, flags, _] = args;
    keeper.keep(vectors, count.min(VECTORS) * VECTOR);
    if !is_this_process(process) || flags != 0 || count > VECTORS {
        return raw::for_program(nr::PROCESS_MADVISE, args);
    }
    let mut done = 0_isize;
    for index in 0..count {
        let Some(vector) = program_memory::read::<[u64; 2]>(vectors.wrapping_add(index * VECTOR))
        else {
            return err::FAULT;
        };
        let [start, len] = vector.map(|word| usize::try_from(word).unwrap_or(0));
        let result = space::change(keeper.state, nr::MADVISE, [start, len, advice, 0, 0, 0]);
        if is_error(result) {
            return if done > 0 { done } else { result };
        }
        done += len.cast_signed();
    }
    done
}

fn is_this_process(fd: usize) -> bool {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "descriptors are of 32 bits"
    )]
    let fd = fd as i32;
    if fd == THIS_THREAD || fd == THIS_PROCESS {
        return true;
    }
    match descriptors::process_of(fd) {
        Some(process) => {
            let this = raw::own(nr::GETPID, [0; 3]).cast_unsigned();
            process == this || raw::own(nr::TGKILL, [this, process, 0]) == 0
        }
        None => is_same_file(fd),
    }
}

/// Whether a descriptor is of the same file of the kernel's as one of this process: where there
/// is no /proc to tell.
fn is_same_file(fd: i32) -> bool {
    let this = raw::own(nr::GETPID, [0; 3]).cast_unsigned();
    let opened = raw::own(nr::PIDFD_OPEN, [this, 0, 0]);
    if is_error(opened) {
        return false;
    }
    let opened = opened.cast_unsigned();
    let number = |fd: usize| {
        // struct stat: the device and the inode's number first.
        let mut about = [0_u64; 18];
        let asked = raw::own(nr::FSTAT, [fd, about.as_mut_ptr() as usize, 0]);
        (asked == 0).then_some([about[0], about[1]])
    };
    let same = usize::try_from(fd).is_ok_and(|fd| number(fd) == number(opened));
    raw::own(nr::CLOSE, [opened, 0, 0]);
    same
}
