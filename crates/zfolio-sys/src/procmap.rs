//! The mapping at an address, asked of the kernel alone.

use crate::procfs::{FileOf, twice};
use crate::syscall::{Errno, Kernel, nr};

/// The mapping that covers one address, if it is private, readable and
/// writable anonymous memory (`PROCMAP_QUERY`, Linux 6.11).
///
/// # Errors
/// `NOENT` when nothing is mapped there; `NOTTY` on older kernels; `INVAL`
/// for a mapping of another kind.
pub fn private_mapping_at<K: Kernel>(
    maps: FileOf<K>,
    address: usize,
) -> Result<core::ops::Range<usize>, Errno> {
    const IOC_PROCMAP_QUERY: usize = 0xc068_6611;
    const READABLE: u64 = 1;
    const WRITABLE: u64 = 2;
    const EXECUTABLE: u64 = 4;
    const SHARED: u64 = 8;
    let mut arg = [0_u64; 13];
    arg[0] = size_of_val(&arg) as u64;
    arg[2] = address as u64;
    let at = arg.as_mut_ptr() as usize;
    // SAFETY: the argument has the kernel's layout and asks for no strings.
    twice(|| unsafe { K::call(nr::IOCTL, [maps.fd(), IOC_PROCMAP_QUERY, at, 0, 0, 0]) })?;
    let kind = arg[5] & (READABLE | WRITABLE | EXECUTABLE | SHARED);
    if kind != READABLE | WRITABLE || arg[8] != 0 {
        return Err(Errno::INVAL);
    }
    let at = |word: u64| usize::try_from(word).map_err(|_| Errno::INVAL);
    Ok(at(arg[3])?..at(arg[4])?)
}
