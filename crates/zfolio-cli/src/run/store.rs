//! A store behind the pool: its pager, and its password.

use crate::options::settings::Settings;
use std::fs;
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
    if let Some(password) = &spec.password {
        hide(password.as_bytes());
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

/// Overwrites `secret` in what `ps` shows of this process.
fn hide(secret: &[u8]) {
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
    for at in 0..shown.len().saturating_sub(secret.len() - 1) {
        if shown[at..].starts_with(secret) {
            let _ = memory.write_all_at(&vec![b'*'; secret.len()], begin + at as u64);
        }
    }
}
