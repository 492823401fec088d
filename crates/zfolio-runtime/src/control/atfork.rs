//! What libc's fork handlers call. In threads of the program.

use crate::control::Manager;
use crate::fork_handshake::{ForkWords, request};
use crate::options::STACK;
use crate::swapout::Swap;
use zfolio_sys::syscall::Errno;
use zfolio_sys::thread::{Life, spawn_with};
use zfolio_sys::{heap, identity};

impl Manager {
    /// atfork `prepare`: returns once the image is fit to be copied.
    pub fn before_fork(&self) {
        ForkWords::wait(self.fork_words().request(), request::NONE, || true);
        // (Renewed, perhaps, before that was said.)
        let words = self.fork_words();
        self.set_generation(words.renew());
        words.set(words.request(), request::PREPARE);
        self.wakeups.wake_control();
        ForkWords::wait(words.request(), request::FROZEN, || {
            self.wakeups.wake_control();
            true
        });
    }

    /// atfork `parent`.
    pub fn after_fork_parent(&self) {
        let words = self.fork_words();
        words.set(words.request(), request::PARENT_DONE);
        // What this thread does next shall not be taken for what it did before.
        ForkWords::wait_while(words.settled(), 0, || true);
        // Who forks to end (a daemon) would take with it what its child is still
        // to be given.
        if self.zswap.backing_pages() > 0 {
            ForkWords::wait(words.request(), request::NONE, || true);
        }
    }

    /// In the child of a fork, on the program's thread: starts the thread that
    /// takes over, and returns when faults are served again, or need not be.
    /// `fit`: whether this child may have such a thread.
    pub fn after_fork_child(&'static self, fit: bool) {
        heap::usage::freeze(false);
        self.expect_child();
        let adopt: Life<Self> = |manager, _, stack| manager.adopt(stack);
        let refused = if fit {
            spawn_with(STACK, self, 0, adopt).err()
        } else {
            Some(Errno::PERM)
        };
        if let Some(errno) = refused {
            self.go_unmanaged("starting a thread", errno);
            return;
        }
        self.await_child();
    }

    /// What the face says to be left alone before this call does not leave after it, and can be
    /// brought back.
    pub fn wait_for_leaving(&self) {
        Swap::wait_for_leaving(self);
    }

    /// Whether this process is the one the manager's threads run in (a raw
    /// fork's child has the tables and no threads).
    pub fn is_ours(&self) -> bool {
        self.identity() == identity::of_process()
    }
}
