//! Addresses of servers.

use std::fmt;
use std::str::FromStr;

use crate::RpcError;

/// The port of llama.cpp's server, where an address names none.
const DEFAULT_PORT: u16 = 50052;

/// A host name or an address of IPv4 or IPv6, and a port: `host:port`, `[::1]:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RpcAddress {
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl FromStr for RpcAddress {
    type Err = RpcError;

    fn from_str(text: &str) -> Result<RpcAddress, RpcError> {
        let bad = |rule| RpcError::Address { text: text.to_owned(), rule };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| bad("the bracket is not closed"))?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => (text, Some("")),
                Some((host, port)) => (host, Some(port)),
                None => (text, Some("")),
            },
        };
        let port = match port {
            Some("") => Some(DEFAULT_PORT),
            Some(digits) => digits.parse::<u16>().ok().filter(|port| *port != 0),
            None => None,
        };
        let port = port.ok_or_else(|| bad("the port must be a number from 1 to 65535"))?;
        if host.is_empty() {
            return Err(bad("there is no host"));
        }
        Ok(RpcAddress { host: host.to_owned(), port })
    }
}

impl fmt::Display for RpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_both_kinds_of_addresses_are_understood() {
        for (text, host, port) in [
            ("gpu-box:5000", "gpu-box", 5000),
            ("10.0.0.2", "10.0.0.2", 50052),
            ("[::1]:70", "::1", 70),
            ("fe80::1", "fe80::1", 50052),
        ] {
            let address: RpcAddress = text.parse().unwrap();
            assert_eq!((&*address.host, address.port), (host, port));
            assert_eq!(address.to_string().parse::<RpcAddress>().unwrap(), address);
        }
        for text in ["", ":5", "host:0", "host:99999", "[::1", "[::1]x"] {
            assert!(text.parse::<RpcAddress>().is_err(), "{text}");
        }
    }
}
