//! Where each page is: one word a page, in leaves of 512 pages.
//!
//! Written under the core lock, read by anybody: a system call looks here whether a page of
//! its arguments is closed. A leaf that does not exist says one thing of all its pages,
//! *open* or *untouched*, and so does an *area* of 1 GiB whose leaves do not: a reservation of
//! terabytes costs nothing, and is passed over by areas.
//!
//! # Invariants
//! 1. `closed` is the number of pages whose word is not open, `standby` and `transit` of those
//!    among them that are on standby or in transit, `clean` of those that are clean.
//! 2. A leaf counts its words that are not zero, and those that are *untouched*; one without any of the
//!    former, or with nothing but the latter, is free. It counts those whose pages may leave memory, too.
//! 3. An area counts its entries of [`Words::top`] that do not say *open*; or it is untouched as a
//!    whole, and all of them say *open*, which holds for nobody then.
//! 4. `borders` is the number of pages that are apart ([`Words::is_apart`]) where the page before is
//!    not, or the other way round.

pub(crate) use word::Word;

use super::Vpn;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use zfolio_sys::arena::reserve_private;
use zfolio_sys::syscall::Errno;

mod borders;
pub(crate) mod most;
mod word;

/// Pages of a leaf.
pub(crate) const LEAF: usize = 512;
/// Leaves of the address space of a program: 2^47 bytes of 2 MiB.
const TOP: usize = 1 << (47 - 21);
/// Leaves of an area: 1 GiB.
const AREA: usize = 512;
/// Pages of the address space of a program.
pub(crate) const PAGES: usize = TOP * LEAF;

/// What [`Words::top`] says where there is no leaf.
const OPEN: u32 = 0;
const UNTOUCHED: u32 = 1;
/// What [`Words::areas`] says of one in which nobody has touched anything.
const ALL_UNTOUCHED: u32 = u32::MAX;
/// The first leaf's number.
const FIRST: u32 = 2;

/// All words.
pub(crate) struct Words {
    top: &'static [AtomicU32],
    areas: &'static [AtomicU32],
    leaves: &'static [[AtomicU32; LEAF]],
    /// Words of a leaf that are not zero; of a free one: the next free one.
    used: &'static [AtomicU32],
    /// Words of a leaf that say *untouched*.
    untouched: &'static [AtomicU32],
    /// Words of a leaf whose pages may leave memory.
    leaving: &'static [AtomicU32],
    /// Leaves taken so far.
    taken: AtomicU32,
    /// The first free one among them; 0: none.
    free: AtomicU32,
    closed: AtomicUsize,
    /// Closed pages whose bytes are in place.
    standby: AtomicUsize,
    /// Pages on their way in or out.
    transit: AtomicUsize,
    clean: AtomicUsize,
    /// Which pages are in a mapping of their own, whatever lies beside them.
    apart: fn(Word) -> bool,
    /// Where a mapping ends because of that.
    borders: AtomicUsize,
}

/// A reservation as a slice of atomics: zeros, never unmapped.
fn reserved<T>(count: usize) -> Result<&'static [T], Errno> {
    let range = reserve_private(count * size_of::<T>(), c"zfolio words")?;
    // SAFETY: fresh memory that is never unmapped; T is made of atomic words, for which zeros
    // are valid (the callers' types, all in this file).
    Ok(unsafe { core::slice::from_raw_parts(range.start as *const T, count) })
}

impl Words {
    /// `apart`: whose pages are in a mapping of their own; of no page that is plainly open. `most` leaves.
    ///
    /// # Errors
    /// There are no addresses for them.
    pub(crate) fn reserve(apart: fn(Word) -> bool, most: usize) -> Result<Self, Errno> {
        debug_assert!(!apart(Word::OPEN));
        Ok(Self {
            top: reserved::<AtomicU32>(TOP)?,
            areas: reserved::<AtomicU32>(TOP / AREA)?,
            leaves: reserved::<[AtomicU32; LEAF]>(most)?,
            used: reserved::<AtomicU32>(most)?,
            untouched: reserved::<AtomicU32>(most)?,
            leaving: reserved::<AtomicU32>(most)?,
            taken: AtomicU32::new(0),
            free: AtomicU32::new(0),
            closed: AtomicUsize::new(0),
            standby: AtomicUsize::new(0),
            transit: AtomicUsize::new(0),
            clean: AtomicUsize::new(0),
            apart,
            borders: AtomicUsize::new(0),
        })
    }

    /// The word of a page; of one outside the program's addresses: open.
    #[inline]
    pub(crate) fn get(&self, page: Vpn) -> Word {
        loop {
            match self.says(page / LEAF).unwrap_or(OPEN) {
                OPEN => return Word::OPEN,
                UNTOUCHED => return Word::Untouched,
                leaf => {
                    let word = &self.leaves[(leaf - FIRST) as usize][page % LEAF];
                    let word = Word::of(word.load(Ordering::Acquire));
                    // (Given back meanwhile, it may be another's by now.)
                    if self.top[page / LEAF].load(Ordering::Relaxed) == leaf {
                        return word;
                    }
                }
            }
        }
    }

    /// What the top says of a leaf; `None` beyond a program's addresses.
    #[inline]
    fn says(&self, leaf_of: usize) -> Option<u32> {
        let top = self.top.get(leaf_of)?;
        let says = top.load(Ordering::Acquire);
        if says != OPEN {
            return Some(says);
        }
        if self.areas[leaf_of / AREA].load(Ordering::Acquire) == ALL_UNTOUCHED {
            return Some(UNTOUCHED);
        }
        // (The area may have become one of many kinds in between.)
        Some(top.load(Ordering::Acquire))
    }

    /// Closed pages.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }

    /// Closed pages whose bytes are in memory all the same.
    pub(crate) fn standby(&self) -> usize {
        self.standby.load(Ordering::Relaxed)
    }

    /// Pages on their way in or out.
    pub(crate) fn transit(&self) -> usize {
        self.transit.load(Ordering::Relaxed)
    }

    /// Clean pages.
    pub(crate) fn clean(&self) -> usize {
        self.clean.load(Ordering::Relaxed)
    }

    /// Whether anything but *open* may be known of `page`.
    pub(crate) fn is_known(&self, page: Vpn) -> bool {
        self.says(page / LEAF).is_some_and(|says| says != OPEN)
    }

    /// Whether leaf `page` is in has words of its own.
    pub(crate) fn has_leaf(&self, page: Vpn) -> bool {
        self.says(page / LEAF).is_some_and(|says| says >= FIRST)
    }

    /// The first page of `from .. end` that is not in a leaf, or an area, in which nobody has touched
    /// anything; or `end`.
    pub(crate) fn past_untouched(&self, from: Vpn, end: Vpn) -> Vpn {
        self.past(from, end, |says| says == UNTOUCHED)
    }

    /// The first page of `from .. end` whose leaf has words of its own; or `end`.
    pub(crate) fn past_uniform(&self, from: Vpn, end: Vpn) -> Vpn {
        self.past(from, end, |says| says < FIRST)
    }

    fn past(&self, from: Vpn, end: Vpn, is_passed: impl Fn(u32) -> bool) -> Vpn {
        let mut page = from;
        while page < end && self.says(page / LEAF).is_some_and(&is_passed) {
            page = self.behind(page);
        }
        page.min(end)
    }

    /// Behind the area that `page` is in, if all of it is of one kind without a leaf; or behind the leaf.
    fn behind(&self, page: Vpn) -> Vpn {
        let of = match self.areas[page / LEAF / AREA].load(Ordering::Acquire) {
            0 | ALL_UNTOUCHED => LEAF * AREA,
            _ => LEAF,
        };
        (page / of + 1) * of
    }

    /// So many pages are so that were not, or the other way round.
    fn count(counter: &AtomicUsize, before: usize, after: usize) {
        let change = after.abs_diff(before);
        if after > before {
            counter.fetch_add(change, Ordering::Relaxed);
        } else if before > after {
            counter.fetch_sub(change, Ordering::Relaxed);
        }
    }

    /// Has the leaf's area say what it says by the top alone.
    fn split_area(&self, leaf_of: usize) {
        let area = leaf_of / AREA;
        if self.areas[area].load(Ordering::Relaxed) != ALL_UNTOUCHED {
            return;
        }
        for top in &self.top[area * AREA..(area + 1) * AREA] {
            top.store(UNTOUCHED, Ordering::Release);
        }
        #[allow(clippy::cast_possible_truncation, reason = "512")]
        self.areas[area].store(AREA as u32, Ordering::Release);
    }

    /// Sets what the top says of a leaf; returns what it said. Of no area that is untouched as a whole.
    fn say(&self, leaf_of: usize, says: u32) -> u32 {
        let (top, area) = (&self.top[leaf_of], &self.areas[leaf_of / AREA]);
        let was = top.load(Ordering::Relaxed);
        // (Whoever reads meanwhile passes over no area that says more than *open*.)
        if was == OPEN && says != OPEN {
            area.fetch_add(1, Ordering::Release);
        }
        top.store(says, Ordering::Release);
        if was != OPEN && says == OPEN {
            area.fetch_sub(1, Ordering::Release);
        }
        was
    }

    /// The leaf that `page` is in, made where there is none; `None` when all are taken.
    fn leaf(&self, page: Vpn) -> Option<usize> {
        self.split_area(page / LEAF);
        let fill = match self.top[page / LEAF].load(Ordering::Relaxed) {
            OPEN => 0,
            UNTOUCHED => Word::Untouched.bits(),
            leaf => return Some((leaf - FIRST) as usize),
        };
        let index = match self.free.load(Ordering::Relaxed) {
            0 => {
                let taken = self.taken.load(Ordering::Relaxed);
                if taken as usize == self.leaves.len() {
                    return None;
                }
                self.taken.store(taken + 1, Ordering::Relaxed);
                taken
            }
            first => {
                let next = self.used[(first - 1) as usize].load(Ordering::Relaxed);
                self.free.store(next, Ordering::Relaxed);
                first - 1
            }
        };
        // (Who reads one of these words for another page's sees that the leaf was given back: `get`.)
        fence(Ordering::Release);
        for word in &self.leaves[index as usize] {
            word.store(fill, Ordering::Relaxed);
        }
        let used = if fill == 0 { 0 } else { LEAF };
        #[allow(clippy::cast_possible_truncation, reason = "512")]
        self.used[index as usize].store(used as u32, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, reason = "512")]
        self.untouched[index as usize].store(used as u32, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, reason = "512")]
        self.leaving[index as usize].store((LEAF - used) as u32, Ordering::Relaxed);
        self.say(page / LEAF, index + FIRST);
        Some(index as usize)
    }

    /// Gives a leaf back; from here on `says` holds for all its pages.
    fn drop_leaf(&self, leaf_of: usize, says: u32) {
        self.split_area(leaf_of);
        let was = self.say(leaf_of, says);
        if was >= FIRST {
            let index = was - FIRST;
            self.used[index as usize].store(self.free.load(Ordering::Relaxed), Ordering::Relaxed);
            self.free.store(index + 1, Ordering::Relaxed);
        }
    }

    /// Sets the word of a page; false if there is no leaf to be had for it. What it was is
    /// the caller's to have dealt with.
    #[must_use]
    pub(crate) fn set(&self, page: Vpn, word: Word) -> bool {
        let before = self.get(page);
        if before == word {
            return true;
        }
        let Some(leaf) = self.leaf(page) else {
            return false;
        };
        let was = before.bits() != 0;
        let is = word.bits() != 0;
        self.leaves[leaf][page % LEAF].store(word.bits(), Ordering::Release);
        self.count_edges(page, (self.apart)(before), (self.apart)(word));
        for (counter, before, after) in [
            (&self.closed, before.is_closed(), word.is_closed()),
            (
                &self.standby,
                before == Word::Standby,
                word == Word::Standby,
            ),
            (&self.transit, before.is_transit(), word.is_transit()),
            (&self.clean, before.is_clean(), word.is_clean()),
        ] {
            Self::count(counter, usize::from(before), usize::from(after));
        }
        let leaving = &self.leaving[leaf];
        match (before.may_leave(), word.may_leave()) {
            (false, true) => leaving.fetch_add(1, Ordering::Relaxed),
            (true, false) => leaving.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        let used = &self.used[leaf];
        match (was, is) {
            (false, true) => {
                used.fetch_add(1, Ordering::Relaxed);
            }
            (true, false) if used.fetch_sub(1, Ordering::Relaxed) == 1 => {
                self.drop_leaf(page / LEAF, OPEN);
            }
            _ => {}
        }
        let untouched = &self.untouched[leaf];
        if before == Word::Untouched {
            untouched.fetch_sub(1, Ordering::Relaxed);
        } else if word == Word::Untouched
            && untouched.fetch_add(1, Ordering::Relaxed) as usize == LEAF - 1
        {
            self.drop_leaf(page / LEAF, UNTOUCHED);
        }
        true
    }

    /// Sets a run to open or untouched; false as [`Self::set`].
    #[must_use]
    pub(crate) fn set_run(&self, pages: Range<Vpn>, untouched: bool) -> bool {
        let (word, says) = if untouched {
            (Word::Untouched, UNTOUCHED)
        } else {
            (Word::OPEN, OPEN)
        };
        let mut page = pages.start;
        while page < pages.end {
            let left = pages.end - page;
            if page.is_multiple_of(LEAF * AREA) && left >= LEAF * AREA {
                self.set_area(page / LEAF / AREA, untouched);
                page += LEAF * AREA;
            } else if self.says(page / LEAF) == Some(says) {
                page = self.behind(page);
            } else if page.is_multiple_of(LEAF) && left >= LEAF {
                self.set_leaf(page / LEAF, untouched);
                page += LEAF;
            } else {
                if !self.set(page, word) {
                    return false;
                }
                page += 1;
            }
        }
        true
    }

    /// Sets all of a leaf.
    fn set_leaf(&self, leaf_of: usize, untouched: bool) {
        let of = |is_so: fn(Word) -> bool| self.words_in(leaf_of, is_so);
        let before = of(Word::is_closed);
        let standby = of(|word| word == Word::Standby);
        let transit = of(Word::is_transit);
        let clean = of(Word::is_clean);
        self.count_borders(leaf_of, leaf_of + 1, untouched);
        self.drop_leaf(leaf_of, if untouched { UNTOUCHED } else { OPEN });
        Self::count(&self.closed, before, if untouched { LEAF } else { 0 });
        Self::count(&self.standby, standby, 0);
        Self::count(&self.transit, transit, 0);
        Self::count(&self.clean, clean, 0);
    }

    /// Sets all of an area.
    fn set_area(&self, area: usize, untouched: bool) {
        let says = &self.areas[area];
        let leaves = area * AREA..(area + 1) * AREA;
        match says.load(Ordering::Relaxed) {
            0 if !untouched => {}
            ALL_UNTOUCHED if untouched => {}
            0 => {
                self.count_borders(leaves.start, leaves.end, untouched);
                says.store(ALL_UNTOUCHED, Ordering::Release);
                Self::count(&self.closed, 0, AREA * LEAF);
            }
            ALL_UNTOUCHED => {
                self.count_borders(leaves.start, leaves.end, untouched);
                says.store(0, Ordering::Release);
                Self::count(&self.closed, AREA * LEAF, 0);
            }
            _ => {
                for leaf_of in leaves.clone() {
                    self.set_leaf(leaf_of, untouched);
                }
                if untouched {
                    // (In this order: who reads meanwhile finds the one or the other.)
                    says.store(ALL_UNTOUCHED, Ordering::Release);
                    for top in &self.top[leaves] {
                        top.store(OPEN, Ordering::Release);
                    }
                }
            }
        }
    }

    /// Words of a leaf that are so.
    fn words_in(&self, leaf_of: usize, is_so: impl Fn(Word) -> bool) -> usize {
        let all = |word| if is_so(word) { LEAF } else { 0 };
        match self.says(leaf_of).unwrap_or(OPEN) {
            OPEN => all(Word::OPEN),
            UNTOUCHED => all(Word::Untouched),
            leaf => self.leaves[(leaf - FIRST) as usize]
                .iter()
                .filter(|word| is_so(Word::of(word.load(Ordering::Relaxed))))
                .count(),
        }
    }

    /// Whether any page of a part of a leaf is in memory, and may leave it.
    pub(crate) fn may_any_leave(&self, pages: &Range<Vpn>) -> bool {
        let may_leave = |page| self.get(page).may_leave();
        let of_leaf = match self.says(pages.start / LEAF).unwrap_or(OPEN) {
            OPEN | UNTOUCHED => return !pages.is_empty() && may_leave(pages.start),
            leaf => self.leaving[(leaf - FIRST) as usize].load(Ordering::Relaxed),
        };
        of_leaf > 0 && (pages.len() == LEAF || pages.clone().any(may_leave))
    }

    /// The first page of `from .. end` that is closed.
    pub(crate) fn next_closed(&self, from: Vpn, end: Vpn) -> Option<Vpn> {
        self.next(from, end, Word::is_closed)
    }

    /// The first page of `from .. end` that is closed, or write-protected.
    pub(crate) fn next_unready(&self, from: Vpn, end: Vpn) -> Option<Vpn> {
        self.next(from, end, |word| !word.is_ready())
    }

    /// The first page of `from .. end` whose word is so. (No plain open one is asked for.)
    pub(crate) fn next(&self, from: Vpn, end: Vpn, is_so: impl Fn(Word) -> bool) -> Option<Vpn> {
        let mut page = from;
        while page < end {
            match self.says(page / LEAF)? {
                OPEN => page = self.behind(page),
                UNTOUCHED if !is_so(Word::Untouched) => page = self.behind(page),
                _ if is_so(self.get(page)) => return Some(page),
                _ => page += 1,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
