//! Pages of real programs: read from a file, or from the memory of processes
//! started for it.
//!
//! The programs build something typical of their kind, say so on a line, and
//! wait; their private anonymous memory is then read through /proc/PID/mem.
//! Pages that hold one repeated word are left out: they are no codec's work.

use crate::sequence::Sequence;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use zfolio_compress::fill::same_filled;
use zfolio_mm::PAGE_SIZE;

/// What a program prints when its memory may be read.
const READY: &str = "zfolio-corpus-ready";

/// A page, aligned as direct I/O wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(4096))]
pub(crate) struct Page(pub(crate) [u8; PAGE_SIZE]);

/// Pages, and where they are from.
#[derive(Debug)]
pub(crate) struct Corpus {
    pub(crate) pages: Vec<Page>,
    /// Name and number of pages of each source.
    pub(crate) sources: Vec<(String, usize)>,
}

/// A program to take pages of.
struct Source {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// Given on its standard input, which then stays open.
    input: &'static str,
}

const PYTHON: &str = "\
import sys
users = {i: {'id': i, 'name': 'user%d' % i, 'tags': ['a', 'b', str(i % 7)], 'v': i * 1.5} for i in range(90000)}
words = [('%x' % (i * 2654435761 % 2**32)) * 3 for i in range(100000)]
print('zfolio-corpus-ready', flush=True)
sys.stdin.read()
";

const NODE: &str = "\
const all = [];
for (let i = 0; i < 150000; i++) all.push({ id: i, name: 'item ' + i, at: [i, i * 2, i / 3], next: all[i >> 1] });
const text = JSON.stringify(all.slice(0, 20000), (k, v) => k === 'next' ? undefined : v);
console.log('zfolio-corpus-ready');
process.stdin.resume();
global.kept = [all, text];
";

const SQL: &str = "\
create table t(id integer primary key, name text, price real, note text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
insert into t select i, 'customer ' || (i * 7919 % 100003), i * 1.25, hex(i * 2654435761 % 4294967296) from n;
create index by_name on t(name);
.print zfolio-corpus-ready
";

const SOURCES: [Source; 3] = [
    Source {
        name: "CPython",
        program: "python3",
        args: &["-c", PYTHON],
        input: "",
    },
    Source {
        name: "sqlite3",
        program: "sqlite3",
        args: &[":memory:"],
        input: SQL,
    },
    Source {
        name: "node",
        program: "node",
        args: &["-e", NODE],
        input: "",
    },
];

impl Corpus {
    /// `pages` pages of `file`, or of what can be started here, as many of each
    /// program; chosen by `seed` and in the order of their addresses.
    ///
    /// # Errors
    /// When there is no page to be had; why, in a sentence.
    pub(crate) fn gather(file: Option<&Path>, pages: usize, seed: u64) -> Result<Self, String> {
        let mut corpus = Self {
            pages: Vec::new(),
            sources: Vec::new(),
        };
        if let Some(path) = file {
            let found = pages_of_file(path)?;
            corpus.add(&path.display().to_string(), found, pages, seed);
        } else {
            let mut why = String::new();
            let mut left = SOURCES.len();
            for source in &SOURCES {
                // What a program that is not here would have given, the others do.
                let share = (pages - corpus.pages.len()) / left;
                left -= 1;
                match source.pages() {
                    Ok(found) => corpus.add(source.name, found, share, seed),
                    Err(error) => why = format!("{}: {error}", source.program),
                }
            }
            if corpus.pages.is_empty() {
                return Err(why);
            }
        }
        if corpus.pages.is_empty() {
            return Err("no page holds more than one word".to_owned());
        }
        Ok(corpus)
    }

    fn add(&mut self, name: &str, mut found: Vec<Page>, share: usize, seed: u64) {
        let mut random = Sequence::named(&[seed, found.len() as u64]);
        // Selection sampling (Knuth, volume 2, algorithm S): keeps the order.
        let (mut seen, all, mut wanted) = (0, found.len() as u64, share.min(found.len()) as u64);
        found.retain(|_| {
            let take = random.next() % (all - seen) < wanted;
            seen += 1;
            wanted -= u64::from(take);
            take
        });
        if !found.is_empty() {
            self.sources.push((name.to_owned(), found.len()));
        }
        self.pages.append(&mut found);
    }

    /// One line: where the pages are from.
    pub(crate) fn told(&self) -> String {
        let source = |(name, pages): &(String, usize)| format!("{name} {pages}");
        let all: Vec<String> = self.sources.iter().map(source).collect();
        format!("{} pages: {}", self.pages.len(), all.join(", "))
    }
}

fn pages_of_file(path: &Path) -> Result<Vec<Page>, String> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(failed)?;
    let (pages, _) = bytes.as_chunks::<PAGE_SIZE>();
    let kept = pages.iter().filter(|page| same_filled(*page).is_none());
    Ok(kept.map(|page| Page(*page)).collect())
}

/// Ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Source {
    fn pages(&self) -> std::io::Result<Vec<Page>> {
        let child = Command::new(self.program)
            .args(self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut running = Running(child);
        let mut stdin = running.0.stdin.take();
        if let Some(stdin) = &mut stdin {
            stdin.write_all(self.input.as_bytes())?;
        }
        let stdout = running.0.stdout.take().into_iter();
        let mut lines = stdout.flat_map(|out| BufReader::new(out).lines());
        if !lines.any(|line| line.is_ok_and(|line| line == READY)) {
            return Err(std::io::Error::other("it ended before its memory was read"));
        }
        read_memory(running.0.id())
    }
}

/// The private, writable, anonymous pages of a process that wait for nobody.
fn read_memory(pid: u32) -> std::io::Result<Vec<Page>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut pages = Vec::new();
    let mut page = Page([0; PAGE_SIZE]);
    for (start, end) in maps.lines().filter_map(anonymous) {
        let mut at = start;
        while at < end {
            // What is not there any more, or not readable, is passed over.
            match memory.read_exact_at(&mut page.0, at) {
                Ok(()) if same_filled(&page.0).is_none() => pages.push(page),
                Ok(()) => {}
                Err(_) => break,
            }
            at += PAGE_SIZE as u64;
        }
    }
    Ok(pages)
}

/// The range of a line of /proc/PID/maps, if it is anonymous memory of the
/// program's own.
fn anonymous(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    let (inode, name) = (fields.nth(2)?, fields.next());
    let ours = name.is_none_or(|name| name == "[heap]" || name.starts_with("[anon"));
    if !access.starts_with("rw") || !access.ends_with('p') || inode != "0" || !ours {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some((hex(start)?, hex(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_told_from_files_and_stacks() {
        for (line, range) in [
            ("7f00-8f00 rw-p 00000000 00:00 0 ", Some((0x7f00, 0x8f00))),
            ("10-20 rw-p 00000000 00:00 0   [heap]", Some((16, 32))),
            ("10-20 rw-p 00000000 00:00 0   [stack]", None),
            ("10-20 r--p 00000000 00:00 0 ", None),
            ("10-20 rw-s 00000000 00:00 0 ", None),
            ("10-20 rw-p 00001000 08:01 77  /lib/libc.so", None),
            ("", None),
        ] {
            assert_eq!(anonymous(line), range, "{line}");
        }
    }

    #[test]
    fn a_file_gives_its_pages_without_the_filled_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pages");
        let mut bytes = vec![0; 20 * PAGE_SIZE + 100];
        let mut random = Sequence(1);
        for chunk in bytes[5 * PAGE_SIZE..15 * PAGE_SIZE].chunks_exact_mut(8) {
            chunk.copy_from_slice(&random.next().to_le_bytes());
        }
        fs::write(&path, &bytes).unwrap();
        let all = Corpus::gather(Some(&path), 100, 1).unwrap();
        assert_eq!(all.pages.len(), 10);
        assert!(all.pages[0].0[..] == bytes[5 * PAGE_SIZE..6 * PAGE_SIZE]);
        let some = Corpus::gather(Some(&path), 4, 1).unwrap();
        assert_eq!(some.pages.len(), 4);
        assert_eq!(some.pages, Corpus::gather(Some(&path), 4, 1).unwrap().pages);
        fs::write(&path, [7; 100]).unwrap();
        assert!(Corpus::gather(Some(&path), 4, 1).is_err());
    }

    #[test]
    fn a_programs_memory_is_read() {
        let words = Sequence::named(&[7]).next();
        let input = format!("a=kept{words}; echo {READY}; read b");
        let source = Source {
            name: "sh",
            program: "sh",
            args: &[],
            input: Box::leak(format!("{input}\n").into_boxed_str()),
        };
        let pages = source.pages().expect("a shell runs");
        let text = format!("kept{words}");
        let found = pages
            .iter()
            .any(|page| page.0.windows(text.len()).any(|w| w == text.as_bytes()));
        assert!(found, "{} pages", pages.len());
    }
}
