//! The key that a server and its clients share.

use std::fmt;
use std::str::FromStr;

use crate::RpcError;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// A key of 256 random bits, written as 64 hexadecimal digits. It is never printed.
#[derive(Clone)]
pub struct RpcKey([u8; KEY_BYTES]);

impl RpcKey {
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl FromStr for RpcKey {
    type Err = RpcError;

    /// Spaces around the digits are left out, such as the line break of a file.
    fn from_str(text: &str) -> Result<RpcKey, RpcError> {
        let (pairs, rest) = text.trim().as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            Some((high? << 4 | low?) as u8)
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let bytes = bytes.filter(|_| rest.is_empty()).and_then(|bytes| bytes.try_into().ok());
        bytes.map(RpcKey).ok_or(RpcError::BadKey)
    }
}

impl fmt::Debug for RpcKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RpcKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_64_digits_and_are_not_printed() {
        let text = "00ff".repeat(16);
        let key: RpcKey = format!(" {text}\n").parse().unwrap();
        assert_eq!(key.bytes()[..4], [0, 0xff, 0, 0xff]);
        assert_eq!(format!("{key:?}"), "RpcKey");
        for text in ["", &text[1..], &text[2..], &format!("{text}0"), &format!("{text}00"), &"0g".repeat(32)]
        {
            assert_eq!(text.parse::<RpcKey>().unwrap_err(), RpcError::BadKey, "{text}");
        }
        assert!("é".repeat(32).parse::<RpcKey>().is_err());
    }
}
