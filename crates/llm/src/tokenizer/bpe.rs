//! [Byte-pair encoding](https://arxiv.org/abs/1508.07909) (BPE) of words, with merges in order of rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;
use orlop_gguf::Strings;

use super::chain::Chain;
use super::vocabulary::{Spelling, Vocabulary};
use super::{TokenizerError, alphabet, keys};

/// Stands for a byte without a token; vocabularies are smaller.
const MISSING: u32 = u32::MAX;

/// Two adjacent tokens, and the one that they become.
#[derive(Clone, Copy, Debug)]
struct Merge {
    left: u32,
    right: u32,
    merged: u32,
}

/// Byte-pair merges: adjacent tokens of a word are merged, the pair of the lowest rank first, among equals the leftmost.
#[derive(Debug)]
pub(super) struct Bpe {
    merges: Vec<Merge>,
    /// The place in `merges` of each pair that can merge.
    ranks: HashMap<(u32, u32), u32>,
    /// The token of each byte, where there is one.
    bytes: [Option<u32>; 256],
}

/// Memory for merging, which is reused from word to word.
#[derive(Default)]
pub(super) struct Scratch {
    chain: Chain<u32>,
    queue: BinaryHeap<Reverse<(u32, u32)>>, // rank, place of the left one
}

impl Bpe {
    pub(super) fn new(merges: &Strings, vocabulary: &Vocabulary) -> Result<Bpe, TokenizerError> {
        if u32::try_from(merges.len()).is_err() {
            return Err(TokenizerError::VocabularyLength {
                key: keys::MERGES,
                found: merges.len(),
                tokens: vocabulary.len(),
            });
        }
        let mut bpe = Bpe {
            merges: Vec::with_capacity(merges.len()),
            ranks: HashMap::with_capacity(merges.len()),
            bytes: std::array::from_fn(|byte| match vocabulary.spelling() {
                Spelling::Bytes | Spelling::Escaped => vocabulary.find(&[byte as u8]),
                Spelling::Text => vocabulary.find(format!("<0x{byte:02X}>").as_bytes()),
            }),
        };
        let mut buffer = Vec::new();
        for (index, text) in merges.iter().enumerate() {
            let merge = read(text, vocabulary, &mut buffer)
                .map_err(|part| merge_error(index, text, part, vocabulary))?;
            let rank = bpe.merges.len() as u32;
            bpe.ranks.entry((merge.left, merge.right)).or_insert(rank);
            bpe.merges.push(merge);
        }
        Ok(bpe)
    }

    /// Adds the tokens of a word. A byte for which there is no token is left out.
    pub(super) fn encode(&self, word: &[u8], scratch: &mut Scratch, ids: &mut Vec<u32>) {
        scratch.chain.fill(word.iter().map(|byte| self.bytes[usize::from(*byte)].unwrap_or(MISSING)));
        self.merge(scratch, ids);
    }

    /// Adds the tokens of a word of plain text. Characters without a token are written as bytes.
    pub(super) fn encode_text(
        &self,
        word: &str,
        vocabulary: &Vocabulary,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let mut symbols = Vec::with_capacity(word.len());
        for c in word.chars() {
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            match vocabulary.find(bytes) {
                Some(id) => symbols.push(id),
                None => symbols.extend(bytes.iter().filter_map(|byte| self.bytes[usize::from(*byte)])),
            }
        }
        scratch.chain.fill(symbols.into_iter());
        self.merge(scratch, ids);
    }

    fn merge(&self, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        let Scratch { chain, queue } = scratch;
        queue.clear();
        for place in 0..chain.len() {
            self.offer(chain, place, queue);
        }
        while let Some(Reverse((rank, place))) = queue.pop() {
            let merge = self.merges[rank as usize];
            // A pair that has changed since it was queued was queued again.
            if chain.pair(place) != Some((merge.left, merge.right)) {
                continue;
            }
            chain.merge(place, merge.merged);
            self.offer(chain, place, queue);
            if let Some(before) = chain.before(place) {
                self.offer(chain, before, queue);
            }
        }
        ids.extend(chain.items().filter(|id| *id != MISSING));
    }

    fn offer(&self, chain: &Chain<u32>, place: u32, queue: &mut BinaryHeap<Reverse<(u32, u32)>>) {
        if let Some(rank) = chain.pair(place).and_then(|pair| self.ranks.get(&pair)) {
            queue.push(Reverse((*rank, place)));
        }
    }
}

/// Which part of a merge is not a token.
enum Unknown {
    Form,
    Left,
    Right,
    Merged,
}

fn halves(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = 1 + text.get(1..)?.iter().position(|byte| *byte == b' ')?;
    Some((&text[..space], &text[space + 1..]))
}

fn read(text: &[u8], vocabulary: &Vocabulary, buffer: &mut Vec<u8>) -> Result<Merge, Unknown> {
    let (left, right) = halves(text).ok_or(Unknown::Form)?;
    buffer.clear();
    let spell = |text: &[u8], buffer: &mut Vec<u8>| match vocabulary.spelling() {
        Spelling::Bytes => alphabet::decode(text, buffer),
        Spelling::Text | Spelling::Escaped => {
            buffer.extend_from_slice(text);
            true
        }
    };
    let left_spelt = spell(left, buffer);
    let middle = buffer.len();
    let right_spelt = spell(right, buffer);
    let find = |spelt: bool, key: &[u8]| if spelt { vocabulary.find(key) } else { None };
    Ok(Merge {
        left: find(left_spelt, &buffer[..middle]).ok_or(Unknown::Left)?,
        right: find(right_spelt, &buffer[middle..]).ok_or(Unknown::Right)?,
        merged: vocabulary.find(buffer).ok_or(Unknown::Merged)?,
    })
}

fn merge_error(index: usize, text: &[u8], part: Unknown, vocabulary: &Vocabulary) -> TokenizerError {
    let merge = String::from_utf8_lossy(text).into_owned();
    let (left, right) = halves(text).unwrap_or_default();
    let token = match part {
        Unknown::Form => return TokenizerError::MergeForm { index, merge },
        Unknown::Left => left.to_vec(),
        Unknown::Right => right.to_vec(),
        Unknown::Merged => [left, right].concat(),
    };
    let token = String::from_utf8_lossy(&token).into_owned();
    TokenizerError::MergeUnknown { index, merge, token, tokens: vocabulary.len() }
}
