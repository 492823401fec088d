//! What is done when the terminal is gone: an ssh session that broke off, a window that was
//! closed.
//!
//! Whoever reads events reads nothing then, again and again, and comes back for no signal. So a
//! thread of its own waits for that end.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io;
use std::process;
use std::thread;

/// Ends the process, as SIGHUP does, when standard input is a terminal no more.
///
/// # Errors
/// There can be no thread.
pub(super) fn end_with_it() -> io::Result<()> {
    thread::Builder::new()
        .name("terminal".into())
        .spawn(|| {
            wait_for_its_end(&io::stdin());
            let _ = signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGHUP);
            process::exit(128 + signal_hook::consts::SIGHUP);
        })
        .map(drop)
}

fn wait_for_its_end(stdin: &io::Stdin) {
    loop {
        // (Of its end the kernel tells unasked.)
        let mut asked = [PollFd::new(stdin, PollFlags::empty())];
        match poll(&mut asked, None) {
            Err(Errno::INTR) => {}
            Ok(_) if asked[0].revents().is_empty() => {}
            _ => return,
        }
    }
}
