//! What can be set up, how it is written down, and how it is undone.
//!
//! Undoing is done in any state: what is not there (any more) is undone.

use super::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zfolio_sys::swap::swapoff;
use zfolio_sys::syscall::Errno;

/// How long the kernel may take to let go of something.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// Something of the system's that was changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    /// The zram device of this number.
    Zram(u32),
    /// A swap area.
    Swap(PathBuf),
    /// A file.
    File(PathBuf),
    /// A directory and all that is in it.
    Directory(PathBuf),
    /// A control group; what runs in it is ours.
    Cgroup(PathBuf),
    /// A file of /sys, and what to write to it.
    Setting(PathBuf, String),
}

impl Entry {
    /// As a line of the journal, without the line's end. `None` when a path
    /// cannot be written on one.
    pub(super) fn line(&self) -> Option<String> {
        let line = match self {
            Self::Zram(number) => format!("zram\t{number}"),
            Self::Swap(path) => format!("swap\t{}", path.to_str()?),
            Self::File(path) => format!("file\t{}", path.to_str()?),
            Self::Directory(path) => format!("directory\t{}", path.to_str()?),
            Self::Cgroup(path) => format!("cgroup\t{}", path.to_str()?),
            Self::Setting(path, value) => format!("setting\t{}\t{value}", path.to_str()?),
        };
        let fields = if matches!(self, Self::Setting(..)) {
            3
        } else {
            2
        };
        (line.split('\t').count() == fields && !line.contains('\n')).then_some(line)
    }

    /// Reads what [`Self::line`] wrote.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        Some(match fields[..] {
            ["zram", number] => Self::Zram(number.parse().ok()?),
            ["swap", path] => Self::Swap(path.into()),
            ["file", path] => Self::File(path.into()),
            ["directory", path] => Self::Directory(path.into()),
            ["cgroup", path] => Self::Cgroup(path.into()),
            ["setting", path, value] => Self::Setting(path.into(), value.to_owned()),
            _ => return None,
        })
    }

    /// Whether it is still there after the machine was started again.
    pub(super) fn outlives_boot(&self) -> bool {
        matches!(self, Self::File(_) | Self::Directory(_))
    }

    /// Undoes it.
    ///
    /// # Errors
    /// Why it cannot be undone, in a sentence.
    pub(super) fn undo(&self) -> Result<(), String> {
        match self {
            Self::Zram(number) => remove_zram(*number),
            Self::Swap(path) => end_swap(path),
            Self::File(path) => ignore_missing(fs::remove_file(path))
                .map_err(|error| format!("{}: {error}", path.display())),
            Self::Directory(path) => ignore_missing(fs::remove_dir_all(path))
                .map_err(|error| format!("{}: {error}", path.display())),
            Self::Cgroup(path) => remove_cgroup(path),
            Self::Setting(path, value) => ignore_missing(fs::write(path, value))
                .map_err(|error| format!("{} to {value}: {error}", path.display())),
        }
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Whether /proc/swaps lists `path`. It writes blanks as `\040`; ours have none.
fn is_swap(path: &Path) -> bool {
    let listed = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let name = path.to_string_lossy();
    listed
        .lines()
        .any(|line| line.split_whitespace().next() == Some(&name))
}

fn end_swap(path: &Path) -> Result<(), String> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| "a path with a zero byte".to_owned())?;
    let mut last = Errno::INVAL;
    let ended = wait_until(ENDS_WITHIN, || {
        if !is_swap(path) {
            return true;
        }
        if let Err(errno) = swapoff(&name) {
            last = errno;
        }
        false
    });
    if ended {
        Ok(())
    } else {
        Err(format!("swapoff {}: error {}", path.display(), last.0))
    }
}

fn remove_zram(number: u32) -> Result<(), String> {
    let dir = PathBuf::from(format!("/sys/block/zram{number}"));
    let mut last = String::new();
    // EBUSY while somebody who looks at new devices has it open.
    let gone = wait_until(ENDS_WITHIN, || {
        if !dir.exists() {
            return true;
        }
        let removed = fs::write(dir.join("reset"), "1")
            .and_then(|()| fs::write("/sys/class/zram-control/hot_remove", number.to_string()));
        if let Err(error) = removed {
            last = error.to_string();
        }
        false
    });
    if gone {
        Ok(())
    } else {
        Err(format!("zram{number}: {last}"))
    }
}

/// Ends what runs in the group and in groups below it, and removes them.
fn remove_cgroup(path: &Path) -> Result<(), String> {
    let inner = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in inner {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path())?;
        }
    }
    let mut last = String::new();
    let gone = wait_until(ENDS_WITHIN, || {
        if !path.exists() {
            return true;
        }
        kill_members(path);
        if let Err(error) = fs::remove_dir(path) {
            last = error.to_string();
        }
        false
    });
    if gone {
        Ok(())
    } else {
        Err(format!("{}: {last}", path.display()))
    }
}

/// Kills every process of a control group.
pub(super) fn kill_members(path: &Path) {
    let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    for pid in listed.lines().filter_map(|line| line.trim().parse().ok()) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_there_is_undone() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        for entry in [
            Entry::Zram(4_000_000),
            Entry::Swap(absent.clone()),
            Entry::File(absent.clone()),
            Entry::Directory(absent.clone()),
            Entry::Cgroup(absent.clone()),
            Entry::Setting(absent.join("below"), "1".to_owned()),
        ] {
            assert_eq!(entry.undo(), Ok(()), "{entry:?}");
        }
    }

    #[test]
    fn files_and_settings_are_undone() {
        let dir = tempfile::tempdir().unwrap();
        let (file, setting) = (dir.path().join("f"), dir.path().join("s"));
        fs::write(&file, "x").unwrap();
        fs::write(&setting, "new").unwrap();
        Entry::File(file.clone()).undo().unwrap();
        Entry::Setting(setting.clone(), "old".to_owned())
            .undo()
            .unwrap();
        assert!(!file.exists());
        assert_eq!(fs::read_to_string(setting).unwrap(), "old");
    }

    #[test]
    fn a_path_that_would_break_the_line_is_refused() {
        for path in ["a\nb", "a\tb"] {
            assert_eq!(Entry::File(path.into()).line(), None);
            assert_eq!(Entry::Setting("ok".into(), path.to_owned()).line(), None);
        }
    }

    proptest! {
        #[test]
        fn lines_read_back(which in 0..6, number: u32, path in "/[ -~é]{0,20}", value in "[ -~]{0,8}") {
            let entry = match which {
                0 => Entry::Zram(number),
                1 => Entry::Swap(path.into()),
                2 => Entry::File(path.into()),
                3 => Entry::Directory(path.into()),
                4 => Entry::Cgroup(path.into()),
                _ => Entry::Setting(path.into(), value),
            };
            let line = entry.line().expect("nothing special in it");
            prop_assert_eq!(Entry::parse(&line), Some(entry));
        }

        #[test]
        fn any_line_is_answered(line in "\\PC{0,30}") {
            if let Some(entry) = Entry::parse(&line) {
                prop_assert!(entry.line().is_some());
            }
        }
    }
}
