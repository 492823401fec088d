//! Cases that need a process for themselves, once for each engine.

use super::ways;
use std::process::{Command, Output};
use zfolio::Serving;

/// How regions are served in a case's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// By userfaultfd.
    Moving,
    /// By page protection, as the environment says.
    Protecting,
    /// Likewise, since userfaultfd is refused, as in a container.
    Refused,
}

const ENGINES: [(&str, Engine); 3] = [
    ("moving", Engine::Moving),
    ("protecting", Engine::Protecting),
    ("refused", Engine::Refused),
];

/// How they are served in this process.
pub fn engine() -> Engine {
    let name = std::env::var("ZFOLIO_ALONE").expect("a case's process");
    let known = ENGINES.iter().find(|known| known.0 == name);
    known.expect("a name from above").1
}

/// Runs `body` in a process of its own, once for each engine, and gives `check`
/// how that ended.
pub fn alone(case: &str, body: impl FnOnce(), check: impl Fn(&Output)) {
    if std::env::var_os("ZFOLIO_ALONE").is_some() {
        if engine() == Engine::Refused {
            refuse_userfaultfd();
        }
        return body();
    }
    for (name, engine) in ENGINES {
        if engine == Engine::Moving && !ways().contains(&Serving::InThread) {
            continue;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([case, "--exact", "--nocapture", "--test-threads=1"]);
        command
            .env("ZFOLIO_ALONE", name)
            .env_remove("ZFOLIO_REGIONS");
        if engine == Engine::Protecting {
            command.env("ZFOLIO_REGIONS", "protect");
        }
        check(&command.output().unwrap());
    }
}

/// Has userfaultfd, and ioctls on its device, answer EPERM in this thread and
/// those it makes.
fn refuse_userfaultfd() {
    const NEW: u32 = 0xaa00;
    let step = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: code.try_into().unwrap(),
        jt,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let number = |number: libc::c_long| u32::try_from(number).unwrap();
    let eperm = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let mut code = [
        step(load, 0, 0, 0),
        step(equal, number(libc::SYS_userfaultfd), 3, 0),
        step(equal, number(libc::SYS_ioctl), 0, 3),
        step(load, 24, 0, 0), // the second argument
        step(equal, NEW, 0, 1),
        step(libc::BPF_RET, eperm, 0, 0),
        step(libc::BPF_RET, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: code.len().try_into().unwrap(),
        filter: code.as_mut_ptr(),
    };
    // SAFETY: a filter that lives for the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        let set = libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program);
        assert_eq!(set, 0);
        assert_eq!(libc::syscall(libc::SYS_userfaultfd, 1), -1);
    }
}

pub fn assert_passed(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}
