//! Which way works here, and what a way has open: its descriptors are opened at the start,
//! change their numbers where the program wants these, and are opened anew in the child of a
//! fork.

use super::outgoing;
use super::ranges::Protection;
use super::way::{Kind, OURS, STAGE, Way, checked};
use crate::program_memory;
use crate::raw::{self, PAGE, is_error, nr};
use zfolio_runtime::segment::faults;
use zfolio_sys::arena::reserve_private;
use zfolio_sys::moves::Moves;
use zfolio_sys::procfs::{File, Pagemap, Statm};
use zfolio_sys::region::lift_descriptor;
use zfolio_sys::syscall::Errno;
use zfolio_sys::uffd::{FEATURE_MOVE, FEATURE_SIGBUS, FEATURE_WP, Uffd};

const O_RDWR_CLOEXEC: usize = 0o2_000_002;

impl Way {
    /// The first way that works here, of those that `asked` (one of `faults`) allows.
    ///
    /// # Errors
    /// What the last of them was refused.
    pub(crate) fn find(asked: u32) -> Result<Self, (&'static str, Errno)> {
        let stage = reserve_private(3 * STAGE * PAGE, c"zfolio stage")
            .map_err(|errno| ("reserving memory", errno))?;
        let mut last = ("the way that was asked for", Errno::INVAL);
        for kind in [Kind::InThread, Kind::Guard, Kind::Protect] {
            if asked != faults::AUTO && asked != kind.number() {
                continue;
            }
            let mut way = Self {
                kind,
                moves: None,
                protects: false,
                memory: None,
                sizes: None,
                maps: None,
                pages: None,
                backing: None,
                store: None,
                incoming: stage.start,
                outgoing: stage.start + STAGE * PAGE,
                zeros: stage.start + 2 * STAGE * PAGE,
            };
            match way.open().and_then(|()| way.probe()) {
                Ok(()) => {
                    outgoing::note(0, way.outgoing);
                    return Ok(way);
                }
                Err(why) => {
                    way.close_descriptors();
                    last = why;
                }
            }
        }
        Err(last)
    }

    fn open(&mut self) -> Result<(), (&'static str, Errno)> {
        self.open_what_it_needs()?;
        // (Without these it is not told what cannot leave.)
        let lifted = |file: File| lift_descriptor(file.fd());
        self.maps = File::open(c"/proc/thread-self/maps").ok().map(lifted);
        if self.moves.is_none() {
            self.pages = Pagemap::open().ok().map(|pagemap| lifted(pagemap.file()));
        }
        Ok(())
    }

    fn open_what_it_needs(&mut self) -> Result<(), (&'static str, Errno)> {
        let sizes =
            File::open(c"/proc/self/statm").map_err(|errno| ("opening /proc/self/statm", errno))?;
        self.sizes = Some(lift_descriptor(sizes.fd()));
        match self.kind {
            Kind::InThread => {
                let features = FEATURE_SIGBUS | FEATURE_MOVE;
                let protecting = Uffd::open_for_user_faults(features | FEATURE_WP);
                self.protects = protecting.is_ok();
                let uffd = protecting
                    .or_else(|_| Uffd::open_for_user_faults(features))
                    .map_err(|errno| ("userfaultfd for user faults", errno))?;
                let fd = lift_descriptor(usize::try_from(uffd.fd()).unwrap_or(0));
                let uffd = Uffd::from_fd(i32::try_from(fd).unwrap_or(-1));
                let pagemap = Pagemap::open().map_err(|errno| ("the page map", errno))?;
                let pagemap = File::from_fd(lift_descriptor(pagemap.file().fd()));
                self.moves = Some(Moves {
                    uffd,
                    pagemap: Pagemap::from_file(pagemap),
                });
                self.prepare_outgoing()
                    .map_err(|errno| ("registering with userfaultfd", errno))
            }
            Kind::Guard | Kind::Protect => {
                let path = c"/proc/self/mem".as_ptr() as usize;
                // (Opened by number: the path is ours.)
                let fd = checked(raw::own(nr::OPEN, [path, O_RDWR_CLOEXEC, 0]))
                    .map_err(|errno| ("opening /proc/self/mem", errno))?;
                self.memory = Some(lift_descriptor(fd));
                Ok(())
            }
        }
    }

    /// Does once, on a page of its own, all that this way does.
    fn probe(&mut self) -> Result<(), (&'static str, Errno)> {
        let page = reserve_private(PAGE, c"zfolio probe").map_err(|e| ("reserving memory", e))?;
        let failed = |what| move |errno| (what, errno);
        self.watch(&page)
            .map_err(failed("registering with userfaultfd"))?;
        self.incoming_page(0).fill(7);
        if self.kind != Kind::InThread {
            self.close_untouched(&page)
                .map_err(failed("protecting memory"))?;
            self.open_untouched(&page)
                .map_err(failed("protecting memory"))?;
            // SAFETY: a page of ours.
            unsafe { program_memory::bytes_mut(page.start, PAGE) }.fill(7);
            self.freeze(&page, true, Protection::ReadWrite)
                .map_err(failed("protecting memory"))?;
            self.commit(&page, true, Protection::ReadWrite)
                .map_err(failed("closing a page"))?;
        }
        self.fill(&page, true, Protection::ReadWrite)
            .map_err(failed("filling a closed page"))?;
        // SAFETY: a page of ours, open.
        let right = unsafe { program_memory::bytes(page.start, PAGE) }
            .iter()
            .all(|byte| *byte == 7);
        let moved = self.freeze(&page, true, Protection::ReadWrite);
        let right = right && moved == Ok(PAGE) && self.source(&page)[PAGE - 1] == 7;
        if let Some(moves) = self.moves {
            let _ = moves.uffd.unregister(page.start, PAGE);
            let _ = self.commit(&page, true, Protection::ReadWrite);
        }
        zfolio_sys::arena::unmap(page);
        if right {
            Ok(())
        } else {
            Err(("trying it on a page", Errno::OPNOTSUPP))
        }
    }

    /// Our descriptors.
    pub(crate) fn descriptors(&self) -> [Option<usize>; OURS] {
        let moves = self.moves;
        [
            self.sizes,
            self.memory,
            moves.and_then(|moves| usize::try_from(moves.uffd.fd()).ok()),
            moves.map(|moves| moves.pagemap.file().fd()),
            self.backing.as_ref().map(|file| file.fd()),
            self.maps,
            self.pages,
        ]
    }

    /// Moves our descriptor `fd` away: the program wants the number.
    pub(crate) fn move_descriptor(&mut self, fd: usize) {
        for own in [
            &mut self.memory,
            &mut self.sizes,
            &mut self.maps,
            &mut self.pages,
        ] {
            if *own == Some(fd) {
                *own = Some(lift_descriptor(fd));
            }
        }
        if let Some(file) = self.backing.as_ref().filter(|file| file.fd() == fd) {
            file.move_away();
        }
        if let Some(moves) = &mut self.moves {
            if moves.uffd.fd() == i32::try_from(fd).unwrap_or(-1) {
                moves.uffd = Uffd::from_fd(i32::try_from(lift_descriptor(fd)).unwrap_or(-1));
            } else if moves.pagemap.file().fd() == fd {
                moves.pagemap = Pagemap::from_file(File::from_fd(lift_descriptor(fd)));
            }
        }
    }

    /// Closes them: nothing is managed any more.
    pub(crate) fn close_descriptors(&mut self) {
        for fd in self.descriptors().into_iter().flatten() {
            File::from_fd(fd).close();
        }
        self.forget_descriptors();
    }

    fn forget_descriptors(&mut self) {
        if let Some(file) = self.backing.take() {
            file.forget();
        }
        self.memory = None;
        self.sizes = None;
        self.maps = None;
        self.pages = None;
        self.moves = None;
    }

    /// Pages that this process has resident of its own; `None` where that is not told.
    pub(crate) fn resident(&self) -> Option<usize> {
        let size = Statm::read(File::from_fd(self.sizes?)).ok()?;
        // (None at all is what is told once the first thread has ended.)
        (size.resident > 0).then(|| size.resident.saturating_sub(size.shared))
    }

    /// The list of mappings, and which of their pages are there.
    pub(crate) fn map_files(&self) -> Option<(File, Pagemap)> {
        let moves = self.moves.map(|moves| moves.pagemap);
        let pages = self.pages.map(File::from_fd).map(Pagemap::from_file);
        Some((File::from_fd(self.maps?), moves.or(pages)?))
    }

    /// Whether the child of a fork could open what it needs: a limit that was lowered leaves
    /// no numbers, and a process that may not be dumped has no files of its own in /proc. (By
    /// guards and protection its memory comes back without.)
    pub(crate) fn can_be_renewed(&self) -> bool {
        let Some(sizes) = self.sizes.filter(|_| self.kind == Kind::InThread) else {
            return true;
        };
        let Ok(opened) = Pagemap::open() else {
            return false;
        };
        let copies = [(); 2].map(|()| raw::own(nr::DUP, [sizes, 0, 0]));
        opened.file().close();
        for copy in copies.into_iter().filter(|copy| !is_error(*copy)) {
            File::from_fd(copy.cast_unsigned()).close();
        }
        copies.iter().all(|copy| !is_error(*copy))
    }

    /// In the child of a fork: what was inherited is the parent's. `shared`: so are the
    /// numbers, which are not to be closed then.
    pub(crate) fn renew(&mut self, shared: bool) -> Result<(), Errno> {
        if shared {
            self.forget_descriptors();
        } else {
            self.close_descriptors();
        }
        self.open().map_err(|(_, errno)| errno)
    }
}
