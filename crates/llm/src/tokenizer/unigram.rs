//! [Unigram](https://arxiv.org/abs/1804.10959) tokenization, as SentencePiece does it: text is normalized, and of all ways to cut
//! it into tokens the one is taken whose scores have the largest sum.

use orlop_gguf::Metadata;

use super::character_map::CharacterMap;
use super::keys;
use super::sentencepiece::scores;
use super::vocabulary::{Kind, Vocabulary};
use crate::Error;

/// How much less than the least score a character without a token counts.
const UNKNOWN_PENALTY: f64 = 10.0;

const SPACE: &str = "▁";

/// A vocabulary with scores, and how text is normalized.
#[derive(Debug)]
pub(super) struct Unigram {
    scores: Vec<f64>,
    /// Tokens that text can be cut into, by their texts.
    tokens: Prefixes,
    /// Those that are taken as they are.
    whole: Prefixes,
    map: Option<CharacterMap>,
    unknown: Option<u32>,
    unknown_score: f64,
    space_first: bool,
    merges_spaces: bool,
}

/// The best way to the end of a part of a text.
#[derive(Clone, Copy, Debug)]
struct Step {
    id: Option<u32>,
    start: usize,
    score: f64,
}

impl Unigram {
    pub(super) fn new(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
    ) -> Result<Unigram, Error> {
        let kind_of = |id: u32| vocabulary.kind(id);
        let mut scores: Vec<f64> = scores(metadata, vocabulary)?.into_iter().map(f64::from).collect();
        let normal = (0..).zip(&scores).filter(|(id, score)| kind_of(*id) == Kind::Normal && !score.is_nan());
        let least = normal.map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
        for (id, score) in (0..).zip(&mut scores) {
            if kind_of(id) == Kind::UserDefined || score.is_nan() {
                *score = 0.0;
            }
        }
        let of = |kinds: &[Kind]| Prefixes::new(vocabulary, |id| kinds.contains(&kind_of(id)));
        let flag = |key, default| Ok::<_, Error>(metadata.optional(key, Metadata::bool)?.unwrap_or(default));
        Ok(Unigram {
            tokens: of(&[Kind::Normal, Kind::UserDefined, Kind::Unused]),
            whole: of(&[Kind::UserDefined]),
            map: CharacterMap::from_metadata(metadata)?,
            unknown,
            unknown_score: if least.is_finite() { least - UNKNOWN_PENALTY } else { -UNKNOWN_PENALTY },
            space_first: flag(keys::ADD_SPACE_PREFIX, true)?,
            merges_spaces: flag(keys::REMOVE_EXTRA_SPACES, false)?,
            scores,
        })
    }

    /// Adds the tokens of a text.
    pub(super) fn encode(&self, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        let text = self.normalized(text, vocabulary);
        let nothing = Step { id: None, start: 0, score: f64::NEG_INFINITY };
        let mut best = vec![nothing; text.len() + 1];
        best[0].score = 0.0;
        for (start, character) in text.char_indices() {
            let so_far = best[start].score;
            let whole = start + character.len_utf8();
            let mut offer = |id: Option<u32>, end: usize, score: f64| {
                if score > best[end].score {
                    best[end] = Step { id, start, score };
                }
            };
            let mut has_character = false;
            self.tokens.of_beginnings(&text.as_bytes()[start..], vocabulary, &mut |id, length| {
                has_character |= start + length == whole;
                offer(Some(id), start + length, so_far + self.scores[id as usize]);
            });
            if !has_character {
                offer(None, whole, so_far + self.unknown_score);
            }
        }
        let (first, mut end, mut after) = (ids.len(), text.len(), None);
        while end > 0 {
            let step = best[end];
            // Characters without tokens that follow each other are one unknown token.
            if step.id.is_some() || after != Some(None) {
                ids.extend(step.id.or(self.unknown));
            }
            after = Some(step.id);
            end = step.start;
        }
        ids[first..].reverse();
    }

    /// Text with characters replaced by the map, and `▁` for spaces.
    fn normalized(&self, text: &str, vocabulary: &Vocabulary) -> String {
        let mut out = String::with_capacity(text.len() + SPACE.len());
        let mut within_word = false;
        // Where spaces are merged, each word brings its own.
        if self.space_first && !self.merges_spaces && !text.is_empty() {
            out.push_str(SPACE);
        }
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let mut longest = 0;
            self.whole.of_beginnings(rest.as_bytes(), vocabulary, &mut |_, length| longest = length);
            let replaced =
                if longest > 0 { None } else { self.map.as_ref().and_then(|map| map.replaced(rest)) };
            let (with, taken) = match replaced {
                Some(found) => found,
                None => {
                    let taken = longest.max(first.len_utf8());
                    (&rest[..taken], taken)
                }
            };
            for c in with.chars() {
                let space = c == ' ';
                let begins = !space && !within_word && (self.space_first || !out.is_empty());
                let marked = if self.merges_spaces { begins } else { space };
                if marked {
                    out.push_str(SPACE);
                }
                if !space {
                    out.push(c);
                }
                within_word = !space;
            }
            rest = &rest[taken..];
        }
        out
    }
}

/// Some tokens, in the order of their texts, so that those that begin a text are found by narrowing a range.
#[derive(Debug)]
struct Prefixes {
    sorted: Vec<u32>,
}

impl Prefixes {
    fn new(vocabulary: &Vocabulary, wanted: impl Fn(u32) -> bool) -> Prefixes {
        let all = (0..vocabulary.len() as u32).filter(|id| wanted(*id) && !vocabulary.text(*id).is_empty());
        // A token that is not UTF-8 would cut a text within a character.
        let mut sorted: Vec<u32> =
            all.filter(|id| std::str::from_utf8(vocabulary.text(*id)).is_ok()).collect();
        sorted.sort_by(|a, b| vocabulary.text(*a).cmp(vocabulary.text(*b)));
        Prefixes { sorted }
    }

    /// The tokens that a text begins with, shortest first, and their lengths.
    fn of_beginnings(&self, text: &[u8], vocabulary: &Vocabulary, each: &mut dyn FnMut(u32, usize)) {
        let mut range = &self.sorted[..];
        for (at, byte) in text.iter().enumerate() {
            // All in the range begin with the bytes before this one; those that end there come first.
            let byte_of = |id: &u32| vocabulary.text(*id).get(at).copied();
            let first = range.partition_point(|id| byte_of(id) < Some(*byte));
            let end = first + range[first..].partition_point(|id| byte_of(id) == Some(*byte));
            range = &range[first..end];
            match range.first() {
                None => return,
                Some(id) if vocabulary.text(*id).len() == at + 1 => each(*id, at + 1),
                Some(_) => {}
            }
        }
    }
}
