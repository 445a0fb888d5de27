//! Text from tokens: whole characters from bytes that come in pieces, and a stop mark.

/// Text from bytes that come in pieces: characters leave as soon as they are complete.
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
    /// The beginning of an incomplete character: at most three bytes between calls.
    held: Vec<u8>,
    text: String,
}

impl TextStream {
    /// Nothing yet.
    pub fn new() -> TextStream {
        TextStream::default()
    }

    /// The characters that these bytes complete, with U+FFFD for invalid bytes.
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

    /// The end: U+FFFD for an incomplete character. The stream can be used again.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.held.is_empty() {
            self.text.push(char::REPLACEMENT_CHARACTER);
            self.held.clear();
        }
        &self.text
    }
}

/// Text that comes in pieces and ends at a mark: what may be the beginning of the mark is held back.
///
/// ```
/// let mut text = orlop_llm::StopText::new("\nUser:");
/// assert_eq!(text.push("Hello\nUs"), "Hello");
/// assert_eq!(text.push("eful"), "\nUseful");
/// assert_eq!(text.push("!\nUser: I"), "!");
/// assert!(text.is_stopped());
/// ```
#[derive(Clone, Debug)]
pub struct StopText {
    mark: String,
    held: String,
    text: String,
    stopped: bool,
}

impl StopText {
    /// Without text yet. An empty mark never matches.
    pub fn new(mark: impl Into<String>) -> StopText {
        StopText { mark: mark.into(), held: String::new(), text: String::new(), stopped: false }
    }

    /// The text that certainly comes before the mark.
    pub fn push(&mut self, piece: &str) -> &str {
        self.text.clear();
        if self.stopped {
            return "";
        }
        self.held.push_str(piece);
        let found = if self.mark.is_empty() { None } else { self.held.find(&self.mark) };
        self.stopped = found.is_some();
        let certain = found.unwrap_or_else(|| {
            let held = self.held.as_bytes();
            let may_be = |from: &usize| self.mark.as_bytes().starts_with(&held[*from..]);
            // Bytes that begin the mark begin a character.
            (held.len().saturating_sub(self.mark.len())..held.len()).find(may_be).unwrap_or(held.len())
        });
        self.text.extend(self.held.drain(..certain));
        &self.text
    }

    /// Whether the mark came.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The end: what was held back, if the mark did not come.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.stopped {
            std::mem::swap(&mut self.text, &mut self.held);
        }
        &self.text
    }
}

/// Whether bytes are the beginning of an incomplete character.
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
    fn a_mark_is_found_however_it_comes() {
        let text = "é\n\nUs\nUser: x";
        for size in 1..text.len() {
            let (mut bytes, mut stop, mut out) = (TextStream::new(), StopText::new("\nUser:"), String::new());
            for part in text.as_bytes().chunks(size) {
                out.push_str(stop.push(bytes.push(part)));
            }
            assert_eq!(
                (out.as_str(), stop.is_stopped(), stop.finish()),
                ("é\n\nUs", true, ""),
                "in parts of {size}"
            );
        }
        let mut never = StopText::new("\nUser:");
        assert_eq!((never.push("a\nUser").to_owned(), never.finish()), ("a".to_owned(), "\nUser"));
        assert_eq!(StopText::new("").push("all"), "all");
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
