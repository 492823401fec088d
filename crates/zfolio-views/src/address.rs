//! Where metrics are served: an address of this machine, or a socket in the file system.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A port.
    Tcp(SocketAddr),
    /// A path.
    Unix(PathBuf),
}

impl Address {
    /// Reads `127.0.0.1:9464`, `[::1]:9464`, `localhost:9464`, `9464` (of this machine alone), or
    /// `unix:PATH`. No name is looked up.
    ///
    /// # Errors
    /// When it is none of these.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("unix: needs a path".into()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        if let Ok(port) = port.parse::<u16>() {
            return Ok(Self::Tcp(SocketAddr::new(local, port)));
        }
        let address = text.parse::<SocketAddr>();
        address.map(Self::Tcp).map_err(|_| {
            "an address with a port (127.0.0.1:9464), a port of this machine alone (9464), or unix:PATH".into()
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine() {
        let told = |text| Address::parse(text).map(|address| address.to_string());
        assert_eq!(told("9464").unwrap(), "http://127.0.0.1:9464/metrics");
        assert_eq!(told("localhost:0").unwrap(), "http://127.0.0.1:0/metrics");
        assert_eq!(told("0.0.0.0:80").unwrap(), "http://0.0.0.0:80/metrics");
        assert_eq!(told("[::1]:80").unwrap(), "http://[::1]:80/metrics");
        assert_eq!(told("unix:/run/x").unwrap(), "unix:/run/x");
        for text in ["", "unix:", "example.org:80", "99999", "1.2.3.4", "-1"] {
            assert!(told(text).is_err(), "{text}");
        }
    }
}
