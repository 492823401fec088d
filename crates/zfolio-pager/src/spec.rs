//! What a store is asked for: `redis://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]` and
//! choices behind it, `,NAME=VALUE` each.

use std::fmt;
use std::time::Duration;

/// Most copies of a value.
pub const MOST_COPIES: usize = 3;

/// What is written, in one line.
pub const FORM: &str = "write redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][,copies=N][,wait=N][,size=SIZE][,bandwidth=SIZE][,ttl=SECONDS][,deadline=SECONDS][,on-lost=kill|wait][,password-file=PATH]";

/// A store, and how it is to be used.
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    /// TLS (`rediss://`).
    pub tls: bool,
    /// Of the access list.
    pub user: Option<String>,
    /// Given in the URL, or read from a file.
    pub password: Option<String>,
    /// Nodes to begin with: host and port.
    pub nodes: Vec<(String, u16)>,
    /// Copies of each value, each on another shard.
    pub copies: usize,
    /// Replicas that must have a value before it counts as kept.
    pub wait: u32,
    /// Bytes a second, both ways together, that writes may not go beyond; `None`: no limit.
    pub bandwidth: Option<u64>,
    /// After how long values go by themselves when nobody renews that.
    pub ttl: Duration,
    /// How long a page may be waited for; then the process ends.
    pub deadline: Duration,
    /// ... or is waited for, for as long as it takes.
    pub wait_for_ever: bool,
}

impl Spec {
    /// Reads one. `size=` is the caller's to have taken out.
    ///
    /// # Errors
    /// What is wrong, in one line that has no password in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tls, rest) = if let Some(rest) = text.strip_prefix("rediss://") {
            (true, rest)
        } else if let Some(rest) = text.strip_prefix("redis://") {
            (false, rest)
        } else {
            return Err(FORM.into());
        };
        // (A password may have commas and equals signs; hosts have no @.)
        let (login, rest) = match rest.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, rest),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            Some((user, password)) => (unescape(user)?, unescape(password)?),
            None => (None, None),
        };
        let mut spec = Self {
            tls,
            user,
            password,
            nodes: Vec::new(),
            copies: 1,
            wait: 0,
            bandwidth: None,
            ttl: Duration::from_secs(600),
            deadline: Duration::from_secs(30),
            wait_for_ever: false,
        };
        for part in rest.split(',') {
            match part.split_once('=') {
                None => spec.nodes.push(node(part)?),
                Some((name, value)) => spec.choose(name, value)?,
            }
        }
        if spec.nodes.is_empty() {
            return Err(FORM.into());
        }
        Ok(spec)
    }

    fn choose(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |least: u64, most: u64| {
            let number = value.parse().ok();
            number
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| format!("{name}={value}: a number from {least} to {most}"))
        };
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        match name {
            "copies" => self.copies = small(number(1, MOST_COPIES as u64)?) as usize,
            "wait" => self.wait = small(number(0, 9)?),
            "bandwidth" => self.bandwidth = Some(rate(value)?),
            "ttl" => self.ttl = Duration::from_secs(number(10, 7 * 86400)?),
            "deadline" => self.deadline = Duration::from_secs(number(1, 86400)?),
            "on-lost" => {
                self.wait_for_ever = match value {
                    "kill" => false,
                    "wait" => true,
                    _ => return Err(format!("on-lost={value}: kill or wait")),
                }
            }
            "password-file" => {
                let read = std::fs::read_to_string(value);
                let text = read.map_err(|error| format!("password-file={value}: {error}"))?;
                let line = text.lines().next().unwrap_or_default();
                self.password = Some(line.to_owned()).filter(|line| !line.is_empty());
            }
            _ => return Err(format!("{name}: no such choice; {FORM}")),
        }
        Ok(())
    }

    /// The nodes for people: no password.
    #[must_use]
    pub fn shown(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let nodes: Vec<String> = self.nodes.iter().map(|of| address(&of.0, of.1)).collect();
        format!("{scheme}://{}", nodes.join(","))
    }

    /// As text that [`Self::parse`] reads, password included: for a pipe, not for people.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let login = match (&self.user, &self.password) {
            (None, None) => String::new(),
            (user, password) => {
                let part = |of: &Option<String>| escape(of.as_deref().unwrap_or_default());
                format!("{}:{}@", part(user), part(password))
            }
        };
        let shown = self.shown();
        let (scheme, nodes) = shown.split_once("://").unwrap_or(("redis", &shown));
        format!(
            "{scheme}://{login}{nodes},copies={},wait={}{},ttl={},deadline={},on-lost={}",
            self.copies,
            self.wait,
            self.bandwidth
                .map_or(String::new(), |rate| format!(",bandwidth={rate}")),
            self.ttl.as_secs(),
            self.deadline.as_secs(),
            if self.wait_for_ever { "wait" } else { "kill" },
        )
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// `host:port`, with brackets where the host is an IPv6 address.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Bytes a second: a number, or one with K, M or G behind it.
fn rate(text: &str) -> Result<u64, String> {
    let wrong = || format!("bandwidth={text}: bytes a second, 64K or more (100M, 1G ...)");
    let (number, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        None => (text, 0),
        Some(number) if text.ends_with('K') => (number, 10),
        Some(number) if text.ends_with('M') => (number, 20),
        Some(number) => (number, 30),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift);
    bytes.filter(|bytes| *bytes >= 64 << 10).ok_or_else(wrong)
}

fn node(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("\"{text}\" is no HOST[:PORT]");
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(6379), |port| port.parse().map_err(|_| wrong()))?;
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    if host.is_empty() || !host.chars().all(fits) {
        return Err(wrong());
    }
    Ok((host.to_owned(), port))
}

/// Takes %XX apart; nothing for an empty text.
fn unescape(text: &str) -> Result<Option<String>, String> {
    const WRONG: &str = "the user or the password has a % that is no %XX";
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digit = |of: Option<u8>| of.and_then(|of| char::from(of).to_digit(16));
            let (high, low) = (digit(rest.next()), digit(rest.next()));
            let (high, low) = (high.ok_or(WRONG)?, low.ok_or(WRONG)?);
            u8::try_from(high * 16 + low).map_err(|_| WRONG)?
        } else {
            byte
        });
    }
    let text = String::from_utf8(bytes).map_err(|_| WRONG)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn escape(text: &str) -> String {
    let each = text.bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02x}"),
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written() {
        let spec = Spec::parse(
            "redis://me:p%40:a,b@one:7000,[::1]:7,three,copies=2,bandwidth=10M,ttl=60,on-lost=wait",
        );
        let spec = spec.unwrap();
        assert_eq!(spec.user.as_deref(), Some("me"));
        assert_eq!(spec.password.as_deref(), Some("p@:a,b"));
        assert_eq!(spec.shown(), "redis://one:7000,[::1]:7,three:6379");
        assert_eq!((spec.copies, spec.wait_for_ever), (2, true));
        assert_eq!(spec.ttl, Duration::from_secs(60));
        assert_eq!(spec.bandwidth, Some(10 << 20));
        assert_eq!(Spec::parse(&spec.text()), Ok(spec.clone()));
        assert!(!format!("{spec:?}").contains("p@"));
        let plain = Spec::parse("rediss://host").unwrap();
        assert!(plain.tls && plain.password.is_none());
        assert_eq!(Spec::parse(&plain.text()), Ok(plain));
    }

    #[test]
    fn a_password_may_be_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "se cret\n").unwrap();
        let spec = Spec::parse(&format!("redis://h,password-file={}", file.display()));
        assert_eq!(spec.unwrap().password.as_deref(), Some("se cret"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for text in [
            "file:/tmp",
            "redis://",
            "redis://secret@",
            "redis://:secret@h,copies=9",
            "redis://:secret@h,colour=red",
            "redis://:secret@h:port",
            "redis://:secret%zz@h",
            "redis://:secret@h,ttl=1",
            "redis://:secret@h,bandwidth=1K",
            "redis://:secret@h,bandwidth=99999999999G",
            "redis://h,password-file=/nowhere",
        ] {
            let told = Spec::parse(text).unwrap_err();
            assert!(!told.contains("secret"), "{told}");
        }
    }
}
