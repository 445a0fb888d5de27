/// Bytes that come piece by piece, as text: characters leave as soon as they are whole.
///
/// ```
/// let mut stream = orlop_llm::TextStream::new();
/// assert_eq!(stream.push(b"a\xe2\x82"), "a");
/// assert_eq!(stream.push(b"\xac!"), "€!");
/// assert_eq!(stream.push(b"\xf0\x9f"), "");
/// assert_eq!(stream.finish(), "\u{fffd}");
/// ```
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    /// The beginning of a character that is not whole yet: at most three bytes between calls.
    held: Vec<u8>,
    text: String,
}

impl TextStream {
    /// Nothing yet.
    pub fn new() -> TextStream {
        TextStream::default()
    }

    /// The characters that these bytes complete, with U+FFFD for what can be none any more.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.text.clear();
        self.held.extend_from_slice(bytes);
        let mut whole = 0;
        for chunk in self.held.utf8_chunks() {
            self.text.push_str(chunk.valid());
            whole += chunk.valid().len();
            let rest = &self.held[whole..];
            if chunk.invalid().len() == rest.len() && may_go_on(rest) {
                break;
            }
            if !chunk.invalid().is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
                whole += chunk.invalid().len();
            }
        }
        self.held.drain(..whole);
        &self.text
    }

    /// The end: U+FFFD for a character that did not become whole. The stream can be used anew.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.held.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.held.clear();
        }
        &self.text
    }
}

/// Whether bytes are the beginning of a character whose end is missing.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same_text() {
        let bytes = b"a\xc3\xa9\xff\xe2\x82\xac\xe2\x82z\xf0\x9f\xa6\x80\xed\xa0\x80\xf0\x9f";
        let expected = String::from_utf8_lossy(bytes);
        for size in 1..=bytes.len() {
            let mut stream = TextStream::new();
            let mut text = String::new();
            for part in bytes.chunks(size) {
                text.push_str(stream.push(part));
            }
            text.push_str(stream.finish());
            assert_eq!(text, expected, "in parts of {size}");
            assert_eq!(stream.push(b"!"), "!");
        }
    }

    #[test]
    fn characters_leave_as_soon_as_they_are_whole() {
        let mut stream = TextStream::new();
        let pieces: Vec<String> =
            "é🦀".as_bytes().iter().map(|byte| stream.push(&[*byte]).to_owned()).collect();
        assert_eq!(pieces, ["", "é", "", "", "", "🦀"]);
        assert_eq!(stream.push(b"\xe2x"), "\u{fffd}x");
        assert_eq!(stream.finish(), "");
    }
}
