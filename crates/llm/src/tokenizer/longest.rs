//! RWKV's tokenizer: from the beginning on, always the longest token of the vocabulary.

use super::vocabulary::{Kind, Vocabulary};

/// The tokens of a vocabulary in the order of their bytes: a trie without nodes, where tokens that begin alike lie side by
/// side.
#[derive(Debug)]
pub(super) struct LongestMatch {
    ids: Vec<u32>,
}

impl LongestMatch {
    pub(super) fn new(vocabulary: &Vocabulary) -> LongestMatch {
        let matches = |id: &u32| vocabulary.kind(*id) == Kind::Normal && !vocabulary.bytes(*id).is_empty();
        let mut ids: Vec<u32> = (0..vocabulary.len() as u32).filter(matches).collect();
        ids.sort_unstable_by_key(|id| vocabulary.bytes(*id));
        LongestMatch { ids }
    }

    /// Adds the tokens of a text; bytes that begin none become the unknown token, if there is one.
    pub(super) fn encode(
        &self,
        text: &[u8],
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
        out: &mut Vec<u32>,
    ) {
        let mut rest = text;
        while !rest.is_empty() {
            let found = self.longest(rest, vocabulary);
            out.extend(found.map(|(id, _)| id).or(unknown));
            rest = &rest[found.map_or(1, |(_, length)| length)..];
        }
    }

    /// The longest token that a text begins with, and its length.
    fn longest(&self, text: &[u8], vocabulary: &Vocabulary) -> Option<(u32, usize)> {
        let mut alike = &self.ids[..];
        let mut found = None;
        for (depth, byte) in text.iter().enumerate() {
            let next = |id: &u32| vocabulary.bytes(*id).get(depth).copied();
            let first = alike.partition_point(|id| next(id) < Some(*byte));
            let after = alike.partition_point(|id| next(id) <= Some(*byte));
            alike = &alike[first..after];
            let Some(id) = alike.first() else { break };
            if vocabulary.bytes(*id).len() == depth + 1 {
                found = Some((*id, depth + 1));
            }
        }
        found
    }
}
