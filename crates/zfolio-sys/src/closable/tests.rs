use super::*;
use crate::region::{map_region, unmap_region};

const PAGES: usize = 4;
const PIPE2: usize = 293;

struct Bed {
    memory: Closable,
    group: Range<usize>,
}

impl Bed {
    /// Memory of which the third group is open.
    fn new() -> Self {
        let len = PAGES * PAGE_SIZE;
        let view = map_region(8 * len).expect("a mapping");
        let memory = Closable::over(&view).expect("closed");
        let group = view.start + 2 * len..view.start + 3 * len;
        memory.open(&group).expect("opened");
        Self { memory, group }
    }

    fn page(&self, index: usize) -> *mut u8 {
        (self.group.start + index * PAGE_SIZE) as *mut u8
    }

    fn write(&self, index: usize, byte: u8) {
        // SAFETY: open, and this thread's alone.
        unsafe { self.page(index).write_volatile(byte) };
    }

    fn read(&self, index: usize) -> u8 {
        // SAFETY: as above.
        unsafe { self.page(index).read_volatile() }
    }

    /// Closed, taken, and held still.
    fn take(&self, copy: &mut [u8]) -> Aside<'_> {
        self.memory.close(&self.group).expect("closed");
        let mut aside = self.memory.take(&self.group).expect("taken");
        aside.unlock().expect("unlocked");
        assert!(aside.hold_still(copy));
        aside
    }

    /// Lets it go, if it can be. (Pages are held for a moment where another processor has
    /// made them.)
    fn goes(&self, tries: usize) -> bool {
        let mut copy = [0; PAGES * PAGE_SIZE];
        for _ in 0..tries {
            let mut aside = match self.take(&mut copy).let_go() {
                Ok(()) => return true,
                Err(aside) => aside,
            };
            aside.mend(&copy);
            aside.put_back().expect("put back");
            crate::lock::pause(1_000_000);
        }
        false
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // SAFETY: nobody uses it.
        unsafe { unmap_region(&self.memory.view()) };
    }
}

#[test]
fn what_nobody_holds_goes_and_what_is_filled_comes_back() {
    let bed = Bed::new();
    bed.write(0, 7);
    bed.write(3, 9);
    // (The kernel's page of zeros is there too.)
    assert_eq!(bed.read(1), 0);
    assert!(bed.goes(200));
    let mut aside = bed.memory.take(&bed.group).expect("taken");
    aside.unlock().expect("unlocked");
    let second = bed.group.start + PAGE_SIZE..bed.group.start + 2 * PAGE_SIZE;
    let bytes = aside.bytes_mut(&second);
    assert!(bytes.iter().all(|byte| *byte == 0));
    bytes.fill(5);
    aside.put_back().expect("put back");
    assert_eq!((0..4).map(|at| bed.read(at)).sum::<u8>(), 5);
}

#[test]
fn what_stays_is_as_it_was() {
    let bed = Bed::new();
    (0..3).for_each(|at| bed.write(at, 7));
    let mut copy = [0; PAGES * PAGE_SIZE];
    let mut aside = bed.take(&mut copy);
    // One page goes, of one the kernel takes the memory, and one is written to.
    let page = aside.at;
    discard(page, PAGE_SIZE).expect("discarded");
    aside.bytes_mut(&(bed.group.start + PAGE_SIZE..bed.group.end))[0] = 8;
    let Err(mut aside) = aside.let_go() else {
        panic!("it was written to");
    };
    aside.mend(&copy);
    aside.put_back_closed().expect("put back");
    bed.memory.open(&bed.group).expect("opened");
    assert_eq!(
        [bed.read(0), bed.read(1), bed.read(2), bed.read(3)],
        [7, 8, 7, 0]
    );
}

#[test]
fn zeros_that_were_written_stay_zeros() {
    let bed = Bed::new();
    bed.write(0, 7);
    let mut copy = [0; PAGES * PAGE_SIZE];
    let mut aside = bed.take(&mut copy);
    aside.bytes_mut(&bed.group)[0] = 0;
    aside.mend(&copy);
    aside.put_back().expect("put back");
    assert_eq!(bed.read(0), 0);
}

#[test]
fn what_a_pipe_holds_does_not_go() {
    let bed = Bed::new();
    bed.write(1, 7);
    let mut ends = [0_i32; 2];
    call(PIPE2, [ends.as_mut_ptr() as usize, 0, 0, 0, 0, 0]).expect("a pipe");
    let end = |at: usize| usize::try_from(ends[at]).expect("a descriptor");
    let part = [bed.page(1) as usize, PAGE_SIZE];
    let args = [end(1), part.as_ptr() as usize, 1, 0, 0, 0];
    assert_eq!(call(nr::VMSPLICE, args), Ok(PAGE_SIZE));
    assert!(!bed.goes(20));
    assert_eq!(bed.read(1), 7);
    // The page is the same one: what the program writes now is in the pipe too.
    bed.write(1, 8);
    let mut got = [0_u8; PAGE_SIZE];
    let args = [end(0), got.as_mut_ptr() as usize, PAGE_SIZE, 0, 0, 0];
    assert_eq!(call(nr::READ, args), Ok(PAGE_SIZE));
    assert_eq!(got[0], 8);
    assert!(bed.goes(200));
    for end in ends {
        let end = usize::try_from(end).expect("a descriptor");
        call(nr::CLOSE, [end, 0, 0, 0, 0, 0]).expect("closed");
    }
}

#[test]
fn pieces_that_come_back_are_one_mapping() {
    let bed = Bed::new();
    let mappings = || {
        let file = File::open(c"/proc/self/maps").expect("maps");
        let view = bed.memory.view();
        let (mut buffer, mut count) = ([0; 4096], 0);
        crate::procfs::for_each_mapping(file, &mut buffer, |mapping| {
            count += usize::from(view.contains(&mapping.start));
        })
        .expect("read");
        file.close();
        count
    };
    bed.memory.close(&bed.group).expect("closed");
    assert_eq!(mappings(), 1);
    for group in (bed.memory.view().start..bed.memory.view().end).step_by(PAGES * PAGE_SIZE) {
        let range = group..group + PAGES * PAGE_SIZE;
        let mut aside = bed.memory.take(&range).expect("taken");
        aside.unlock().expect("unlocked");
        aside.bytes_mut(&range).fill(1);
        aside.put_back().expect("put back");
    }
    assert_eq!(mappings(), 1);
}

#[test]
#[should_panic(expected = "above the view")]
fn what_is_not_in_the_view_is_not_taken() {
    let bed = Bed::new();
    let view = bed.memory.view();
    let _ = bed.memory.take(&(view.start..view.end + PAGE_SIZE));
}
