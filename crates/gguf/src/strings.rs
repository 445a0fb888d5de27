//! Arrays of strings in one allocation.

use std::fmt;

/// An array of strings, such as the tokens of a vocabulary, in one allocation. They may be invalid UTF-8, as
/// [`Text`](crate::Text).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Strings {
    bytes: Vec<u8>,
    /// The end of each string; it starts at the end of the previous one.
    ends: Vec<usize>,
}

impl Strings {
    pub(crate) fn with_capacity(strings: usize) -> Strings {
        Strings { bytes: Vec::new(), ends: Vec::with_capacity(strings) }
    }

    /// Adds a string.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of a string, if it exists.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// The bytes of each string, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.bytes[std::mem::replace(&mut start, *end)..*end])
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(items: I) -> Strings {
        let mut strings = Strings::default();
        for item in items {
            strings.push(item.as_ref());
        }
        strings
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_their_order_and_their_bounds() {
        let strings: Strings = ["", "a", "", "bcd", ""].into_iter().collect();
        assert_eq!(strings.iter().collect::<Vec<_>>(), [&b""[..], b"a", b"", b"bcd", b""]);
        assert_eq!((strings.len(), strings.get(3), strings.get(5)), (5, Some(&b"bcd"[..]), None));
        assert!(Strings::default().is_empty());
    }
}
