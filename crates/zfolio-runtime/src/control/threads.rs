//! The threads: what each one's life is, and how they are started.

use crate::control::Manager;
use crate::fork::child::Opened;
use crate::options::STACK;
use crate::segment::WATCHDOG_NAME;
use core::ops::Range;
use core::sync::atomic::Ordering;
use zfolio_sys::limits::with_descriptors;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread;
use zfolio_sys::thread::ask_for_low_latency;

impl Manager {
    /// Starts the fault threads, and the watchdog. That last: if one of the
    /// others is refused there will be no control thread either, and a program
    /// that runs on unmanaged must not be ended for want of one.
    pub(crate) fn start_threads(&'static self) -> Result<(), Errno> {
        self.start_engines()?;
        // (Regions have no events. The last index is the thread that holds.)
        let last = self.workers.len() - usize::from(!self.scope.has_events());
        for index in (1..=last).chain([0]) {
            self.note_stack(thread::spawn_with(STACK, self, index, Self::thread_entry)?);
        }
        Ok(())
    }

    fn thread_entry(&'static self, index: usize, _stack: Range<usize>) -> ! {
        if index == self.workers.len() {
            thread::set_name("zfolio-hold");
            self.hold_thread()
        }
        self.stats().process.threads[index].store(thread::id(), Ordering::Relaxed);
        match index {
            0 => {
                thread::set_name(WATCHDOG_NAME);
                self.watchdog()
            }
            worker => {
                thread::set_name("zfolio-fault");
                self.fault_thread(worker)
            }
        }
    }

    /// Starts a thread per engine. One that cannot be started is none: what it
    /// would have done is done inline.
    pub(crate) fn start_engines(&'static self) -> Result<(), Errno> {
        let Some(threads) = self.engine_threads() else {
            return Ok(());
        };
        for index in 0..threads.count() {
            self.note_stack(thread::spawn_with(STACK, self, index, Self::engine_thread)?);
        }
        Ok(())
    }

    fn engine_thread(&'static self, index: usize, _stack: Range<usize>) -> ! {
        ask_for_low_latency();
        if let Some(threads) = self.engine_threads() {
            threads.serve(index);
        }
        thread::exit_thread()
    }

    /// Runs in the child's first manager thread: takes over, lets the program
    /// go on, and becomes its control thread.
    pub(crate) fn adopt(&'static self, stack: Range<usize>) -> ! {
        let words = self.fork_words();
        // Still the parent's: faults of this process go to it until it is asked.
        let opened = match with_descriptors(Opened::open) {
            Ok(opened) => opened,
            Err(errno) => {
                self.go_unmanaged("opening its descriptors", errno);
                self.let_program_go();
                thread::exit_thread()
            }
        };
        // (While the parent has its descriptor of this process, no other can be registered.)
        let airlock = self.first_page_of_airlock();
        words.ask_for_release(false, || {
            opened
                .program
                .register(airlock.start, airlock.len())
                .is_err()
        });
        self.reset_in_fork_child();
        let taken = self.take_over(&opened, words, stack);
        if let Err(errno) = taken.and_then(|()| self.start_threads()) {
            self.fail(format_args!(
                "the child of a fork could not take over its moved-out memory (errno {})",
                errno.0
            ));
        }
        self.let_program_go();
        self.control_thread()
    }

    pub(crate) fn let_program_go(&self) {
        self.child_is_ready();
    }
}
