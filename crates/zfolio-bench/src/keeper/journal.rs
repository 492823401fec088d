//! The keeper's journal: what is set up, written down before it is.
//!
//! ```text
//! boot 5c9d7f1e-...          which start of the machine
//! + 1 zram    3              entry 1, written before the device is used
//! + 2 swap    /dev/zram3
//! - 2                        undone
//! ```
//!
//! The file is locked (flock) as long as its keeper lives. One that is not is
//! of a keeper that was killed: the next to start undoes what is in it.

use super::entry::Entry;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where journals and swap files are. On a disk and not in a directory that
/// others may write to.
pub(super) const STATE: &str = "/var/lib/zfolio-bench";

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    live: Vec<(u64, Entry)>,
    next: u64,
}

impl Journal {
    /// A new one in `dir`.
    ///
    /// # Errors
    /// As the system says.
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        make_state(dir)?;
        let path = dir.join(format!("{}.journal", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        writeln!(file, "boot {}", boot_id())?;
        Ok(Self {
            file,
            path,
            live: Vec::new(),
            next: 1,
        })
    }

    /// Writes down what is about to be set up; its number.
    ///
    /// # Errors
    /// When it could not be written: then it must not be set up.
    pub(super) fn begin(&mut self, entry: Entry) -> Result<u64, String> {
        let line = entry
            .line()
            .ok_or_else(|| format!("{entry:?} cannot be written down"))?;
        let number = self.next;
        // One call: a line is there whole or, without its end, not at all.
        self.file
            .write_all(format!("+ {number} {line}\n").as_bytes())
            .map_err(|error| format!("the journal: {error}"))?;
        self.next += 1;
        self.live.push((number, entry));
        Ok(number)
    }

    /// Undoes one.
    ///
    /// # Errors
    /// Why not; then it stays written down.
    pub(super) fn undo(&mut self, number: u64) -> Result<(), String> {
        let Some(at) = self.live.iter().position(|(n, _)| *n == number) else {
            return Ok(());
        };
        self.live[at].1.undo()?;
        self.live.remove(at);
        // If this is not written, it is undone twice, which is harmless.
        let _ = self.file.write_all(format!("- {number}\n").as_bytes());
        Ok(())
    }

    /// Undoes everything, the last first; removes the journal if all is undone.
    /// Returns what could not be.
    pub(super) fn undo_all(mut self) -> Vec<String> {
        let numbers: Vec<u64> = self.live.iter().map(|(number, _)| *number).collect();
        let undone = numbers.into_iter().rev().map(|number| self.undo(number));
        let failed: Vec<String> = undone.filter_map(Result::err).collect();
        if failed.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
        failed
    }

    /// Reads the journal of a keeper that is no more, and locks it. `None` if
    /// its keeper lives or another is undoing it.
    fn adopt(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().append(true).read(true).open(path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        if file.metadata()?.nlink() == 0 {
            return Ok(None);
        }
        let (live, next) = parse(&fs::read_to_string(path)?, &boot_id());
        Ok(Some(Self {
            file,
            path: path.to_path_buf(),
            live,
            next,
        }))
    }
}

/// What is still set up by the text of a journal.
fn parse(text: &str, boot: &str) -> (Vec<(u64, Entry)>, u64) {
    let mut live: Vec<(u64, Entry)> = Vec::new();
    let (mut next, mut same_boot) = (1, false);
    // What has no line end was not done yet.
    for line in text
        .split_inclusive('\n')
        .filter_map(|l| l.strip_suffix('\n'))
    {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (number, entry) = rest.split_once(' ').unwrap_or((rest, ""));
        match (kind, number.parse::<u64>()) {
            ("boot", _) => same_boot = rest == boot,
            ("+", Ok(number)) => {
                if let Some(entry) = Entry::parse(entry) {
                    live.push((number, entry));
                    next = next.max(number + 1);
                }
            }
            ("-", Ok(number)) => live.retain(|(n, _)| *n != number),
            _ => {}
        }
    }
    live.retain(|(_, entry)| same_boot || entry.outlives_boot());
    (live, next)
}

/// Undoes what killed keepers left in `dir`; what was found, and what could not
/// be undone.
pub(super) fn recover(dir: &Path) -> (usize, Vec<String>) {
    let (mut found, mut failed) = (0, Vec::new());
    if check_state(dir).is_err() {
        return (found, failed);
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "journal") {
            continue;
        }
        match Journal::adopt(&path) {
            Ok(Some(journal)) => {
                found += 1;
                failed.extend(journal.undo_all());
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => failed.push(format!("{}: {error}", path.display())),
        }
    }
    (found, failed)
}

fn make_state(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_state(dir)
}

/// What is undone is read from there: nobody else may write it.
fn check_state(dir: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(dir)?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw();
    if meta.is_dir() && ours && meta.mode() & 0o022 == 0 {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "{} is not a directory of ours alone",
            dir.display()
        )))
    }
}

/// Which start of the machine this is.
fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        (dir, state)
    }

    /// (A child that another test starts has our descriptors until it execs.)
    fn recovered(state: &Path) -> (usize, Vec<String>) {
        let begin = std::time::Instant::now();
        loop {
            let found = recover(state);
            if found.0 > 0 || begin.elapsed().as_secs() > 30 {
                return found;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn a_dead_keepers_journal_is_undone_and_a_living_ones_left() {
        let (dir, state) = state();
        let [kept, dropped] = ["kept", "dropped"].map(|name| dir.path().join(name));
        fs::write(&kept, "").unwrap();
        fs::write(&dropped, "").unwrap();
        let mut journal = Journal::create(&state).unwrap();
        journal.begin(Entry::File(kept.clone())).unwrap();
        let second = journal.begin(Entry::File(dropped.clone())).unwrap();
        journal.undo(second).unwrap();
        assert!(!dropped.exists());
        // A file of that name that came later is not ours.
        fs::write(&dropped, "").unwrap();
        assert_eq!(recover(&state), (0, vec![]));
        assert!(kept.exists());
        drop(journal);
        assert_eq!(recovered(&state), (1, vec![]));
        assert!(!kept.exists() && dropped.exists());
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_undone_stays_written_down() {
        let (dir, state) = state();
        let full = dir.path().join("full");
        fs::create_dir(&full).unwrap();
        let mut journal = Journal::create(&state).unwrap();
        journal.begin(Entry::File(full.clone())).unwrap();
        assert_eq!(journal.undo_all().len(), 1);
        fs::remove_dir(&full).unwrap();
        assert_eq!(recovered(&state), (1, vec![]));
        assert_eq!(recover(&state), (0, vec![]));
    }

    #[test]
    fn a_directory_others_may_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, state) = state();
        drop(Journal::create(&state).unwrap());
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(recover(&state), (0, vec![]));
        assert!(Journal::create(&state).is_err());
    }

    #[test]
    fn after_a_start_of_the_machine_only_files_are_left() {
        let text = "boot then\n+ 1 zram\t1\n+ 2 file\t/f\n";
        let (live, _) = parse(text, "now");
        assert_eq!(live, [(2, Entry::File("/f".into()))]);
        assert_eq!(parse(text, "then").0.len(), 2);
    }

    proptest! {
        /// Cut anywhere, as a full disk or a kill may: never more than was begun.
        #[test]
        fn a_cut_journal_has_a_beginning_of_it(
            steps in proptest::collection::vec((0..20_u32, any::<bool>()), 0..20),
            cut in 0.0..1.0_f64,
        ) {
            let mut text = String::from("boot b\n");
            let mut begun = Vec::new();
            for (at, (number, undo)) in steps.iter().enumerate() {
                if *undo && at > 0 {
                    text.push_str(&format!("- {}\n", number % u32::try_from(at).unwrap()));
                } else {
                    text.push_str(&format!("+ {at} zram\t{number}\n"));
                    begun.push((at as u64, Entry::Zram(*number)));
                }
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short text")]
            let cut = (text.len() as f64 * cut) as usize;
            let (live, _) = parse(&text[..cut], "b");
            prop_assert!(live.iter().all(|entry| begun.contains(entry)));
        }
    }
}
