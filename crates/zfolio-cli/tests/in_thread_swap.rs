//! On a host with swap of its own, without privilege: what is absent need not be empty.

mod memory;
mod nobody;
mod support;

use memory::compiled;
use nobody::{Nobody, WAYS};
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use zfolio_sys::swap::{swapoff, swapon};

const CONTROL: &str = "/sys/class/zram-control";

/// Swap in a zram of our own, as long as it lives: what goes there is absent at once.
struct Swap {
    number: String,
    device: CString,
}

impl Swap {
    fn begin() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            support::skip("swap: only root may have some");
            return None;
        }
        let Ok(number) = fs::read_to_string(format!("{CONTROL}/hot_add")) else {
            support::skip("swap: there is no zram here");
            return None;
        };
        let number = number.trim().to_owned();
        let device = CString::new(format!("/dev/zram{number}")).expect("a name");
        let swap = Self { number, device };
        let path = swap.device.to_str().expect("a name");
        fs::write(format!("/sys/block/zram{}/disksize", swap.number), "128M").expect("a size");
        let made = Command::new("mkswap").arg(path).output().expect("mkswap");
        assert!(made.status.success(), "{made:?}");
        swapon(&swap.device, 10).expect("swap");
        Some(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let _ = swapoff(&self.device);
        let _ = fs::write(format!("/sys/block/zram{}/reset", self.number), "1");
        let _ = fs::write(format!("{CONTROL}/hot_remove"), &self.number);
    }
}

/// What a program prints next.
fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

#[test]
fn what_the_kernel_has_swapped_out_is_not_taken_for_empty() {
    let (Some(nobody), Some(program), Some(pageout), Some(_swap)) = (
        Nobody::new(),
        compiled("swapped"),
        compiled("pageout"),
        Swap::begin(),
    ) else {
        return;
    };
    let program = nobody.program(&program);
    for way in WAYS {
        let Some(mut command) = nobody.command(way) else {
            continue;
        };
        let stats = nobody.directory().join("swapped.json");
        command.args(["--quiet", "--high", "64M", "--stats"]);
        command.arg(&stats).arg("--").arg(&program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().expect("it starts");
        let mut told = BufReader::new(run.stdout.take().expect("piped"));
        let what = line(&mut told);
        let words: Vec<&str> = what.split(' ').collect();
        let [_, _, pages] = words[..] else {
            panic!("{way}: {what}");
        };
        let moved = Command::new(&pageout)
            .args(&words)
            .output()
            .expect("it runs");
        assert!(moved.status.success(), "{way}: {moved:?}");
        run.stdin
            .take()
            .expect("piped")
            .write_all(b"\n")
            .expect("it reads");
        // (Nothing would be shown by what is present; a few pages wait for their processor's list.)
        let absent = line(&mut told);
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let most = absent.strip_prefix("absent ").map(number);
        assert!(
            most >= Some(number(pages) / 16 * 15),
            "{way}: {absent} of {pages}"
        );
        let status = run.wait().expect("it ends");
        assert!(status.success(), "{way}: {status}");
        let stats = fs::read_to_string(&stats).expect("statistics");
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        let out = stats["total"]["counters"]["pages_out"].as_u64();
        assert!(out > Some(1000), "{way}: {out:?}");
    }
}
