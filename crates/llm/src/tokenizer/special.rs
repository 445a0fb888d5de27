//! Special tokens: they are found in the text before anything else is tokenized.

use memchr::memmem;

use super::Span;
use super::vocabulary::{Kind, Vocabulary};

/// How control tokens that are written in a text, such as `<|im_start|>`, are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// As the tokens.
    Parse,
    /// As text. User-defined tokens of the vocabulary are found all the same, because they are text.
    AsText,
}

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    Text(Span),
    Token(u32),
}

#[derive(Debug)]
struct Candidate {
    id: u32,
    control: bool,
    takes_space: bool,
}

/// All special tokens, the longest first.
#[derive(Debug)]
pub(super) struct Specials {
    candidates: Vec<Candidate>,
}

impl Specials {
    /// With `takes_space`, those tokens take the white space after them with them. Without `defined`, tokens that users defined
    /// are none of them.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        defined: bool,
        takes_space: impl Fn(&[u8]) -> bool,
    ) -> Specials {
        let mut candidates: Vec<Candidate> = (0..vocabulary.len() as u32)
            .filter_map(|id| {
                let control = match vocabulary.kind(id) {
                    Kind::Control | Kind::Unknown => true,
                    Kind::UserDefined if defined => false,
                    _ => return None,
                };
                let text = vocabulary.text(id);
                // A token that is not UTF-8 would cut a text within a character.
                let usable = !text.is_empty() && std::str::from_utf8(text).is_ok();
                usable.then(|| Candidate { id, control, takes_space: takes_space(text) })
            })
            .collect();
        candidates.sort_by_key(|candidate| std::cmp::Reverse(vocabulary.text(candidate.id).len()));
        Specials { candidates }
    }

    /// Cuts a text at the special tokens in it: a longer one wins over a shorter one wherever it stands.
    pub(super) fn cut(&self, text: &str, special: Special, vocabulary: &Vocabulary) -> Vec<Fragment> {
        if text.is_empty() {
            return Vec::new();
        }
        let bytes = text.as_bytes();
        let pairs = Pairs::of(bytes);
        let mut fragments = vec![Fragment::Text(Span { start: 0, end: bytes.len() })];
        for candidate in &self.candidates {
            if candidate.control && special == Special::AsText {
                continue;
            }
            let token = vocabulary.text(candidate.id);
            if !pairs.may_hold(token) {
                continue;
            }
            let finder = memmem::Finder::new(token);
            if finder.find(bytes).is_none() {
                continue;
            }
            let mut cut = Vec::with_capacity(fragments.len() + 2);
            for fragment in fragments {
                match fragment {
                    Fragment::Text(span) => candidate.cut(bytes, span, &finder, &mut cut),
                    token => cut.push(token),
                }
            }
            fragments = cut;
        }
        fragments
    }
}

impl Candidate {
    fn cut(&self, bytes: &[u8], span: Span, finder: &memmem::Finder<'_>, fragments: &mut Vec<Fragment>) {
        let mut start = span.start;
        while let Some(found) = finder.find(&bytes[start..span.end]) {
            let at = start + found;
            if start < at {
                fragments.push(Fragment::Text(Span { start, end: at }));
            }
            fragments.push(Fragment::Token(self.id));
            start = at + finder.needle().len();
            if self.takes_space {
                let after = &bytes[start..span.end];
                let space = |byte: &&u8| matches!(byte, b' ' | b'\t'..=b'\r');
                start += after.iter().take_while(space).count();
            }
        }
        if start < span.end {
            fragments.push(Fragment::Text(Span { start, end: span.end }));
        }
    }
}

/// Which pairs of bytes are adjacent in a text. Vocabularies may have thousands of special tokens, of which a text holds
/// few; this rules out nearly all others at once.
struct Pairs {
    seen: Vec<u64>,
    text_bytes: usize,
}

impl Pairs {
    fn of(text: &[u8]) -> Pairs {
        let mut seen = vec![0; 1 << 10];
        for pair in text.windows(2) {
            let (word, bit) = place(pair);
            seen[word] |= 1 << bit;
        }
        Pairs { seen, text_bytes: text.len() }
    }

    fn may_hold(&self, token: &[u8]) -> bool {
        token.len() <= self.text_bytes
            && token.windows(2).all(|pair| {
                let (word, bit) = place(pair);
                self.seen[word] >> bit & 1 == 1
            })
    }
}

fn place(pair: &[u8]) -> (usize, u32) {
    let number = usize::from(pair[0]) << 8 | usize::from(pair[1]);
    (number >> 6, (number & 63) as u32)
}
