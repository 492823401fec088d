//! Which of the program's mappings are managed.
//!
//! Private anonymous memory that is readable and writable and nothing else:
//! the heap, anonymous mmaps, thread stacks. Left alone: files, shared memory,
//! executable or read-only memory (a MOVE needs equal access bits), the main
//! stack, the small zero-initialised parts of shared libraries (libc's own
//! variables lie there, which code called from our threads may read), and
//! everything of ours.
//!
//! And the last page of a thread's stack, where libc keeps the thread's descriptor:
//! when a thread ends the kernel clears its id there, for whoever joins it, and
//! does not wait for a page that is out. Whoever joins would wait for ever.

use crate::kernel::File;
use crate::segment::Why;
use alloc::vec::Vec;
use core::ops::Range;
use zfolio_mm::{Order, PAGE_SIZE};
use zfolio_sys::procfs::{Mapping, for_each_mapping};
use zfolio_sys::syscall::Errno;

/// The zero-initialised part of a library is left alone below this size.
const LIBRARY_BSS: usize = 4 << 20;
/// Mappings below this are not worth a registration.
const SMALLEST: usize = 64 << 10;
/// Addresses between two mappings that are near to one another, at most, bytes.
const NEAR: usize = 64 << 10;

/// The managed mappings, in address order.
pub(crate) struct Vmas {
    list: Vec<Range<usize>>,
    /// Where the next one is read to.
    next: Vec<Range<usize>>,
    /// Ranges that are ours.
    private: Vec<Range<usize>>,
    buffer: Vec<u8>,
    maps: File,
}

impl Vmas {
    pub(crate) fn new(maps: File, private: Vec<Range<usize>>) -> Self {
        Self {
            list: Vec::with_capacity(256),
            next: Vec::with_capacity(256),
            private: private.into_iter().map(whole_pages).collect(),
            buffer: alloc::vec![0; 32 << 10],
            maps,
        }
    }

    /// For the child of a fork: its own /proc file.
    pub(crate) fn adopt(&mut self, maps: File) {
        self.maps = maps;
    }

    /// Keeps a range from being managed.
    pub(crate) fn keep_private(&mut self, range: Range<usize>) {
        self.private.push(whole_pages(range));
        // (The list may be of before it was mapped.)
        let old = core::mem::take(&mut self.list);
        for vma in old {
            push_without(&mut self.list, vma, &self.private);
        }
    }

    /// A range is ours no longer: it was unmapped.
    pub(crate) fn give_up_private(&mut self, range: &Range<usize>) {
        let range = whole_pages(range.clone());
        self.private.retain(|own| *own != range);
    }

    /// What is left around `range` of `wide`, which contains it, without anything that is
    /// ours; nothing if `range` itself is in part.
    pub(crate) fn around(&self, range: &Range<usize>, wide: Range<usize>) -> Option<Range<usize>> {
        self.private.iter().try_fold(wide, |wide, own| {
            if own.end <= range.start {
                Some(wide.start.max(own.end)..wide.end)
            } else if range.end <= own.start {
                Some(wide.start..wide.end.min(own.start))
            } else {
                None
            }
        })
    }

    /// What is ours.
    pub(crate) fn private(&self) -> &[Range<usize>] {
        &self.private
    }

    /// Takes the list from elsewhere.
    pub(crate) fn list_mut(&mut self) -> &mut Vec<Range<usize>> {
        &mut self.list
    }

    /// Reads the list anew; it stays as it is if that cannot be done.
    pub(crate) fn refresh(&mut self) -> Result<(), Errno> {
        self.next.clear();
        let (list, private) = (&mut self.next, &self.private);
        let mut filter = Filter::default();
        for_each_mapping(self.maps, &mut self.buffer, |mapping| {
            if let Some(range) = filter.admit(mapping) {
                push_without(list, range, private);
            }
        })?;
        core::mem::swap(&mut self.list, &mut self.next);
        Ok(())
    }

    /// Reads the mappings for `each` to see those of the program's that are not managed. The
    /// list stays as it is.
    pub(crate) fn left_alone(
        &mut self,
        mut each: impl FnMut(Range<usize>, Why),
    ) -> Result<(), Errno> {
        let private = &self.private;
        let mut filter = Filter::default();
        for_each_mapping(self.maps, &mut self.buffer, |mapping| {
            let whole = mapping.start..mapping.end;
            let managed = filter.admit(mapping).is_some();
            if !managed && !mapping.name.starts_with(b"[anon:zfolio") {
                each_without(whole, private, |part| each(part, Why::of(mapping)));
            }
        })
    }

    /// The first managed address at or after `from`, with its mapping.
    pub(crate) fn next(&self, from: usize) -> Option<Range<usize>> {
        let index = self.list.partition_point(|vma| vma.end <= from);
        self.list.get(index).map(|vma| vma.start.max(from)..vma.end)
    }

    /// The whole mapping that `address` lies in.
    pub(crate) fn containing(&self, address: usize) -> Option<Range<usize>> {
        let index = self.list.partition_point(|vma| vma.end <= address);
        self.list
            .get(index)
            .filter(|vma| vma.start <= address)
            .cloned()
    }

    /// Where the small mappings end that lie near to one another from `part` of one on, `reach`
    /// bytes at most. The end of `part` where its mapping goes on.
    pub(crate) fn end_of_small(&self, part: &Range<usize>, reach: usize) -> usize {
        let first = self.list.partition_point(|vma| vma.end <= part.start);
        let mut end = part.end;
        for vma in &self.list[first..] {
            let goes_on = vma.start < end && end < vma.end;
            let near = vma.start.saturating_sub(end) <= NEAR && vma.end - part.start <= reach;
            if goes_on || !near || vma.len() > Order::HUGE.bytes() {
                break;
            }
            end = vma.end;
        }
        end
    }

    /// End of the last one.
    pub(crate) fn end(&self) -> usize {
        self.list.last().map_or(0, |vma| vma.end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<usize>> {
        self.list.iter()
    }
}

/// A mapping ends with a page, whatever was asked for.
const fn whole_pages(range: Range<usize>) -> Range<usize> {
    range.start & !(PAGE_SIZE - 1)..range.end.next_multiple_of(PAGE_SIZE)
}

/// Adds what is left of `range` without `private`: where the kernel finds nothing that
/// tells a mapping of the program's from one of ours beside it, it makes one of the two.
fn push_without(list: &mut Vec<Range<usize>>, range: Range<usize>, private: &[Range<usize>]) {
    each_without(range, private, |part| list.push(part));
}

/// Calls `each` for the parts of `range` without `private`.
fn each_without(range: Range<usize>, private: &[Range<usize>], mut each: impl FnMut(Range<usize>)) {
    let Range { mut start, end } = range;
    while start < end {
        let ours = private
            .iter()
            .filter(|own| own.start < end && start < own.end)
            .min_by_key(|own| own.start);
        let until = ours.map_or(end, |own| own.start);
        if start < until {
            each(start..until);
        }
        start = ours.map_or(end, |own| own.end);
    }
}

/// Decides mapping by mapping, in address order.
#[derive(Default)]
struct Filter {
    /// End of the last mapping, if it was a file's or grew from one.
    file_end: usize,
    /// End of the last mapping that nobody may touch: the guard of a stack.
    guard_end: usize,
}

impl Filter {
    fn admit(&mut self, mapping: &Mapping<'_>) -> Option<Range<usize>> {
        if mapping.inode != 0 {
            // (What lies behind a shared mapping is no library's.)
            if mapping.perms.last() == Some(&b'p') {
                self.file_end = mapping.end;
            }
            return None;
        }
        if mapping.perms == b"---p" {
            self.guard_end = mapping.end;
        }
        let after_file = self.file_end == mapping.start;
        let descriptor = if self.guard_end == mapping.start {
            PAGE_SIZE
        } else {
            0
        };
        let range = mapping.start..mapping.end - descriptor;
        let named = matches!(mapping.name, b"" | b"[heap]")
            || mapping.name.starts_with(b"[anon:") && !mapping.name.starts_with(b"[anon:zfolio");
        (mapping.perms == b"rw-p"
            && named
            && range.len() >= SMALLEST
            && !(after_file && range.len() < LIBRARY_BSS))
            .then_some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping<'a>(
        range: Range<usize>,
        perms: &'a [u8],
        inode: usize,
        name: &'a [u8],
    ) -> Mapping<'a> {
        Mapping {
            start: range.start,
            end: range.end,
            perms,
            inode,
            name,
        }
    }

    #[test]
    fn only_private_anonymous_data_is_admitted() {
        const MB: usize = 1 << 20;
        let mut filter = Filter::default();
        let mut admit = |m: &Mapping<'_>| filter.admit(m).is_some();
        assert!(admit(&mapping(4096..MB, b"rw-p", 0, b"")));
        assert!(admit(&mapping(MB..2 * MB, b"rw-p", 0, b"[heap]")));
        assert!(admit(&mapping(
            2 * MB..3 * MB,
            b"rw-p",
            0,
            b"[anon:java heap]"
        )));
        assert!(!admit(&mapping(
            3 * MB..4 * MB,
            b"rw-p",
            0,
            b"[anon:zfolio arena]"
        )));
        assert!(!admit(&mapping(4 * MB..5 * MB, b"rw-p", 0, b"[stack]")));
        assert!(!admit(&mapping(5 * MB..6 * MB, b"rwxp", 0, b"")));
        assert!(!admit(&mapping(6 * MB..7 * MB, b"rw-s", 0, b"")));
        assert!(!admit(&mapping(
            7 * MB..8 * MB,
            b"rw-p",
            77,
            b"/lib/libc.so.6"
        )));
        assert!(
            !admit(&mapping(8 * MB..9 * MB, b"rw-p", 0, b"")),
            "the library's bss"
        );
        assert!(
            admit(&mapping(9 * MB..10 * MB, b"rw-p", 0, b"")),
            "not next to it any more"
        );
        assert!(!admit(&mapping(
            10 * MB..11 * MB,
            b"rw-s",
            78,
            b"/dev/shm/x"
        )));
        assert!(
            admit(&mapping(11 * MB..12 * MB, b"rw-p", 0, b"")),
            "behind a shared file"
        );
        assert!(
            !admit(&mapping(20 * MB..20 * MB + 4096, b"rw-p", 0, b"")),
            "too small"
        );
    }

    #[test]
    fn what_is_ours_is_cut_out_of_a_mapping_that_became_one_with_the_programs() {
        let left = |private: &[[usize; 2]]| {
            let private: Vec<_> = private.iter().map(|[start, end]| *start..*end).collect();
            let mut list = Vec::new();
            push_without(&mut list, 10..20, &private);
            let list: Vec<_> = list.iter().map(|vma| [vma.start, vma.end]).collect();
            list
        };
        assert_eq!(left(&[]), [[10, 20]]);
        assert_eq!(left(&[[20, 30], [0, 10]]), [[10, 20]]);
        assert_eq!(left(&[[18, 20]]), [[10, 18]]);
        assert_eq!(left(&[[10, 12]]), [[12, 20]]);
        assert_eq!(left(&[[15, 16], [12, 13]]), [[10, 12], [13, 15], [16, 20]]);
        assert_eq!(left(&[[12, 15], [13, 17], [15, 16]]), [[10, 12], [17, 20]]);
        assert!(left(&[[5, 25]]).is_empty());
    }

    /// Of pages so and so.
    fn pages(start: usize, end: usize) -> Range<usize> {
        start * PAGE_SIZE..end * PAGE_SIZE
    }

    #[test]
    fn what_is_ours_ends_what_lies_around_a_range() {
        let mut vmas = Vmas::new(File::from_fd(usize::MAX), Vec::new());
        let around = |vmas: &Vmas| vmas.around(&pages(20, 30), pages(10, 40));
        assert_eq!(around(&vmas), Some(pages(10, 40)));
        for own in [pages(1, 9), pages(50, 60), pages(32, 35)] {
            vmas.keep_private(own);
        }
        assert_eq!(around(&vmas), Some(pages(10, 32)));
        vmas.keep_private(pages(9, 12));
        vmas.keep_private(pages(30, 31));
        assert_eq!(around(&vmas), Some(pages(12, 30)));
        vmas.keep_private(pages(29, 30));
        assert_eq!(around(&vmas), None);
    }

    #[test]
    fn small_mappings_are_looked_at_together() {
        let mut vmas = Vmas::new(File::from_fd(usize::MAX), Vec::new());
        vmas.list_mut()
            .extend([pages(10, 20), pages(21, 30), pages(32, 40)]);
        let end = |vmas: &Vmas, part, reach| vmas.end_of_small(&part, reach * PAGE_SIZE);
        assert_eq!(end(&vmas, pages(10, 20), 100), 40 * PAGE_SIZE);
        assert_eq!(end(&vmas, pages(15, 20), 100), 40 * PAGE_SIZE);
        assert_eq!(end(&vmas, pages(21, 30), 100), 40 * PAGE_SIZE);
        assert_eq!(
            end(&vmas, pages(10, 20), 25),
            30 * PAGE_SIZE,
            "as far as asked"
        );
        assert_eq!(end(&vmas, pages(10, 15), 100), 15 * PAGE_SIZE, "it goes on");
        let far = 40 + NEAR / PAGE_SIZE;
        vmas.list_mut().push(pages(far, far + 600));
        assert_eq!(
            end(&vmas, pages(10, 20), 999),
            40 * PAGE_SIZE,
            "a large one"
        );
        vmas.list_mut().pop();
        vmas.list_mut().push(pages(far, far + 1));
        assert_eq!(end(&vmas, pages(10, 20), 100), (far + 1) * PAGE_SIZE);
        vmas.list_mut().pop();
        vmas.list_mut().push(pages(far + 1, far + 2));
        assert_eq!(end(&vmas, pages(10, 20), 100), 40 * PAGE_SIZE, "far away");
    }

    #[test]
    fn a_list_that_cannot_be_read_stays() {
        let mut vmas = Vmas::new(File::from_fd(usize::MAX), Vec::new());
        vmas.list_mut().push(pages(10, 20));
        assert!(vmas.refresh().is_err());
        assert_eq!(vmas.list, [pages(10, 20)]);
    }

    #[test]
    fn the_list_loses_what_becomes_ours() {
        let mut vmas = Vmas::new(File::from_fd(usize::MAX), Vec::new());
        vmas.list_mut().extend([pages(10, 20), pages(30, 40)]);
        vmas.keep_private(pages(15, 35));
        assert_eq!(vmas.list, [pages(10, 15), pages(35, 40)]);
    }

    #[test]
    fn what_is_ours_is_whole_pages() {
        // The manager's heap is half of `high` and more, which may end within a page.
        let heap = pages(10, 20).start..pages(10, 20).end - PAGE_SIZE / 2;
        let mut vmas = Vmas::new(File::from_fd(usize::MAX), alloc::vec![heap.clone()]);
        assert_eq!(
            vmas.around(&pages(21, 22), pages(10, 30)),
            Some(pages(20, 30))
        );
        vmas.list_mut().extend([pages(10, 30)]);
        vmas.keep_private(heap);
        assert_eq!(vmas.list, [pages(20, 30)]);
    }

    #[test]
    fn the_last_page_of_a_stack_is_left_out() {
        const MB: usize = 1 << 20;
        let mut filter = Filter::default();
        assert_eq!(filter.admit(&mapping(MB..MB + 4096, b"---p", 0, b"")), None);
        let stack = MB + 4096..9 * MB + 4096;
        let admitted = filter.admit(&mapping(stack.clone(), b"rw-p", 0, b""));
        assert_eq!(admitted, Some(stack.start..stack.end - PAGE_SIZE));
        let next = stack.end..12 * MB;
        let admitted = filter.admit(&mapping(next.clone(), b"rw-p", 0, b""));
        assert_eq!(admitted, Some(next));
    }
}
