//! Pages to compress: from a file, or from programs started for it.
//!
//! What a program holds is read from /proc/PID/mem: its private writable
//! mappings without a file, and its heap and stack. Zero and same-filled pages
//! never reach a codec and are left out, counted.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use zfolio_compress::fill::same_filled;
use zfolio_host::exit::{Failure, Status};
use zfolio_mm::PAGE_SIZE;

/// Pages of one origin.
pub(super) struct Corpus {
    name: String,
    bytes: Vec<u8>,
    /// Zero pages left out.
    pub(super) zero: usize,
    /// Same-filled pages left out.
    pub(super) same_filled: usize,
}

/// A program that fills its memory, says a line, and waits for its end.
struct Program {
    name: &'static str,
    command: &'static [&'static str],
    /// What it reads.
    input: &'static str,
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "CPython",
        command: &["python3", "-"],
        input: "\
import sys, threading
rows = {i: {'id': i, 'name': 'user%d' % i, 'tags': [i % 7, i % 11, str(i)]} for i in range(60000)}
text = [('line %d of a log: status=%d' % (i, i % 5)).encode() for i in range(40000)]
print('up', flush=True)
threading.Event().wait(600)
",
    },
    Program {
        name: "sqlite",
        command: &["sqlite3", ":memory:"],
        input: "\
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 150000)
insert into t select i, 'customer ' || i || ' ' || hex(i * 7919), i * 1.5 from n;
create index u on t(b);
select 'up';
",
    },
    Program {
        name: "node",
        command: &[
            "node",
            "-e",
            "const a = []; for (let i = 0; i < 100000; i++) \
             a.push({id: i, name: 'user' + i, tags: [i % 7, i % 11, '' + i]}); \
             console.log('up'); setTimeout(() => a.length, 600000)",
        ],
        input: "",
    },
];

impl Corpus {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn pages(&self) -> usize {
        self.bytes.len() / PAGE_SIZE
    }

    /// Of whole pages, up to `limit` bytes of those that need a codec.
    pub(super) fn of_pages<'a>(
        name: &str,
        pages: impl Iterator<Item = &'a [u8]>,
        limit: usize,
    ) -> Self {
        let mut corpus = Self {
            name: name.to_owned(),
            bytes: Vec::new(),
            zero: 0,
            same_filled: 0,
        };
        for page in pages {
            corpus.add(page, limit);
        }
        corpus
    }

    fn add(&mut self, page: &[u8], limit: usize) {
        match same_filled(page) {
            Some(0) => self.zero += 1,
            Some(_) => self.same_filled += 1,
            None if page.len() == PAGE_SIZE && self.bytes.len() + PAGE_SIZE <= limit => {
                self.bytes.extend_from_slice(page);
            }
            None => {}
        }
    }

    /// The pages of a file: a dump of memory, say.
    pub(super) fn of_file(path: &Path, limit: usize) -> Result<Self, Failure> {
        let unreadable = |why: &dyn std::fmt::Display| {
            let what = format!("--input {}", path.display());
            Failure::new(Status::Usage, what, why, "name a readable file of pages")
        };
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(limit as u64).read_to_end(&mut bytes))
            .map_err(|error| unreadable(&error))?;
        let name = path.display().to_string();
        let corpus = Self::of_pages(&name, bytes.chunks_exact(PAGE_SIZE), limit);
        if corpus.bytes.is_empty() {
            return Err(unreadable(&"no page in it needs compressing"));
        }
        Ok(corpus)
    }
}

/// The pages of every program that this machine has: all together, then each.
/// `limit` bytes of each at most.
pub(super) fn of_live_programs(limit: usize) -> Result<Vec<Corpus>, Failure> {
    let mut corpora = vec![Corpus::of_pages("all programs", std::iter::empty(), 0)];
    for program in &PROGRAMS {
        if let Ok(corpus) = program.pages(limit) {
            if corpus.bytes.is_empty() {
                continue;
            }
            corpora[0].bytes.extend_from_slice(&corpus.bytes);
            corpora[0].zero += corpus.zero;
            corpora[0].same_filled += corpus.same_filled;
            corpora.push(corpus);
        }
    }
    if corpora.len() == 1 {
        return Err(Failure::new(
            Status::Usage,
            "bench compressors",
            "none of python3, sqlite3 and node could be started and read",
            "give it pages with --input FILE",
        ));
    }
    Ok(corpora)
}

/// A child that ends with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn pages(&self, limit: usize) -> std::io::Result<Corpus> {
        let mut child = Ended(
            Command::new(self.command[0])
                .args(&self.command[1..])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?,
        );
        let mut input = child.0.stdin.take();
        if let Some(pipe) = &mut input {
            // One that reads nothing may be gone from its end of the pipe.
            let _ = pipe.write_all(self.input.as_bytes());
        }
        // Python runs what it was given at the end of it; sqlite ends there.
        if self.command[0] == "python3" {
            input = None;
        }
        let mut line = String::new();
        if let Some(output) = child.0.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line.trim() != "up" {
            return Err(std::io::Error::other("the program did not come up"));
        }
        let corpus = self.read(child.0.id(), limit);
        drop(input);
        corpus
    }

    fn read(&self, pid: u32, limit: usize) -> std::io::Result<Corpus> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let mut corpus = Corpus::of_pages(self.name, std::iter::empty(), 0);
        let mut page = [0; PAGE_SIZE];
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let (Some(range), Some(rights)) = (fields.next(), fields.next()) else {
                continue;
            };
            let name = fields.nth(3).unwrap_or("");
            if !rights.starts_with("rw") || !rights.ends_with('p') || name.starts_with('/') {
                continue;
            }
            let Some((start, end)) = range.split_once('-') else {
                continue;
            };
            let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            for at in (parse(start)..parse(end)).step_by(PAGE_SIZE) {
                if corpus.bytes.len() + PAGE_SIZE > limit {
                    return Ok(corpus);
                }
                if memory.read_exact_at(&mut page, at).is_ok() {
                    corpus.add(&page, limit);
                }
            }
        }
        Ok(corpus)
    }
}
