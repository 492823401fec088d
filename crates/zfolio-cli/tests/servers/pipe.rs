//! Who has a pipe open, and what each of its threads waits in: for a test that waits for its
//! end in vain.

use std::fmt::Write;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};

/// A pipe as /proc names it.
pub(crate) fn name(end: impl AsFd) -> String {
    let link = format!("/proc/self/fd/{}", end.as_fd().as_raw_fd());
    let name = fs::read_link(link).expect("a descriptor");
    name.to_string_lossy().into_owned()
}

/// A line for each process that has it open, and one for each of its threads.
pub(crate) fn holders(pipe: &str) -> String {
    let mut told = format!("{pipe} is open in");
    let own = std::process::id();
    for pid in numbers("/proc") {
        let fds = fs::read_dir(format!("/proc/{pid}/fd"));
        let mut links = fds.into_iter().flatten().flatten();
        let has = links.any(|fd| fs::read_link(fd.path()).is_ok_and(|of| of.as_os_str() == pipe));
        if pid == own || !has {
            continue;
        }
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let _ = write!(told, "\n{pid} {words}");
        for thread in numbers(&format!("/proc/{pid}/task")) {
            let read = |of: &str| {
                let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/{of}"));
                text.unwrap_or_default().trim().replace('\n', " < ")
            };
            let (comm, waits) = (read("comm"), read("wchan"));
            let (call, stack) = (read("syscall"), read("stack"));
            let _ = write!(told, "\n    {thread} {comm}: {waits}; {call}; {stack}");
        }
    }
    told
}

fn numbers(dir: &str) -> Vec<u32> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}
