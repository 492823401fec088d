//! `zfolio usemem`: uses memory, as the tool of that name in vm-scalability does
//! that the kernel's developers measure swap with. Our own; the options that are
//! theirs mean the same here.
//!
//! Each process maps its memory and goes over it, a word of 8 bytes at a time.
//! Written words hold their own index; a repeated pass checks what the last one
//! wrote. Each process tells its throughput on a line.

use crate::args::Usemem;
use crate::sequence::Sequence;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::hint::black_box;
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use zfolio_host::exit::{Failure, Status};
use zfolio_host::machine;
use zfolio_host::standard_output::print;

const WORD: usize = size_of::<u64>();
/// Words of a huge page.
const HUGE_WORDS: usize = (2 << 20) / WORD;

/// Runs the processes and waits for them.
///
/// # Errors
/// When they cannot be started, or one finds its words changed.
pub fn usemem(args: &Usemem) -> Result<ExitCode, Failure> {
    if let Some(which) = args.child {
        return work(args, which);
    }
    if args.nproc == 1 {
        return work(args, 0);
    }
    let failed = |error: std::io::Error| {
        Failure::new(Status::Internal, "usemem", error, "use fewer processes")
    };
    let exe = std::env::current_exe().map_err(failed)?;
    let options: Vec<_> = std::env::args_os().skip(2).collect();
    let mut children = Vec::new();
    for which in 0..args.nproc {
        let child = Command::new(&exe)
            .args(["usemem", "--child"])
            .arg(which.to_string())
            .args(&options)
            .stdin(Stdio::piped())
            .spawn();
        children.push(Started(child.map_err(failed)?));
    }
    // They begin when their pipes end: together.
    for child in &mut children {
        drop(child.0.stdin.take());
    }
    let mut bad = 0;
    for child in &mut children {
        let ended = child.0.wait().map_err(failed)?;
        bad += u32::from(!ended.success());
    }
    if bad > 0 {
        return Err(Failure::new(
            Status::Internal,
            "usemem",
            format!("{bad} processes failed"),
            "see the lines above",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends with the value.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn work(args: &Usemem, which: u32) -> Result<ExitCode, Failure> {
    if args.child.is_some() {
        let _ = std::io::stdin().read(&mut [0]);
    }
    if args.bind > 0 {
        bind(which * args.bind);
    }
    let bytes = args.size.bytes(machine::mem_total());
    let words = usize::try_from(bytes).unwrap_or(usize::MAX) / WORD;
    let begin = Instant::now();
    let mut memory = mapped(words, args.thp)?;
    if args.init_time {
        print(&format!(
            "{} usecs for the mapping\n",
            begin.elapsed().as_micros()
        ))?;
    }
    let begin = Instant::now();
    for pass in 0..args.repeat {
        if args.write {
            write(&mut memory, pass > 0, args.random)?;
        } else {
            read(&memory, args.random);
        }
    }
    let micros = begin.elapsed().as_micros().max(1);
    let done = (words * WORD) as u128 * u128::from(args.repeat);
    print(&(line(done, micros) + "\n"))?;
    if args.sleep > 0 {
        std::thread::sleep(Duration::from_secs(args.sleep));
    }
    let begin = Instant::now();
    drop(memory);
    let line = format!("{} usecs to free memory\n", begin.elapsed().as_micros());
    print(&line).map(|_| ExitCode::SUCCESS)
}

/// A process's throughput, as bytes, microseconds and KB/s of 1024 bytes.
fn line(bytes: u128, micros: u128) -> String {
    let throughput = bytes * 1_000_000 / micros / 1024;
    format!("{bytes} bytes / {micros} usecs = {throughput} KB/s")
}

/// The throughput on a line of [`line()`], KB/s.
pub(crate) fn throughput(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(" usecs = ")?;
    rest.strip_suffix(" KB/s")?.parse().ok()
}

/// Words that the process has not touched yet.
fn mapped(words: usize, thp: bool) -> Result<Vec<u64>, Failure> {
    let refused = |error: std::collections::TryReserveError| {
        Failure::new(Status::Internal, "usemem", error, "use less")
    };
    let mut memory: Vec<u64> = Vec::new();
    let spare = if thp { HUGE_WORDS } else { 0 };
    memory.try_reserve_exact(words + spare).map_err(refused)?;
    drop(memory);
    // Of the size just had: zeros of the kernel's own.
    let memory = vec![0_u64; words + spare];
    if thp {
        zfolio_sys::arena::prefer_huge_pages(
            (memory.as_ptr() as usize).next_multiple_of(4096),
            memory.len() * WORD - 4096,
        );
    }
    Ok(memory)
}

fn bind(cpu: u32) {
    let cpus = machine::cpus();
    let mut set = CpuSet::new();
    set.set(cpu as usize % cpus);
    // Where it may not run there, it runs where it may.
    let _ = sched_setaffinity(None, &set);
}

/// Where access `at` of `words` goes: in order, or somewhere.
fn place(at: usize, words: usize, random: &mut Option<Sequence>) -> usize {
    match random {
        None => at,
        #[allow(clippy::cast_possible_truncation, reason = "below a usize")]
        Some(random) => (random.next() % words as u64) as usize,
    }
}

fn write(memory: &mut [u64], again: bool, random: bool) -> Result<(), Failure> {
    let mut random = random.then(|| Sequence::named(&[memory.len() as u64]));
    for at in 0..memory.len() {
        let index = place(at, memory.len(), &mut random);
        let word = &mut memory[index];
        // At random, some have not been written by the last pass.
        let unchanged = *word == index as u64 || (random.is_some() && *word == 0);
        if again && !unchanged {
            return Err(Failure::new(
                Status::Internal,
                "usemem",
                format!("word {index} holds {word}"),
                "report this",
            ));
        }
        *word = index as u64;
    }
    black_box(memory);
    Ok(())
}

fn read(memory: &[u64], random: bool) {
    let mut random = random.then(|| Sequence::named(&[memory.len() as u64]));
    let mut sum = 0_u64;
    for at in 0..memory.len() {
        sum = sum.wrapping_add(memory[place(at, memory.len(), &mut random)]);
    }
    black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back() {
        let line = line(1 << 30, 1_000_000);
        assert_eq!(line, "1073741824 bytes / 1000000 usecs = 1048576 KB/s");
        assert_eq!(throughput(&line), Some(1 << 20));
        assert_eq!(throughput("5 usecs to free memory"), None);
    }

    #[test]
    fn a_changed_word_is_found_by_the_next_pass() {
        let mut memory = mapped(10_000, false).expect("memory");
        write(&mut memory, false, false).expect("the first checks nothing");
        write(&mut memory, true, false).expect("unchanged");
        memory[77] = 3;
        assert!(write(&mut memory, true, false).is_err());
        let mut memory = mapped(10_000, true).expect("memory");
        for pass in 0..3 {
            write(&mut memory, pass > 0, true).expect("unchanged");
        }
    }
}
