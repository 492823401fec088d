//! Who listens for those that ask for metrics.
//!
//! A thread of `zfolio run` of its own; nothing waits for it, and it takes part in nothing. It
//! answers `MOST` at a time, each on a thread that lasts as long as the connection, which
//! `http` limits; others are told to come again.

use super::http::{Connection, answer};
use crate::address::Address;
use crate::look::Look;
use crate::metrics::collect;
use rustix::fs::Mode;
use std::fs;
use std::io;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use zfolio_host::exit::{Failure, Status};

/// Most connections at a time.
const MOST: usize = 4;
/// What is waited where no connection could be taken: no descriptor is free, say.
const AFTER_FAILURE: Duration = Duration::from_millis(200);
/// Stack of a thread: it makes text on the heap.
const STACK: usize = 256 << 10;

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that nobody is answered on yet.
#[derive(Debug)]
pub struct Listening {
    socket: Socket,
    address: Address,
    /// The path that goes with it.
    path: Option<Removed>,
}

/// Removes a socket's path when it is dropped.
#[derive(Debug)]
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Metrics that are being served. What remains of it goes when it is dropped.
#[derive(Debug)]
pub struct Serving {
    _path: Option<Removed>,
}

impl Listening {
    /// Opens the socket. Called while this process has one thread: the mask of a file's mode is
    /// the process's.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn open(address: &Address) -> Result<Self, Failure> {
        let refused = |error: io::Error| {
            let mend = "name another port or path";
            Failure::new(
                Status::CannotCreate,
                format!("--metrics {address}"),
                error,
                mend,
            )
        };
        match address {
            Address::Tcp(at) => {
                let socket = TcpListener::bind(at).map_err(refused)?;
                let address = Address::Tcp(socket.local_addr().map_err(refused)?);
                Ok(Self {
                    socket: Socket::Tcp(socket),
                    address,
                    path: None,
                })
            }
            Address::Unix(path) => {
                let socket = bind_path(path).map_err(refused)?;
                Ok(Self {
                    socket: Socket::Unix(socket),
                    address: address.clone(),
                    path: Some(Removed(path.clone())),
                })
            }
        }
    }

    /// Where: with the port that was given where 0 was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Answers from now on, with what `look` sees.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn serve(self, look: Look) -> io::Result<Serving> {
        let Self { socket, path, .. } = self;
        let look = Arc::new(Mutex::new(look));
        let busy = Arc::new(AtomicUsize::new(0));
        let name = || thread::Builder::new().name("zfolio-metrics".into());
        name().stack_size(STACK).spawn(move || {
            loop {
                let taken = match &socket {
                    Socket::Tcp(socket) => socket.accept().map(|(one, _)| Stream::Tcp(one)),
                    Socket::Unix(socket) => socket.accept().map(|(one, _)| Stream::Unix(one)),
                };
                let Ok(mut stream) = taken else {
                    thread::sleep(AFTER_FAILURE);
                    continue;
                };
                if busy.load(Ordering::Acquire) >= MOST {
                    let _ = stream.set_time(Duration::from_millis(1));
                    let _ = stream.write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
                    continue;
                }
                busy.fetch_add(1, Ordering::AcqRel);
                let (look, mine) = (Arc::clone(&look), Arc::clone(&busy));
                let begun = name().stack_size(STACK).spawn(move || {
                    // Who has gone has gone.
                    let _ = answer(&mut stream, || text(&look));
                    mine.fetch_sub(1, Ordering::AcqRel);
                });
                if begun.is_err() {
                    busy.fetch_sub(1, Ordering::AcqRel);
                }
            }
        })?;
        Ok(Serving { _path: path })
    }
}

fn text(look: &Mutex<Look>) -> Option<String> {
    let seen = look.lock().unwrap_or_else(PoisonError::into_inner).look();
    collect::text(seen).ok()
}

/// A socket at `path` that its owner alone may use. One that a killed run has left is replaced.
fn bind_path(path: &Path) -> io::Result<UnixListener> {
    let is_left = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_left {
        fs::remove_file(path)?;
    }
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let socket = UnixListener::bind(path);
    rustix::process::umask(before);
    socket
}

/// A connection of either kind.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl io::Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl io::Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(from),
            Self::Unix(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for Stream {
    fn set_time(&self, longest: Duration) -> io::Result<()> {
        let time = Some(longest);
        match self {
            Self::Tcp(stream) => stream
                .set_read_timeout(time)
                .and_then(|()| stream.set_write_timeout(time)),
            Self::Unix(stream) => stream
                .set_read_timeout(time)
                .and_then(|()| stream.set_write_timeout(time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    fn served(address: &Address) -> (zfolio_host::segment_file::OwnSegment, Address, Serving) {
        let own = crate::example::example();
        let look = Look::open(own.path()).expect("it is there");
        let listening = Listening::open(address).expect("a socket");
        let address = listening.address().clone();
        (own, address, listening.serve(look).expect("a thread"))
    }

    fn ask(mut stream: impl Read + Write) -> io::Result<String> {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn a_path_is_its_owners_and_goes_with_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics");
        let address = Address::Unix(path.clone());
        // (What a killed run has left.)
        drop(UnixListener::bind(&path).unwrap());
        let (_own, _, serving) = served(&address);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = ask(UnixStream::connect(&path).unwrap()).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 200 ") && text.ends_with("# EOF\n"),
            "{text}"
        );
        assert!(Listening::open(&address).is_err(), "somebody listens there");
        drop(serving);
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        assert!(Listening::open(&address).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
    }

    /// Those who connect and say nothing take all places, and give them back in time.
    #[test]
    fn silent_ones_take_a_bounded_number_of_places() {
        let any = Address::parse("127.0.0.1:0").unwrap();
        let (_own, address, _serving) = served(&any);
        let Address::Tcp(at) = address else {
            panic!("a port")
        };
        let connect = || TcpStream::connect(at).unwrap();
        assert!(ask(connect()).unwrap().starts_with("HTTP/1.1 200 "));
        let silent: Vec<TcpStream> = (0..MOST).map(|_| connect()).collect();
        thread::sleep(Duration::from_millis(100));
        let told = ask(connect());
        assert!(
            told.as_ref()
                .map_or(true, |told| told.starts_with("HTTP/1.1 503 ")),
            "{told:?}"
        );
        drop(silent);
        let again = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            ask(connect()).is_ok_and(|told| told.starts_with("HTTP/1.1 200 "))
        });
        assert!(again);
    }
}
