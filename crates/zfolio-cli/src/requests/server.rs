//! The socket of a run.
//!
//! Looked at by the thread that looks at the run some times a second: it never waits for who
//! asks. Who is slow, or sends too much, is left.

use crate::fitting::Fitting;
use crate::requests::changes::apply;
use crate::requests::message::{Answer, MOST, Refused, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Timespec;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};
use zfolio_host::segment_file::socket_beside;
use zfolio_runtime::segment::inspection::LEASES;
use zfolio_runtime::segment::{Owner, Segment};

/// Most that ask at a time.
const MOST_ASKING: usize = 8;
/// For so long a request may take to arrive.
const ASKS_WITHIN: Duration = Duration::from_secs(1);

/// The socket, and who is asking.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    asking: Vec<Asking>,
    /// Inspectors, each with what its connection holds.
    holding: Vec<Holding>,
    /// `high` that was asked for last, bytes.
    high: Option<u64>,
}

#[derive(Debug)]
struct Asking {
    stream: UnixStream,
    came: Instant,
    text: Vec<u8>,
}

impl Server {
    /// A socket beside the segment at `control`.
    ///
    /// # Errors
    /// There can be none: the path is too long for one, say.
    pub(crate) fn beside(control: &Path) -> io::Result<Self> {
        let path = socket_beside(control);
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&socket, &address)?;
        let server = Self {
            listener: UnixListener::from(socket),
            path,
            asking: Vec::new(),
            holding: Vec::new(),
            high: None,
        };
        // Nobody can connect before it listens.
        fs::set_permissions(&server.path, Permissions::from_mode(0o600))?;
        listen(&server.listener, 16)?;
        Ok(server)
    }

    /// `high` that somebody asked for, bytes.
    pub(crate) const fn high(&self) -> Option<u64> {
        self.high
    }

    /// Answers whoever has asked, and lets go of what inspectors held that are gone.
    pub(crate) fn look(&mut self, segment: &Segment, fitting: &mut Fitting, now: Instant) {
        self.holding.retain(|holding| holding.goes_on(segment));
        while self.asking.len() < MOST_ASKING {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            if may_ask(&stream) && stream.set_nonblocking(true).is_ok() {
                self.asking.push(Asking {
                    stream,
                    came: now,
                    text: Vec::new(),
                });
            }
        }
        for mut one in std::mem::take(&mut self.asking) {
            match one.read() {
                Arrived::Partly if now.duration_since(one.came) < ASKS_WITHIN => {
                    self.asking.push(one);
                }
                Arrived::Partly | Arrived::Never => {}
                Arrived::Whole => {
                    let (answer, leases) = self.answer(&one.text, segment, fitting);
                    let mut text = serde_json::to_string(&answer).unwrap_or_default();
                    text.push('\n');
                    // (Who does not read it has its own reasons.)
                    let _ = one.stream.write_all(text.as_bytes());
                    if !leases.is_empty() {
                        let stream = one.stream;
                        self.holding.push(Holding { stream, leases });
                    }
                }
            }
        }
    }

    /// The answer, and the leases that the connection is to have.
    fn answer(
        &mut self,
        text: &[u8],
        segment: &Segment,
        fitting: &mut Fitting,
    ) -> (Answer, Vec<usize>) {
        let answer = match serde_json::from_slice(text) {
            Ok(Request::Set(changes)) => match apply(&changes, segment, fitting) {
                Ok(lines) => {
                    let run = changes.group.is_none() && changes.high.is_some();
                    if run {
                        self.high = Some(fitting.chosen().high);
                    }
                    Answer::Changed(lines)
                }
                Err(refused) => Answer::Refused(refused),
            },
            Ok(Request::Inspect(turns)) => match lease(&turns, segment) {
                Ok(leases) => return (Answer::Holding, leases),
                Err(refused) => Answer::Refused(refused),
            },
            Ok(Request::Compact) => {
                let before = segment.config().folios.compactions.fetch_add(1, Relaxed);
                Answer::Compacting(before.wrapping_add(1))
            }
            Err(error) => {
                let why = error.to_string();
                let mend = "use the zfolio that started the run";
                Answer::Refused(Refused::new("request", why, mend))
            }
        };
        (answer, Vec::new())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes a lease for each process that is somebody's slot now.
fn lease(turns: &[u64], segment: &Segment) -> Result<Vec<usize>, Refused> {
    let leases = &segment.config().leases;
    let free = leases.iter().enumerate();
    let free: Vec<usize> = free
        .filter(|(_, lease)| lease.turn.load(Relaxed) == 0)
        .map(|(at, _)| at)
        .take(turns.len())
        .collect();
    let is_owned = |turn: &u64| {
        let mut owned = segment.owners.iter().filter_map(Owner::owned);
        owned.any(|owned| owned.turn == *turn)
    };
    let mend = "look with zfolio stat, and ask again";
    if !turns.iter().all(is_owned) {
        let why = "it has ended, or become another program";
        return Err(Refused::new("the process", why, mend));
    }
    if turns.is_empty() || free.len() < turns.len() {
        let why = format!("as many are held as can be, {LEASES}");
        return Err(Refused::new("zfolio inspect", why, mend));
    }
    for (at, turn) in free.iter().zip(turns) {
        leases[*at].beat.fetch_add(1, Relaxed);
        leases[*at].turn.store(*turn, Release);
    }
    Ok(free)
}

/// An inspector, and its leases.
#[derive(Debug)]
struct Holding {
    stream: UnixStream,
    leases: Vec<usize>,
}

impl Holding {
    /// Whether the inspector is there: then its leases beat, else they are nobody's.
    fn goes_on(&self, segment: &Segment) -> bool {
        let mut ends = [PollFd::new(&self.stream, PollFlags::empty())];
        let ended = poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ends| ends > 0);
        for at in &self.leases {
            let lease = &segment.config().leases[*at];
            if ended {
                lease.turn.store(0, Release);
            } else {
                lease.beat.fetch_add(1, Relaxed);
            }
        }
        !ended
    }
}

/// What has come of a request.
enum Arrived {
    Partly,
    Whole,
    Never,
}

impl Asking {
    fn read(&mut self) -> Arrived {
        let mut part = [0; MOST];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Arrived::Whole,
                Ok(count) if self.text.len() + count <= MOST => {
                    self.text.extend_from_slice(&part[..count]);
                    if self.text.ends_with(b"\n") {
                        return Arrived::Whole;
                    }
                }
                Ok(_) => return Arrived::Never,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Arrived::Partly,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Arrived::Never,
            }
        }
    }
}

/// Whether who connected is our own user, or root.
fn may_ask(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::message::{Changes, Limit};
    use std::net::Shutdown;
    use zfolio_host::segment_file::OwnSegment;

    #[test]
    fn who_asks_is_answered_and_who_does_not_is_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let control = dir.path().join("zfolio-1-0.control");
        let segment = OwnSegment::create(|segment| {
            segment.config().limits.high.store(64 << 20, Relaxed);
            segment.config().limits.shared.store(1, Relaxed);
        })
        .expect("a segment");
        let mut fitting = Fitting::find(Some(64 << 20), Instant::now());
        let mut server = Server::beside(&control).expect("a socket");
        let path = socket_beside(&control);
        let mode = fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        let connect = || UnixStream::connect(&path).expect("it listens");
        let began = Instant::now();
        let mut ask = |server: &mut Server, text: &[u8]| {
            let mut stream = connect();
            stream.write_all(text).expect("written");
            stream.shutdown(Shutdown::Write).expect("ended");
            server.look(&segment, &mut fitting, began);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            serde_json::from_slice::<Answer>(&answer).ok()
        };
        let silent = connect();
        let changes = Changes {
            high: Some(Limit::Bytes(32 << 20)),
            ..Changes::default()
        };
        let set = serde_json::to_vec(&Request::Set(changes)).expect("JSON");
        let answer = ask(&mut server, &set);
        let lines = vec!["high: 64M, now 32M".to_owned()];
        assert_eq!(answer, Some(Answer::Changed(lines)));
        assert_eq!(server.high(), Some(32 << 20));
        assert_eq!(
            ask(&mut server, b"\"compact\""),
            Some(Answer::Compacting(1))
        );
        assert_eq!(segment.config().folios.compactions.load(Relaxed), 1);
        for wrong in [
            &b""[..],
            b"{\"set\":{\"hihg\":{\"bytes\":1}}}",
            b"[]",
            b"{\"inspect\":[]}",
            b"{\"inspect\":[77]}",
        ] {
            let answer = ask(&mut server, wrong);
            assert!(matches!(answer, Some(Answer::Refused(_))), "{answer:?}");
        }
        assert_eq!(ask(&mut server, &[b' '; MOST + 1]), None, "too much");
        // Who holds a process does so as long as the connection is open.
        let _ = segment.claim(std::process::id());
        let turn = segment.turn_of(&segment.slots[0]);
        let held = || segment.config().leases[0].turn.load(Relaxed);
        let mut inspector = connect();
        let text = serde_json::to_string(&Request::Inspect(vec![turn])).expect("JSON");
        writeln!(inspector, "{text}").expect("written");
        server.look(&segment, &mut fitting, began);
        let mut answer = [0; 10];
        inspector.read_exact(&mut answer).expect("answered");
        assert_eq!(&answer, b"\"holding\"\n");
        let beats = || segment.config().leases[0].beat.load(Relaxed);
        let before = beats();
        server.look(&segment, &mut fitting, began);
        assert_eq!((held(), beats()), (turn, before + 1));
        // (A child that another test is just starting may have a copy of it for a moment.)
        inspector.shutdown(Shutdown::Both).expect("it is open");
        server.look(&segment, &mut fitting, began);
        assert_eq!((held(), beats()), (0, before + 1));
        // One that says nothing has been waited for, and is not any more.
        assert_eq!(server.asking.len(), 1);
        server.look(&segment, &mut fitting, began + 2 * ASKS_WITHIN);
        assert_eq!(server.asking.len(), 0);
        drop((silent, server));
        assert!(!path.exists());
        let long = dir.path().join("x".repeat(120)).join("zfolio-1-0.control");
        assert!(Server::beside(&long).is_err());
    }
}
