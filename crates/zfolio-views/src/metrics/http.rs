//! One HTTP request and its answer, within bounds of size and time.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Most bytes of a request that are read; who sends more is refused.
const MOST: usize = 8 << 10;
/// Longest that a request may take to arrive, and an answer to leave, each.
const LONGEST: Duration = Duration::from_secs(5);
/// What the text is, as Prometheus asks for it.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A connection: both kinds of sockets can be given a time.
pub(crate) trait Connection: Read + Write {
    /// The longest that one read or write may take from now on.
    fn set_time(&self, longest: Duration) -> io::Result<()>;
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// The metrics; `true`: without the text, as HEAD asks.
    Metrics(bool),
    /// Something that is refused so.
    Refused(&'static str),
}

/// Reads a request and answers it with what `text` makes.
///
/// # Errors
/// When the peer is gone or too slow.
pub(crate) fn answer<C: Connection>(
    connection: &mut C,
    text: impl FnOnce() -> Option<String>,
) -> io::Result<()> {
    let asked = match head(connection)? {
        Some(head) => judge(&head),
        None => Asked::Refused("431 Request Header Fields Too Large"),
    };
    let (status, kind, body, only_head) = match asked {
        Asked::Metrics(only_head) => match text() {
            Some(text) => ("200 OK", OPENMETRICS, text, only_head),
            None => failed("500 Internal Server Error"),
        },
        Asked::Refused(status) => failed(status),
    };
    let mut whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Allow: GET, HEAD\r\n\r\n",
        body.len()
    );
    if !only_head {
        whole.push_str(&body);
    }
    send(connection, whole.as_bytes())
}

fn failed(status: &'static str) -> (&'static str, &'static str, String, bool) {
    (status, PLAIN, format!("{status}\n"), false)
}

/// The request up to the empty line that ends its head; `None` if that does not come in [`MOST`].
fn head<C: Connection>(connection: &mut C) -> io::Result<Option<Vec<u8>>> {
    let (mut head, begin) = (Vec::new(), Instant::now());
    let mut part = [0; 1024];
    loop {
        connection.set_time(left(begin)?)?;
        let count = match connection.read(&mut part) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        head.extend_from_slice(&part[..count]);
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok((end <= MOST).then_some(head));
        }
        if head.len() > MOST {
            return Ok(None);
        }
    }
}

fn judge(head: &[u8]) -> Asked {
    const BAD: Asked = Asked::Refused("400 Bad Request");
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else {
        return BAD;
    };
    let [method, target, version] = line.split(' ').collect::<Vec<_>>()[..] else {
        return BAD;
    };
    if !version.starts_with("HTTP/1.") {
        return BAD;
    }
    match (method, target.split('?').next()) {
        ("GET", Some("/metrics")) => Asked::Metrics(false),
        ("HEAD", Some("/metrics")) => Asked::Metrics(true),
        ("GET" | "HEAD", _) => Asked::Refused("404 Not Found"),
        _ => Asked::Refused("405 Method Not Allowed"),
    }
}

fn send<C: Connection>(connection: &mut C, mut rest: &[u8]) -> io::Result<()> {
    let begin = Instant::now();
    while !rest.is_empty() {
        connection.set_time(left(begin)?)?;
        match connection.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    connection.flush()
}

/// What is left of [`LONGEST`].
fn left(begin: Instant) -> io::Result<Duration> {
    let left = LONGEST.saturating_sub(begin.elapsed());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer that sends bytes a few at a time and keeps what it gets.
    struct Peer<'a> {
        sends: &'a [u8],
        step: usize,
        gets: Vec<u8>,
    }

    impl Read for Peer<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.step.min(self.sends.len()).min(into.len());
            let (now, later) = self.sends.split_at(count);
            into[..count].copy_from_slice(now);
            self.sends = later;
            Ok(count)
        }
    }

    impl Write for Peer<'_> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            let count = self.step.min(from.len());
            self.gets.extend_from_slice(&from[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Connection for Peer<'_> {
        fn set_time(&self, longest: Duration) -> io::Result<()> {
            assert!(!longest.is_zero() && longest <= LONGEST);
            Ok(())
        }
    }

    fn exchange(sends: &[u8], step: usize) -> io::Result<String> {
        let gets = Vec::new();
        let mut peer = Peer { sends, step, gets };
        answer(&mut peer, || Some("a 1\n# EOF\n".into()))?;
        Ok(String::from_utf8(peer.gets).expect("text"))
    }

    #[test]
    fn metrics_are_got_however_the_bytes_come() {
        for step in [1, 3, 5000] {
            let told = exchange(b"GET /metrics?x HTTP/1.1\r\nHost: a\r\n\r\n", step).unwrap();
            assert!(told.starts_with("HTTP/1.1 200 OK\r\n"), "{told}");
            assert!(told.contains("openmetrics-text; version=1.0.0"), "{told}");
            assert!(told.contains("\r\nContent-Length: 10\r\n"), "{told}");
            assert!(told.ends_with("\r\n\r\na 1\n# EOF\n"), "{told}");
        }
        let head = exchange(b"HEAD /metrics HTTP/1.0\r\n\r\n", 99).unwrap();
        assert!(head.ends_with("\r\n\r\n") && head.contains("Content-Length: 10"));
    }

    #[test]
    fn all_else_is_refused() {
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"GET /metricsx HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\xff\xfe a b\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            let told = exchange(request, 7).unwrap();
            assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{told}");
            assert!(!told.contains("# EOF"), "{told}");
        }
        let long = [b"GET /metrics HTTP/1.1\r\nX: ", &[b'x'; 9000][..]].concat();
        let told = exchange(&long, 4000).unwrap();
        assert!(told.starts_with("HTTP/1.1 431 "), "{told}");
        assert!(
            exchange(b"GET /metrics HTTP/1.1\r\n", 9).is_err(),
            "cut off"
        );
    }
}
