//! Filling absent pages by copies, in whatever mappings they lie.

use crate::raw::PAGE;
use core::ops::Range;
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::Progress;

/// Copies to all of `range` by `copy`, from `from` on.
pub(super) fn copy_all(
    copy: impl Fn(usize, usize, usize) -> Progress,
    range: &Range<usize>,
    from: usize,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < range.len() {
        let progress = copy(range.start + done, from + done, range.len() - done);
        done += progress.done;
        match progress.stopped {
            None | Some(Errno::AGAIN) => {}
            // One mapping at a time: where another begins the rest is a call of its own.
            Some(Errno::NOENT) if progress.done > 0 => {}
            Some(Errno::NOENT) if range.len() - done > PAGE => {
                let one = copy(range.start + done, from + done, PAGE);
                if one.done == 0 {
                    return Err(Errno::NOENT);
                }
                done += one.done;
            }
            Some(errno) => return Err(errno),
        }
    }
    Ok(())
}
