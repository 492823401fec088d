//! One connection to a node: every wait on it ends at a time that was set before, however little
//! at a time the node sends, and an answer has a most number of bytes.
//!
//! Commands are packed and answers parsed by the crate `redis`. Its own connections bound each
//! read by itself: a node that sends a byte now and then would hold a thread for ever, and one
//! that announces half a gigabyte would be believed.

use crate::fail::{Fail, fail_by};
use crate::spec::Spec;
use redis::{Cmd, Parser, RedisError, Value};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use zfolio_sys::brief_wait::BriefWait;

/// Bytes of an answer that has no value in it: a map of slots, a report.
pub(crate) const ANSWER: u64 = 1 << 20;

/// What encrypts, once in a process.
pub(crate) fn use_tls(spec: &Spec) {
    if spec.tls {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Whether there are processors, of the machine's and by a quota, for a thread to stay awake while another works.
pub(crate) fn may_stay_awake() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| std::thread::available_parallelism().is_ok_and(|of| of.get() > 1))
}

/// Bytes that went over all connections, protocol and encryption included.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    /// Both, never set back.
    pub(crate) all: AtomicU64,
}

impl Counted {
    fn add(&self, of: &AtomicU64, count: usize) {
        of.fetch_add(count as u64, Relaxed);
        self.all.fetch_add(count as u64, Relaxed);
    }
}

/// A connection.
pub(crate) struct Wire {
    stream: Stream,
    parser: Parser,
}

enum Stream {
    Plain(Bounded),
    Tls(Box<StreamOwned<ClientConnection, Bounded>>),
}

/// A socket whose reads and writes all end at a time.
struct Bounded {
    socket: TcpStream,
    until: Instant,
    /// Bytes that may yet come.
    allowed: u64,
    counted: Arc<Counted>,
    /// For answers.
    brief: BriefWait,
    may_stay_awake: bool,
}

impl Bounded {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(left)
    }
}

impl Bounded {
    /// What has come, or comes first.
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut came = Err(Errno::WOULDBLOCK);
        let has_come = || {
            came = recv(&self.socket, &mut *into, RecvFlags::DONTWAIT);
            came.err() != Some(Errno::WOULDBLOCK)
        };
        let sleep = || {
            let left = Timespec::try_from(self.left()?).map_err(io::Error::other)?;
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            poll(&mut polled, Some(&left))?;
            Ok::<_, io::Error>(())
        };
        self.brief.wait(self.may_stay_awake, has_come, sleep)?;
        let (count, _) = came?;
        Ok(count)
    }
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.left()?;
            if self.allowed == 0 {
                return Err(io::Error::other("an answer that is too long"));
            }
            match self.read_some(into) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(count) => {
                    self.allowed = self.allowed.saturating_sub(count as u64);
                    self.counted.add(&self.counted.received, count);
                    return Ok(count);
                }
                failed => return failed,
            }
        }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.socket.set_write_timeout(Some(left))?;
        let count = self.socket.write(bytes)?;
        self.counted.add(&self.counted.sent, count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Wire {
    /// Connects to `node` and logs in, all of it by `until`.
    pub(crate) fn open(
        node: &str,
        spec: &Spec,
        counted: &Arc<Counted>,
        until: Instant,
    ) -> Result<Self, Fail> {
        let stream = connect(node, until).and_then(|socket| {
            socket.set_nodelay(true)?;
            // (A node of this machine wants a processor to answer: it wakes who sleeps on its own.)
            let is_elsewhere = socket.peer_addr()?.ip() != socket.local_addr()?.ip();
            let bounded = Bounded {
                socket,
                until,
                allowed: ANSWER,
                counted: counted.clone(),
                brief: BriefWait::default(),
                may_stay_awake: is_elsewhere && may_stay_awake(),
            };
            if !spec.tls {
                return Ok(Stream::Plain(bounded));
            }
            let host = node.rsplit_once(':').map_or(node, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let session = ClientConnection::new(trust()?, name).map_err(io::Error::other)?;
            let stream = StreamOwned::new(session, bounded);
            Ok(Stream::Tls(Box::new(stream)))
        });
        let mut wire = Self {
            stream: stream.map_err(|error| fail_of_io(&error))?,
            parser: Parser::new(),
        };
        if let Some(password) = &spec.password {
            let mut command = redis::cmd("AUTH");
            command.arg(spec.user.as_ref()).arg(password);
            wire.send(&command.get_packed_command(), until)?;
            if let Value::ServerError(error) = wire.receive(until, ANSWER)? {
                return Err(match fail_by(error.code(), &error.to_string()) {
                    Fail::Refused(why) => Fail::Refused(format!("it refuses the login: {why}")),
                    other => other,
                });
            }
        }
        Ok(wire)
    }

    fn bounded(&mut self) -> &mut Bounded {
        match &mut self.stream {
            Stream::Plain(bounded) => bounded,
            Stream::Tls(stream) => stream.get_mut(),
        }
    }

    /// Sends commands.
    pub(crate) fn send(&mut self, packed: &[u8], until: Instant) -> Result<(), Fail> {
        let bounded = self.bounded();
        // (A handshake is answered too.)
        (bounded.until, bounded.allowed) = (until, ANSWER);
        let sent = match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(packed),
            Stream::Tls(stream) => stream.write_all(packed).and_then(|()| stream.flush()),
        };
        sent.map_err(|error| fail_of_io(&error))
    }

    /// The next answer, of `most` bytes; an error of the server is one.
    pub(crate) fn receive(&mut self, until: Instant, most: u64) -> Result<Value, Fail> {
        let bounded = self.bounded();
        (bounded.until, bounded.allowed) = (until, most);
        let parsed = match &mut self.stream {
            Stream::Plain(stream) => self.parser.parse_value(stream),
            Stream::Tls(stream) => self.parser.parse_value(stream),
        };
        parsed.map_err(|error| fail_of(&error))
    }
}

/// A packed command.
pub(crate) fn pack(command: &Cmd, into: &mut Vec<u8>) {
    command.write_packed_command(into);
}

/// Connects to one of the addresses that a node's name has.
fn connect(node: &str, until: Instant) -> io::Result<TcpStream> {
    let mut why = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses(node, until)? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => return Ok(socket),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// What a node's name stands for. A resolver takes as long as it is configured to: it is asked
/// by a thread that nobody waits for any longer than `until`.
fn addresses(node: &str, until: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = node.parse() {
        return Ok(vec![address]);
    }
    let (sender, found) = channel();
    let name = node.to_owned();
    std::thread::Builder::new().spawn(move || {
        let _ = sender.send(name.to_socket_addrs().map(Iterator::collect));
    })?;
    let left = until.saturating_duration_since(Instant::now());
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    found.recv_timeout(left).unwrap_or_else(late)
}

/// Whom TLS trusts: whom the system does.
fn trust() -> io::Result<Arc<ClientConfig>> {
    static TRUST: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(known) = TRUST.get() {
        return Ok(known.clone());
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(io::Error::other("the system has no certificates for TLS"));
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TRUST.get_or_init(|| Arc::new(config)).clone())
}

fn fail_of_io(error: &io::Error) -> Fail {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            Fail::Slow("it does not answer".into())
        }
        _ => Fail::Later(error.to_string()),
    }
}

fn fail_of(error: &RedisError) -> Fail {
    if error.is_timeout() {
        return Fail::Slow("it does not answer".into());
    }
    // (What is no answer at all: the connection is closed, and opened again.)
    Fail::Later(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A node that does `with` to who connects, and keeps the connection.
    fn node(with: impl Fn(TcpStream) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                with(stream);
            }
        });
        address
    }

    fn spec(url: &str) -> Spec {
        let spec = Spec::parse(url).unwrap();
        super::use_tls(&spec);
        spec
    }

    #[track_caller]
    fn fails_in_time(with: impl FnOnce(Instant) -> Result<(), Fail>) -> Fail {
        let begin = Instant::now();
        let fail = with(begin + Duration::from_millis(300)).unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(5), "{fail}");
        fail
    }

    /// Accepts and says nothing; or a byte now and then: with a login, with TLS, and when a
    /// command is to be answered.
    #[test]
    fn a_node_that_says_nothing_or_little_is_given_up_in_time() {
        let silent = node(std::mem::forget);
        let trickle = |bytes: &'static [u8]| {
            node(move |mut stream| {
                std::thread::spawn(move || {
                    for byte in bytes.iter().cycle() {
                        if stream.write_all(&[*byte]).is_err() {
                            return;
                        }
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
            })
        };
        let slow = trickle(b"$60000\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        // (A handshake's record of 16 KiB.)
        let slow_tls = trickle(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc");
        let counted = Arc::default();
        for at in [&silent, &slow] {
            let login = spec("redis://me:secret@h");
            let fail = fails_in_time(|until| Wire::open(at, &login, &counted, until).map(drop));
            assert!(matches!(fail, Fail::Slow(_)), "{fail:?}");
            let fail = fails_in_time(|until| {
                let mut wire = Wire::open(at, &spec("redis://h"), &counted, until)?;
                wire.send(b"PING\r\n", until)?;
                wire.receive(until, ANSWER).map(drop)
            });
            assert!(matches!(fail, Fail::Slow(_)), "{fail:?}");
        }
        for at in [&silent, &slow_tls] {
            fails_in_time(|until| {
                let mut wire = Wire::open(at, &spec("rediss://h"), &counted, until)?;
                wire.send(b"PING\r\n", until)?;
                wire.receive(until, ANSWER).map(drop)
            });
        }
    }

    #[test]
    fn an_answer_has_a_most_number_of_bytes() {
        let endless = node(|mut stream| {
            std::thread::spawn(move || {
                let _ = stream.write_all(b"$500000000\r\n");
                while stream.write_all(&[b'x'; 4096]).is_ok() {}
            });
        });
        let counted = Arc::default();
        let until = Instant::now() + Duration::from_secs(20);
        let mut wire = Wire::open(&endless, &spec("redis://h"), &counted, until).unwrap();
        let fail = wire.receive(until, 1 << 16).unwrap_err();
        assert!(fail.to_string().contains("too long"), "{fail:?}");
        assert!(counted.received.load(Relaxed) < 1 << 18);
    }

    #[test]
    fn what_is_no_answer_is_a_failure() {
        for text in [&b"what?\r\n"[..], b"*1\r\n$x\r\n"] {
            let at = node(move |mut stream| {
                let _ = stream.write_all(text);
            });
            let counted = Arc::default();
            let until = Instant::now() + Duration::from_secs(5);
            let mut wire = Wire::open(&at, &spec("redis://h"), &counted, until).unwrap();
            let got = wire.receive(until, ANSWER);
            assert!(
                matches!(got, Err(Fail::Later(_) | Fail::Slow(_))),
                "{got:?}"
            );
        }
    }

    #[test]
    fn errors_of_a_server_are_told_apart() {
        assert_eq!(fail_by("OOM", "x"), Fail::Full);
        assert_eq!(fail_by("MOVED", "x"), Fail::Later("x".into()));
        assert_eq!(fail_by("WRONGTYPE", "x"), Fail::Refused("x".into()));
    }
}
