//! Versions of the protocol, and what they differ in.

use std::fmt;

use super::{CodecError, OpNumbers};

/// A version as the server says it in its first reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcVersion {
    /// Changes with every incompatible change.
    pub major: u8,
    /// Changes with additions.
    pub minor: u8,
    /// Tells the numbers of ops since 3.6.1.
    pub patch: u8,
}

/// How a version's messages are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The version.
    pub version: RpcVersion,
    /// The numbers of ops.
    pub ops: OpNumbers,
    /// HELLO carries 24 bytes of capabilities in both directions; before, none and none.
    pub capabilities: bool,
    /// There is MEMSET_TENSOR.
    pub memset: bool,
    /// Frees, clears, sets of bytes and INIT_TENSOR are answered.
    pub answers_all: bool,
    /// SET_TENSOR says whether the server may keep the data in its cache.
    pub store_flag: bool,
}

const fn row(version: [u8; 3], ops: u32) -> Dialect {
    let [major, minor, patch] = version;
    Dialect {
        version: RpcVersion { major, minor, patch },
        ops: OpNumbers::of_count(ops),
        capabilities: major >= 4,
        memset: major >= 5,
        answers_all: major < 6,
        store_flag: major >= 7,
    }
}

/// Every version that is known. 6.0.0 and 7.0.0 follow published descriptions; no server of them was at hand.
const TABLE: [Dialect; 9] = [
    row([3, 6, 1], 96),
    row([4, 0, 0], 96),
    row([4, 0, 1], 97),
    row([4, 0, 2], 98),
    row([4, 0, 3], 101),
    row([5, 0, 0], 101),
    row([5, 1, 0], 101),
    row([6, 0, 0], 101),
    row([7, 0, 0], 101),
];

impl RpcVersion {
    /// The version of llama.cpp of August 2026, which [`Dialect::all`] is tested against.
    pub const V5_1: RpcVersion = RpcVersion { major: 5, minor: 1, patch: 0 };

    /// How its messages are laid out.
    ///
    /// # Errors
    /// [`CodecError::UnknownVersion`]. Versions in between are refused, too: forks use their numbers.
    pub fn dialect(self) -> Result<Dialect, CodecError> {
        let found = TABLE.iter().find(|row| row.version == self).copied();
        found.ok_or_else(|| {
            let known: Vec<String> = TABLE.iter().map(|row| row.version.to_string()).collect();
            CodecError::UnknownVersion { version: self, known: known.join(", ") }
        })
    }
}

impl Dialect {
    /// Every known version, the oldest first.
    pub fn all() -> &'static [Dialect] {
        &TABLE
    }
}

impl fmt::Display for RpcVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_between_known_ones_are_refused_by_name() {
        let fork = RpcVersion { major: 3, minor: 5, patch: 2 };
        let refused = fork.dialect().unwrap_err().to_string();
        assert_eq!(
            refused,
            "protocol version 3.5.2 is not known (known: 3.6.1, 4.0.0, 4.0.1, 4.0.2, 4.0.3, 5.0.0, 5.1.0, 6.0.0, \
             7.0.0)"
        );
        for dialect in Dialect::all() {
            assert_eq!(dialect.version.dialect().as_ref(), Ok(dialect));
        }
    }
}
