//! Text from tokens: whole characters from bytes that come in pieces, and marks that end it.

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

/// Text that comes in pieces and ends at the first of some marks: what may be the beginning of a mark is held back.
///
/// Marks that overlap are decided by the first that is complete, so the result does not depend on the pieces.
///
/// ```
/// let mut text = orlop_llm::StopText::new(["\nUser:", "###"]);
/// assert_eq!(text.push("Hello\nUs"), "Hello");
/// assert_eq!(text.push("eful"), "\nUseful");
/// assert_eq!(text.push("!\nUser: I"), "!");
/// assert_eq!(text.stopped_by(), Some("\nUser:"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopText {
    marks: Vec<String>,
    held: String,
    text: String,
    stopped_by: Option<usize>,
}

impl StopText {
    /// Without text yet. An empty mark never matches.
    pub fn new<M: Into<String>>(marks: impl IntoIterator<Item = M>) -> StopText {
        let marks = marks.into_iter().map(Into::into).filter(|mark: &String| !mark.is_empty()).collect();
        StopText { marks, ..StopText::default() }
    }

    /// The text that certainly comes before a mark.
    pub fn push(&mut self, piece: &str) -> &str {
        self.text.clear();
        if self.is_stopped() {
            return "";
        }
        self.held.push_str(piece);
        let found = self.marks.iter().zip(0..).filter_map(|(mark, index)| {
            let start = self.held.find(mark.as_str())?;
            Some((start + mark.len(), start, index))
        });
        let certain = match found.min() {
            Some((_, start, index)) => {
                self.stopped_by = Some(index);
                start
            }
            None => self.certain(),
        };
        self.text.extend(self.held.drain(..certain));
        &self.text
    }

    /// How many bytes cannot be the beginning of a mark. Bytes that begin a mark begin a character.
    fn certain(&self) -> usize {
        let held = self.held.as_bytes();
        let begins = |mark: &String| {
            let may_be = |from: &usize| mark.as_bytes().starts_with(&held[*from..]);
            (held.len().saturating_sub(mark.len())..held.len()).find(may_be).unwrap_or(held.len())
        };
        self.marks.iter().map(begins).min().unwrap_or(held.len())
    }

    /// Whether a mark came.
    pub fn is_stopped(&self) -> bool {
        self.stopped_by.is_some()
    }

    /// The mark that came.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stopped_by.and_then(|index| self.marks.get(index)).map(String::as_str)
    }

    /// The end: what was held back, if no mark came.
    pub fn finish(&mut self) -> &str {
        self.text.clear();
        if !self.is_stopped() {
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
            let (mut bytes, mut stop, mut out) =
                (TextStream::new(), StopText::new(["\nUser:"]), String::new());
            for part in text.as_bytes().chunks(size) {
                out.push_str(stop.push(bytes.push(part)));
            }
            assert_eq!(
                (out.as_str(), stop.is_stopped(), stop.finish()),
                ("é\n\nUs", true, ""),
                "in parts of {size}"
            );
        }
        let mut never = StopText::new(["\nUser:"]);
        assert_eq!((never.push("a\nUser").to_owned(), never.finish()), ("a".to_owned(), "\nUser"));
        assert_eq!(StopText::new([""]).push("all"), "all");
    }

    #[test]
    fn the_first_mark_to_be_complete_ends_the_text_however_it_comes() {
        let marks = ["stop here", "op", "é!", "abc", "ab"];
        for (text, before, mark) in [
            ("don't stop here", "don't st", Some("op")),
            ("caf\u{e9}! stop", "caf", Some("é!")),
            ("xabc", "x", Some("ab")),
            ("o é a sto", "o é a sto", None),
        ] {
            for size in 1..=text.len() {
                let (mut bytes, mut stop, mut out) = (TextStream::new(), StopText::new(marks), String::new());
                for part in text.as_bytes().chunks(size) {
                    out.push_str(stop.push(bytes.push(part)));
                }
                out.push_str(stop.finish());
                assert_eq!((out.as_str(), stop.stopped_by()), (before, mark), "in parts of {size}");
            }
        }
        assert_eq!(StopText::new(Vec::<String>::new()).push("all"), "all");
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
