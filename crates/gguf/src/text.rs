//! Strings that may be invalid UTF-8.

use std::borrow::Cow;
use std::fmt;
use std::str::Utf8Error;

/// A string as stored in a file: should be UTF-8, but may be invalid.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text(Box<[u8]>);

impl Text {
    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The string, if it is UTF-8.
    ///
    /// # Errors
    /// The first invalid byte.
    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.0)
    }

    /// The string, with U+FFFD for invalid sequences.
    pub fn to_str_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.as_bytes().into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text.into_bytes().into())
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Text {
        Text(bytes.into())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_str_lossy())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_str_lossy(), f)
    }
}
