//! Where a JSON value that comes in pieces ends.

/// Finds the end of an object or array; every byte is looked at once.
#[derive(Clone, Debug, Default)]
pub(super) struct JsonEnd {
    at: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// What is known about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonProgress {
    More,
    /// It ends before this byte.
    Ends(usize),
    /// This is not JSON.
    Invalid,
}

impl JsonEnd {
    /// How many bytes of a text belong to the value, as far as it was looked at.
    pub(super) fn valid(&self, text: &str) -> usize {
        let is_last = |byte: &&u8| matches!(byte, b'}' | b']') && self.depth == 1 && !self.in_string;
        self.at + text.as_bytes().get(self.at).filter(is_last).map_or(0, |_| 1)
    }

    /// Reads a text that begins with the one read before.
    pub(super) fn find(&mut self, text: &str) -> JsonProgress {
        while let Some(byte) = text.as_bytes().get(self.at) {
            self.at += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' if self.depth > 0 => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' if self.depth == 1 => {
                    self.at -= 1; // the same answer next time
                    return JsonProgress::Ends(self.at + 1);
                }
                b'}' | b']' if self.depth > 1 => self.depth -= 1,
                b' ' | b'\t' | b'\r' | b'\n' => {}
                b',' | b':' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'E' if self.depth > 0 => {}
                _ => {
                    self.at -= 1;
                    return JsonProgress::Invalid;
                }
            }
        }
        JsonProgress::More
    }
}
