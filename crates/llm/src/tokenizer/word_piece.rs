//! WordPiece, as in [BERT](https://arxiv.org/abs/1810.04805): text is cleaned and cut at spaces, marks and Chinese characters,
//! and each word is the longest piece that begins it, then the longest that goes on, and so forth. Pieces that begin words are
//! written with `▁` in files, the others plainly.

use orlop_gguf::Metadata;
use unicode_general_category::{GeneralCategory as Category, get_general_category};
use unicode_normalization::UnicodeNormalization;

use super::class::{punctuation, space};
use super::keys;
use super::vocabulary::Vocabulary;
use crate::Error;

/// Characters of a word, at most; a longer one is unknown.
const LONGEST_WORD: usize = 100;

/// How text is cleaned, and the token of words without pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordPiece {
    lowercase: bool,
    strips_accents: bool,
    unknown: Option<u32>,
}

impl WordPiece {
    pub(super) fn new(metadata: &Metadata, unknown: Option<u32>) -> Result<WordPiece, Error> {
        let flag = |key| Ok::<_, Error>(metadata.optional(key, Metadata::bool)?.unwrap_or(true));
        let (lowercase, strips_accents) = (flag(keys::LOWERCASE)?, flag(keys::STRIP_ACCENTS)?);
        Ok(WordPiece { lowercase, strips_accents, unknown })
    }

    /// Adds the tokens of a text.
    pub(super) fn encode(&self, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        let (mut word, mut characters) = (String::from("▁"), 0);
        let start = word.len();
        let mut end = |word: &mut String, characters: &mut usize| {
            if word.len() > start {
                let fits = *characters <= LONGEST_WORD;
                if !(fits && pieces(word, vocabulary, ids)) {
                    ids.extend(self.unknown);
                }
            }
            word.truncate(start);
            *characters = 0;
        };
        self.clean(text, &mut |c| {
            let alone = c.is_ascii_punctuation() || punctuation(c) || chinese(c);
            if space(c) || alone {
                end(&mut word, &mut characters);
            }
            if !space(c) {
                word.push(c);
                characters += 1;
            }
            if alone {
                end(&mut word, &mut characters);
            }
        });
        end(&mut word, &mut characters);
    }

    /// The characters of a text: without those that control, as the file says without accents and in lower case.
    fn clean(&self, text: &str, each: &mut dyn FnMut(char)) {
        let kept = text.chars().filter(|c| !matches!(c, '\0' | '\u{fffd}') && !control(*c));
        let mut lower = |c: char| match self.lowercase {
            true => c.to_lowercase().for_each(&mut *each),
            false => each(c),
        };
        match self.strips_accents {
            true => kept.nfd().filter(|c| !accent(*c)).for_each(&mut lower),
            false => kept.for_each(&mut lower),
        }
    }
}

/// Adds the pieces of a word that begins with `▁`; none, if there are not pieces for all of it.
fn pieces(word: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) -> bool {
    let (before, mut rest) = (ids.len(), word);
    while !rest.is_empty() {
        let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
        let ends: Vec<usize> = ends.take_while(|end| *end <= vocabulary.longest()).collect();
        let found =
            ends.into_iter().rev().find_map(|end| Some((vocabulary.find(&rest.as_bytes()[..end])?, end)));
        let Some((id, end)) = found else {
            ids.truncate(before);
            return false;
        };
        ids.push(id);
        rest = &rest[end..];
    }
    true
}

fn control(c: char) -> bool {
    use Category::*;
    !matches!(c, '\t' | '\n' | '\r')
        && matches!(get_general_category(c), Control | Format | PrivateUse | Surrogate)
}

fn accent(c: char) -> bool {
    get_general_category(c) == Category::NonspacingMark
}

/// Chinese characters; the fourth block from the end begins where the original implementation has it.
fn chinese(c: char) -> bool {
    matches!(c,
        '\u{4e00}'..='\u{9fff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{20000}'..='\u{2a6df}'
        | '\u{2a700}'..='\u{2b73f}'
        | '\u{2b740}'..='\u{2b81f}'
        | '\u{2b920}'..='\u{2ceaf}'
        | '\u{f900}'..='\u{faff}'
        | '\u{2f800}'..='\u{2fa1f}')
}
