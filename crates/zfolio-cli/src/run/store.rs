//! A store behind the pool: its pager, and its password.

use crate::options::settings::Settings;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use zfolio_host::exit::{Failure, Status};
use zfolio_pager::keeper::{Exchange, Keeper};

/// Where members meet the pager of the store that is asked for, if one is; its password is
/// not in this process's command line any more then.
///
/// # Errors
/// When no file can be made for it.
pub(super) fn exchange(settings: &mut Settings) -> Result<Option<Exchange>, Failure> {
    let Some(spec) = settings.behind.store_asked_for() else {
        return Ok(None);
    };
    if spec.password.is_some() {
        hide_logins();
    }
    let made = Exchange::create().map_err(|error| {
        let mend = "make /dev/shm or $TMPDIR writable";
        Failure::new(Status::CannotCreate, "--backing", error, mend)
    })?;
    settings.behind.meet_at(made.path());
    Ok(Some(made))
}

/// Starts the pager: this program once more.
///
/// # Errors
/// When that cannot be started.
pub(super) fn start(exchange: Exchange, settings: &Settings) -> Result<Keeper, Failure> {
    let spec = settings.behind.store_asked_for();
    let spec = spec
        .cloned()
        .unwrap_or_else(|| unreachable!("there is an exchange"));
    let started = Keeper::start(exchange, &spec, settings.quiet, || {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("zfolio").arg("pager");
        command.env_remove(crate::options::backing_options::ENV_BACKING);
        command
    });
    started.map_err(|error| {
        let mend = "allow it another process";
        Failure::new(Status::CannotCreate, "the pager of --backing", error, mend)
    })
}

/// Overwrites the users and passwords of stores in what `ps` shows of this process.
fn hide_logins() {
    let Ok(shown) = fs::read("/proc/self/cmdline") else {
        return;
    };
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have anything in it; the 48th field is where arguments begin.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let begin = fields.split(' ').nth(48 - 3).and_then(|of| of.parse().ok());
    let memory = fs::OpenOptions::new().write(true).open("/proc/self/mem");
    let (Some(begin), Ok(memory)) = (begin, memory) else {
        return;
    };
    let begin: u64 = begin;
    for login in logins(&shown) {
        let _ = memory.write_all_at(&vec![b'*'; login.len()], begin + login.start as u64);
    }
}

/// A value as it may be shown: without the user and password of a store.
pub(super) fn without_login(value: &str) -> String {
    let mut shown = value.as_bytes().to_vec();
    for login in logins(value.as_bytes()) {
        shown[login].fill(b'*');
    }
    String::from_utf8_lossy(&shown).into_owned()
}

/// Where in arguments, each ended by a zero, a store's user and password are.
fn logins(shown: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for word in shown.split(|byte| *byte == 0) {
        // (Behind a file, where one is named first.)
        let begins = |scheme: &[u8]| {
            let mut all = word.windows(scheme.len());
            let at = all.position(|of| of == scheme);
            at.map(|at| at + scheme.len())
        };
        let (from, to) = (
            begins(b"redis://")
                .into_iter()
                .chain(begins(b"rediss://"))
                .min(),
            word.iter().rposition(|of| *of == b'@'),
        );
        if let (Some(from), Some(to)) = (from, to)
            && from < to
        {
            found.push(start + from..start + to);
        }
        start += word.len() + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_are_found_and_nothing_else() {
        let shown =
            b"zfolio\0--backing=redis://u:p@q@h\0redis://h\0http://u:p@h\0rediss://:x@h,a=b\0";
        let found: Vec<&[u8]> = logins(shown).into_iter().map(|of| &shown[of]).collect();
        assert_eq!(found, [&b"u:p@q"[..], b":x"]);
        assert_eq!(
            without_login("redis://u:p@h,copies=2"),
            "redis://***@h,copies=2"
        );
        assert_eq!(
            without_login("file:///a redis://u:p@h"),
            "file:///a redis://***@h"
        );
        assert_eq!(without_login("file:/a@b"), "file:/a@b");
    }
}
