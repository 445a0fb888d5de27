//! Prompt lookup decoding ([Saxena, 2023](https://github.com/apoorvumang/prompt-lookup-decoding)): the last tokens of a text
//! are looked for earlier in it, and what followed them there is the draft.

use super::Drafter;
use crate::{Engine, Error};

/// Lengths of the n-grams that are looked for, longest first.
const GRAMS: [usize; 3] = [5, 3, 2];

/// Drafts what followed the last tokens when they came before. It needs no model, and helps where a text repeats itself or
/// its prompt: edits, code, summaries, answers from documents.
///
/// An index knows where each n-gram ended last. A token costs a constant number of steps at any length of the text, and no
/// allocation up to the capacity.
#[derive(Clone, Debug)]
pub struct Lookup {
    tables: [Table; GRAMS.len()],
    /// N-grams that end up to here are in the index.
    indexed: usize,
}

/// A hash table with linear probing, from n-grams of one length to the position behind the last one. Keys are compared in
/// the text, so only positions are stored.
#[derive(Clone, Debug)]
struct Table {
    gram: usize,
    /// 0 where a slot is free.
    ends: Vec<u32>,
    used: usize,
}

impl Lookup {
    /// For texts of up to `capacity` tokens, such as the context; longer ones make it grow.
    pub fn new(capacity: u64) -> Lookup {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX).min(1 << 24);
        Lookup { tables: GRAMS.map(|gram| Table::new(gram, capacity)), indexed: 0 }
    }

    /// Adds the n-grams of a text that end up to `end`.
    fn index(&mut self, text: &[u32], end: usize) {
        for at in self.indexed + 1..=end {
            for table in &mut self.tables {
                table.insert(text, at);
            }
        }
        self.indexed = self.indexed.max(end);
    }

    /// Where the longest n-gram at the end of a text ended before.
    fn find(&mut self, text: &[u32]) -> Option<usize> {
        self.index(text, text.len().saturating_sub(1));
        self.tables.iter().find_map(|table| table.find(text))
    }

    /// Appends what followed the last tokens of a text, up to `most` tokens.
    pub(super) fn continuation(&mut self, text: &[u32], most: usize, into: &mut Vec<u32>) {
        let Some(from) = self.find(text) else { return };
        let first = into.len();
        for index in from..from + most {
            // Behind the end of the text, the draft itself is repeated.
            let token = text.get(index).copied().unwrap_or_else(|| into[first + index - text.len()]);
            into.push(token);
        }
    }
}

impl Drafter for Lookup {
    fn prepare(&mut self, _: &mut Engine, text: &[u32]) -> Result<(), Error> {
        self.index(text, text.len().saturating_sub(1));
        Ok(())
    }

    fn draft(&mut self, _: &mut Engine, text: &[u32], most: usize, into: &mut Vec<u32>) -> Result<(), Error> {
        self.continuation(text, most, into);
        Ok(())
    }

    fn rewind(&mut self, len: usize) {
        if len < self.indexed {
            self.tables.iter_mut().for_each(Table::clear);
            self.indexed = 0;
        }
    }
}

impl Table {
    fn new(gram: usize, capacity: usize) -> Table {
        // At most half full, so that probes are short.
        Table { gram, ends: vec![0; (2 * capacity).next_power_of_two().max(16)], used: 0 }
    }

    fn clear(&mut self) {
        self.ends.fill(0);
        self.used = 0;
    }

    fn insert(&mut self, text: &[u32], end: usize) {
        if end < self.gram {
            return;
        }
        if 2 * (self.used + 1) > self.ends.len() {
            self.grow(text);
        }
        let slot = self.slot(text, &text[end - self.gram..end]);
        self.used += usize::from(self.ends[slot] == 0);
        self.ends[slot] = end as u32;
    }

    fn grow(&mut self, text: &[u32]) {
        let known = std::mem::take(&mut self.ends);
        self.ends = vec![0; 2 * known.len()];
        for end in known.into_iter().filter(|end| *end > 0) {
            let slot = self.slot(text, &text[end as usize - self.gram..end as usize]);
            self.ends[slot] = end;
        }
    }

    /// The end of the last n-gram that is equal to a text's last tokens.
    fn find(&self, text: &[u32]) -> Option<usize> {
        let gram = &text[text.len().checked_sub(self.gram)?..];
        match self.ends[self.slot(text, gram)] {
            0 => None,
            end => Some(end as usize),
        }
    }

    /// The slot of an n-gram, or the free one where it belongs.
    fn slot(&self, text: &[u32], gram: &[u32]) -> usize {
        let mask = self.ends.len() - 1;
        let mut slot = hash(gram) as usize & mask;
        loop {
            match self.ends[slot] as usize {
                0 => return slot,
                end if text[end - self.gram..end] == *gram => return slot,
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// [Fibonacci hashing](https://en.wikipedia.org/wiki/Hash_function#Fibonacci_hashing), token by token.
fn hash(gram: &[u32]) -> u64 {
    let mixed = gram.iter().fold(0u64, |hash, token| {
        (hash.rotate_left(23) ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Random;

    fn drafted(lookup: &mut Lookup, text: &[u32], most: usize) -> Vec<u32> {
        let mut into = vec![99];
        lookup.continuation(text, most, &mut into);
        into.split_off(1)
    }

    /// The definition: the longest n-gram that came before, and the last place where it did.
    fn searched(text: &[u32], most: usize) -> Vec<u32> {
        let ended = |gram: usize| {
            let last = &text[text.len().checked_sub(gram)?..];
            (gram..text.len()).rev().find(|end| text[end - gram..*end] == *last)
        };
        let Some(from) = GRAMS.into_iter().find_map(ended) else { return Vec::new() };
        let mut all = text.to_vec();
        (from..from + most).for_each(|index| all.push(all[index]));
        all.split_off(text.len())
    }

    #[test]
    fn what_followed_the_last_tokens_is_drafted() {
        let mut lookup = Lookup::new(16);
        assert_eq!(drafted(&mut lookup, &[], 3), [0; 0]);
        assert_eq!(drafted(&mut lookup, &[1, 2, 3, 4], 3), [0; 0]);
        assert_eq!(drafted(&mut lookup, &[1, 2, 3, 4, 9, 1, 2], 3), [3, 4, 9]);
        assert_eq!(drafted(&mut lookup, &[1, 2, 3, 4, 9, 1, 2, 7, 1, 2], 1), [7], "the last place counts");
        assert_eq!(drafted(&mut Lookup::new(0), &[5, 5, 5], 4), [5, 5, 5, 5], "a loop is continued");
    }

    #[test]
    fn the_index_finds_what_a_search_finds_at_every_length_after_rewinds_and_growth() {
        let mut random = Random::new(3);
        for (capacity, tokens) in [(0, 3), (4, 12), (3000, 40)] {
            let mut lookup = Lookup::new(capacity);
            let mut text: Vec<u32> = Vec::new();
            for step in 0..1500 {
                if step % 97 == 96 {
                    text.truncate(random.next() as usize % text.len());
                    lookup.rewind(text.len());
                }
                text.push((random.next() % tokens) as u32);
                // Some texts are never looked at.
                if random.next().is_multiple_of(3) {
                    continue;
                }
                assert_eq!(drafted(&mut lookup, &text, 9), searched(&text, 9), "{tokens} tokens, {text:?}");
            }
        }
    }

    #[test]
    fn a_table_with_room_does_not_grow() {
        let mut lookup = Lookup::new(1000);
        let sizes = |lookup: &Lookup| lookup.tables.each_ref().map(|table| table.ends.len());
        let before = sizes(&lookup);
        let text: Vec<u32> = (0..1000).collect();
        for len in 1..=text.len() {
            drafted(&mut lookup, &text[..len], 4);
        }
        assert_eq!(sizes(&lookup), before);
    }
}
