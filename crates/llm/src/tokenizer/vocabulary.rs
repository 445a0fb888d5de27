//! The tokens of a vocabulary: their texts, bytes, kinds and scores, and the way from bytes to a token.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use orlop_gguf::{Metadata, Strings};

use super::{TokenizerError, alphabet, keys};
use crate::Error;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
    Undefined,
}

impl Kind {
    fn from_number(number: i32) -> Kind {
        match number {
            1 => Kind::Normal,
            2 => Kind::Unknown,
            3 => Kind::Control,
            4 => Kind::UserDefined,
            5 => Kind::Unused,
            6 => Kind::Byte,
            _ => Kind::Undefined,
        }
    }
}

/// How the text of a token stands for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// A character for each byte ([`alphabet`]).
    Bytes,
    /// Plain text, with `▁` for a space.
    Text,
    /// Plain text, with escapes such as `\n` and `\xff`.
    Escaped,
}

/// All tokens: their texts, their bytes, and the token of given bytes.
///
/// With [`Spelling::Text`] a token is looked up by its text, otherwise by its bytes.
#[derive(Debug)]
pub(super) struct Vocabulary {
    texts: Strings,
    bytes: Strings,
    kinds: Vec<Kind>,
    spelling: Spelling,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    longest: usize,
}

const SPACE: &[u8] = "▁".as_bytes();

impl Vocabulary {
    pub(super) fn from_metadata(metadata: &Metadata, spelling: Spelling) -> Result<Vocabulary, Error> {
        let texts = metadata.strings(keys::TOKENS)?.clone();
        let count = texts.len();
        if count == 0 || i32::try_from(count).is_err() {
            return Err(TokenizerError::VocabularySize { tokens: count }.into());
        }
        let kinds = match metadata.optional(keys::TOKEN_TYPE, Metadata::i32s)? {
            Some(numbers) => {
                check_length(keys::TOKEN_TYPE, numbers.len(), count)?;
                numbers.into_iter().map(Kind::from_number).collect()
            }
            None => vec![Kind::Normal; count],
        };
        let mut vocabulary = Vocabulary {
            bytes: Strings::default(),
            kinds,
            spelling,
            ids: HashTable::with_capacity(count),
            hasher: DefaultHashBuilder::default(),
            longest: texts.iter().map(<[u8]>::len).max().unwrap_or(0),
            texts,
        };
        vocabulary.spell()?;
        Ok(vocabulary)
    }

    /// Finds the bytes of all tokens, and enters them for [`Vocabulary::find`].
    fn spell(&mut self) -> Result<(), Error> {
        let mut buffer = Vec::with_capacity(self.longest);
        for id in 0..self.kinds.len() {
            let text = self.texts.get(id).unwrap_or_default();
            buffer.clear();
            let known = match (self.spelling, self.kinds[id]) {
                (Spelling::Bytes, _) => alphabet::decode(text, &mut buffer),
                (Spelling::Escaped, Kind::Normal) => unescape_bytes(text, &mut buffer),
                (Spelling::Escaped, _) => false,
                (Spelling::Text, Kind::Byte) => byte_of(text).is_some_and(|byte| {
                    buffer.push(byte);
                    true
                }),
                (Spelling::Text, _) => {
                    unescape(text, &mut buffer);
                    true
                }
            };
            if !known {
                buffer.clear();
                buffer.extend_from_slice(text);
            }
            self.bytes.push(&buffer);
            let findable = match self.spelling {
                Spelling::Bytes | Spelling::Escaped => known,
                Spelling::Text => true,
            };
            if findable && !text.is_empty() {
                self.enter(id as u32)?;
            }
        }
        Ok(())
    }

    fn enter(&mut self, id: u32) -> Result<(), Error> {
        let Vocabulary { texts, bytes, ids, hasher, spelling, .. } = self;
        let key = |id: &u32| match spelling {
            Spelling::Bytes | Spelling::Escaped => bytes.get(*id as usize).unwrap_or_default(),
            Spelling::Text => texts.get(*id as usize).unwrap_or_default(),
        };
        let wanted = key(&id);
        let hash = hasher.hash_one(wanted);
        if let Some(first) = ids.find(hash, |other| key(other) == wanted) {
            let text = String::from_utf8_lossy(self.texts.get(id as usize).unwrap_or_default());
            let text = text.into_owned();
            return Err(TokenizerError::DuplicateToken { text, first: *first, second: id }.into());
        }
        ids.insert_unique(hash, id, |other| hasher.hash_one(key(other)));
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// How the texts of tokens stand for bytes.
    pub(super) fn spelling(&self) -> Spelling {
        self.spelling
    }

    /// Bytes of the longest token's text.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// The token with these bytes, or with this text.
    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        if key.len() > self.longest {
            return None;
        }
        let keys = match self.spelling {
            Spelling::Bytes | Spelling::Escaped => &self.bytes,
            Spelling::Text => &self.texts,
        };
        let same = |id: &u32| keys.get(*id as usize) == Some(key);
        self.ids.find(self.hasher.hash_one(key), same).copied()
    }

    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize).unwrap_or_default()
    }

    /// What a token stands for in text.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        match self.kind(id) {
            Kind::Normal | Kind::Byte => self.bytes.get(id as usize).unwrap_or_default(),
            Kind::Control | Kind::Unknown | Kind::UserDefined => self.text(id),
            Kind::Unused | Kind::Undefined => &[],
        }
    }

    pub(super) fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Undefined)
    }

    pub(super) fn set_control(&mut self, id: u32) {
        if let Some(kind) = self.kinds.get_mut(id as usize) {
            *kind = Kind::Control;
        }
    }
}

/// Refuses an array that does not have one value for each token.
pub(super) fn check_length(key: &'static str, found: usize, tokens: usize) -> Result<(), Error> {
    if found == tokens { Ok(()) } else { Err(TokenizerError::VocabularyLength { key, found, tokens }.into()) }
}

/// The byte of a text such as `<0x0A>`.
fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    match digits {
        [high, low] => {
            let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
            Some(digit(*high)? * 16 + digit(*low)?)
        }
        _ => None,
    }
}

/// Writes a text with spaces for `▁`.
fn unescape(mut text: &[u8], buffer: &mut Vec<u8>) {
    while let Some((byte, rest)) = text.split_first() {
        match text.strip_prefix(SPACE) {
            Some(rest) => {
                buffer.push(b' ');
                text = rest;
            }
            None => {
                buffer.push(*byte);
                text = rest;
            }
        }
    }
}

/// Writes a text with bytes for its escapes; whether it has no broken ones.
fn unescape_bytes(mut text: &[u8], buffer: &mut Vec<u8>) -> bool {
    while let [first, rest @ ..] = text {
        let (byte, after) = match (first, rest) {
            (b'\\', [b'x', high, low, rest @ ..]) => {
                let digits = [*high, *low].map(|digit| (digit as char).to_digit(16));
                let [Some(high), Some(low)] = digits else { return false };
                ((high * 16 + low) as u8, rest)
            }
            (b'\\', [b'x', ..] | []) => return false,
            (b'\\', [b't', rest @ ..]) => (b'\t', rest),
            (b'\\', [b'n', rest @ ..]) => (b'\n', rest),
            (b'\\', [b'r', rest @ ..]) => (b'\r', rest),
            (b'\\', [other, rest @ ..]) => (*other, rest),
            (byte, rest) => (*byte, rest),
        };
        buffer.push(byte);
        text = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens_are_hexadecimal() {
        assert_eq!(byte_of(b"<0x0A>"), Some(10));
        assert_eq!(byte_of(b"<0xff>"), Some(255));
        assert_eq!((byte_of(b"<0x+1>"), byte_of(b"<0x001>"), byte_of(b"a")), (None, None, None));
    }

    #[test]
    fn escapes_stand_for_bytes() {
        let mut buffer = Vec::new();
        assert!(unescape_bytes(br"a\n\t\r\\\'\xff\x0a", &mut buffer));
        assert_eq!(buffer, b"a\n\t\r\\'\xff\x0a");
        for broken in [&br"a\"[..], br"\x1", br"\xg0", br"\x+1"] {
            assert!(!unescape_bytes(broken, &mut Vec::new()), "{broken:?}");
        }
    }

    #[test]
    fn only_whole_space_marks_become_spaces() {
        let mut buffer = Vec::new();
        unescape(b"\xe2\x96\x81a\xe2\x96b", &mut buffer);
        assert_eq!(buffer, b" a\xe2\x96b");
    }
}
