//! redis-server with a skewed load: nine requests of ten go to a tenth of the
//! keys. One connection, one request at a time: what a client waits is what is
//! measured. Every answer is compared with what was written.
//!
//! The connection is TCP's, on loopback. On a Unix socket the kernel wakes who waits for an answer
//! also when the server has read the request (there is room to write then). Where both share a
//! processor that is another switch of tasks, or none, by what the scheduler makes of how long either
//! ran lately: a server that computes a little longer before each call answers much later.

use super::lines::tell;
use crate::keeper::wait_until;
use crate::sequence::Sequence;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Keys written with one round trip while loading.
const PIPELINE: u64 = 64;
/// Percent of the requests that go to the hot tenth, and that write.
const HOT: u32 = 90;
const WRITES: u32 = 10;

/// Ends with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Loads `keys` keys, then asks `requests` times.
pub(super) fn run(keys: u64, requests: u64, dir: &Path, seed: u64) -> Result<(), String> {
    // A port that is free now; should another take it meanwhile, the server ends.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let address = free.map_err(|error| format!("no port for redis-server: {error}"))?;
    let child = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--port")
        .arg(address.port().to_string())
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("redis-server: {error}"))?;
    let _server = Server(child);
    let mut stream = None;
    wait_until(Duration::from_secs(60), || {
        stream = TcpStream::connect(address).ok();
        stream.is_some()
    });
    let stream = stream.ok_or("redis-server does not answer")?;
    Client::new(stream)
        .and_then(|mut client| {
            client.load(keys)?;
            client.ask(keys, requests, seed)
        })
        .map_err(|error| format!("redis: {error}"))
}

struct Client {
    to: TcpStream,
    from: BufReader<TcpStream>,
    /// Times each key was written again: the value says which.
    versions: Vec<u32>,
}

impl Client {
    fn new(to: TcpStream) -> std::io::Result<Self> {
        to.set_nodelay(true)?;
        let from = BufReader::new(to.try_clone()?);
        Ok(Self {
            to,
            from,
            versions: Vec::new(),
        })
    }

    fn load(&mut self, keys: u64) -> std::io::Result<()> {
        let begin = Instant::now();
        self.versions = vec![0; usize::try_from(keys).unwrap_or(0)];
        let mut key = 0;
        while key < keys {
            let last = (key + PIPELINE).min(keys);
            let mut text = Vec::new();
            for key in key..last {
                set(&mut text, key, &value(key, 0));
            }
            self.to.write_all(&text)?;
            for _ in key..last {
                self.expect_ok()?;
            }
            key = last;
        }
        tell("load", keys as f64 / begin.elapsed().as_secs_f64(), "/s");
        Ok(())
    }

    fn ask(&mut self, keys: u64, requests: u64, seed: u64) -> std::io::Result<()> {
        let mut random = Sequence::named(&[seed, keys]);
        let mut waited: Vec<Duration> = Vec::new();
        let begin = Instant::now();
        for _ in 0..requests {
            let among = if random.chance(HOT) {
                (keys / 10).max(1)
            } else {
                keys
            };
            // The hot keys lie all over.
            let key = (random.next() % among).wrapping_mul(2_654_435_761) % keys;
            let slot = usize::try_from(key).unwrap_or(0);
            let asked = Instant::now();
            if random.chance(WRITES) {
                self.versions[slot] += 1;
                let mut text = Vec::new();
                set(&mut text, key, &value(key, self.versions[slot]));
                self.to.write_all(&text)?;
                self.expect_ok()?;
            } else {
                let name = name(key);
                let text = format!("*2\r\n$3\r\nGET\r\n${}\r\n{name}\r\n", name.len());
                self.to.write_all(text.as_bytes())?;
                let found = self.bulk()?;
                if found != value(key, self.versions[slot]).as_bytes() {
                    let told = format!("the value of {name} is not what was written");
                    return Err(std::io::Error::other(told));
                }
            }
            waited.push(asked.elapsed());
        }
        let seconds = begin.elapsed().as_secs_f64();
        tell("requests", requests as f64 / seconds, "/s");
        waited.sort_unstable();
        let at = |percent: usize| waited.get(waited.len() * percent / 100);
        let p99 = at(99).or(waited.last()).copied().unwrap_or_default();
        tell("p99", p99.as_secs_f64() * 1e6, "us");
        Ok(())
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn expect_ok(&mut self) -> std::io::Result<()> {
        match self.line()?.as_str() {
            "+OK" => Ok(()),
            other => Err(std::io::Error::other(other.to_owned())),
        }
    }

    fn bulk(&mut self) -> std::io::Result<Vec<u8>> {
        let line = self.line()?;
        let len = line.strip_prefix('$').and_then(|len| len.parse().ok());
        let len: usize = len.ok_or_else(|| std::io::Error::other(line.clone()))?;
        let mut bytes = vec![0; len + 2];
        self.from.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }
}

fn name(key: u64) -> String {
    format!("customer:{key:09}")
}

/// About a kilobyte of text, a tenth of it noise.
fn value(key: u64, version: u32) -> String {
    let mut random = Sequence::named(&[key, u64::from(version)]);
    let mut text = format!("{{\"id\":{key},\"version\":{version},\"orders\":[");
    for order in 0..14 {
        let word = random.next();
        let _ = write!(
            text,
            "{{\"order\":{order},\"item\":\"no {:04x}\",\"price\":{},\"state\":\"delivered\"}},",
            word >> 48,
            word & 0xff
        );
    }
    text.push_str("null]}");
    text
}

fn set(text: &mut Vec<u8>, key: u64, value: &str) {
    let name = name(key);
    // Writing to a vector cannot fail.
    let _ = write!(
        text,
        "*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n",
        name.len(),
        value.len()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_key_and_version() {
        assert_eq!(value(1, 0), value(1, 0));
        assert_ne!(value(1, 0), value(1, 1));
        assert_ne!(value(1, 0), value(2, 0));
        assert!((700..1200).contains(&value(123_456, 0).len()));
    }

    #[test]
    fn a_small_load_on_a_real_server() {
        if !crate::rig::is_installed("redis-server") {
            eprintln!("SKIPPED: no redis-server here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        run(200, 500, dir.path(), 1).unwrap();
    }
}
