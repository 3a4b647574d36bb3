//! Addresses to listen on: a Unix socket, or a TCP port that only this host can reach.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a live run listens for clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP port on loopback; port 0 is any that is free.
    Tcp(SocketAddr),
}

/// The forms, added to every error.
const FORMS: &str = "allowed: unix:PATH, 127.0.0.1:PORT, [::1]:PORT";

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(format!("no path after `unix:`; {FORMS}")),
                path => Ok(Self::Unix(path.into())),
            };
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            let port = port.parse().map_err(|_| format!("`{port}` is no port; {FORMS}"))?;
            return Ok(Self::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Tcp(address)),
            Ok(address) => Err(format!(
                "other hosts could reach {}: whoever connects can tell the machine anything; {FORMS}",
                address.ip()
            )),
            Err(_) => Err(FORMS.to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_listened_to() {
        for text in ["127.0.0.1:7000", "127.9.9.9:0", "[::1]:80", "unix:run/a.sock", "unix:a"] {
            assert_eq!(text.parse::<Address>().map(|found| found.to_string()), Ok(text.into()));
        }
        assert_eq!("localhost:7000".parse::<Address>(), "127.0.0.1:7000".parse());
        for text in ["0.0.0.0:7000", "192.168.0.1:7000", "[::]:80", "8.8.8.8:53"] {
            let refused = text.parse::<Address>().expect_err(text);
            assert!(refused.contains("other hosts could reach"), "{refused}");
        }
        for text in
            ["", "7000", "unix:", "host:7000", "127.0.0.1", "127.0.0.1:70000", "localhost:x"]
        {
            assert!(text.parse::<Address>().expect_err(text).contains("unix:PATH"), "{text}");
        }
    }
}
