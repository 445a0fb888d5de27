//! [SentencePiece](https://github.com/google/sentencepiece) tokenization: merges in order of score, with bytes for the rest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use orlop_gguf::{Array, Metadata, MetadataValue};

use super::chain::Chain;
use super::vocabulary::{Vocabulary, check_length};
use super::{Span, keys};
use crate::Error;

/// Merges by score: adjacent pieces are merged if they make a token, the highest score first, among equals the leftmost.
/// Pieces that are not tokens in the end are written as bytes.
#[derive(Debug)]
pub(super) struct SentencePiece {
    /// The score of each token, as integers of the same order.
    scores: Vec<u32>,
    /// The token of each byte, where there is one.
    bytes: [Option<u32>; 256],
    /// The token for bytes that have none.
    unknown: Option<u32>,
}

/// Score, place of the left one, bytes of both.
type Queue = BinaryHeap<(u32, Reverse<u32>, usize)>;

impl SentencePiece {
    pub(super) fn new(
        metadata: &Metadata,
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
    ) -> Result<SentencePiece, Error> {
        let scores = scores(metadata, vocabulary)?.into_iter().map(ordered).collect();
        let byte = |byte| {
            let spelt = format!("<0x{byte:02X}>");
            vocabulary.find(spelt.as_bytes()).or_else(|| vocabulary.find(&[byte as u8]))
        };
        Ok(SentencePiece { scores, bytes: std::array::from_fn(byte), unknown })
    }

    /// Adds the tokens of a text in which `▁` stands for spaces.
    pub(super) fn encode(&self, text: &str, vocabulary: &Vocabulary, ids: &mut Vec<u32>) {
        let mut chain = Chain::default();
        let mut queue = Queue::new();
        let bytes = text.as_bytes();
        let characters = text.char_indices().map(|(start, c)| Span { start, end: start + c.len_utf8() });
        chain.fill(characters);
        let offer = |chain: &Chain<Span>, place: u32, queue: &mut Queue| {
            let Some((left, right)) = chain.pair(place) else { return };
            if let Some(id) = vocabulary.find(&bytes[left.start..right.end]) {
                queue.push((self.scores[id as usize], Reverse(place), right.end - left.start));
            }
        };
        for place in 0..chain.len() {
            offer(&chain, place, &mut queue);
        }
        while let Some((_, Reverse(place), length)) = queue.pop() {
            // A pair that has grown since it was queued was queued again.
            let Some((left, right)) = chain.pair(place) else { continue };
            if right.end - left.start != length {
                continue;
            }
            chain.merge(place, Span { start: left.start, end: right.end });
            offer(&chain, place, &mut queue);
            if let Some(before) = chain.before(place) {
                offer(&chain, before, &mut queue);
            }
        }
        for Span { start, end } in chain.items() {
            match vocabulary.find(&bytes[start..end]) {
                Some(id) => ids.push(id),
                None => {
                    let byte = |byte: &u8| self.bytes[usize::from(*byte)].or(self.unknown);
                    ids.extend(bytes[start..end].iter().filter_map(byte));
                }
            }
        }
    }
}

/// The score of each token; 0, where the file has none.
pub(super) fn scores(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Vec<f32>, Error> {
    let scores = match metadata.get(keys::SCORES) {
        None => vec![0.0; vocabulary.len()],
        Some(MetadataValue::Array(Array::I32(scores))) => scores.iter().map(|score| *score as f32).collect(),
        Some(_) => metadata.f32s(keys::SCORES)?.to_vec(),
    };
    check_length(keys::SCORES, scores.len(), vocabulary.len())?;
    Ok(scores)
}

/// An integer that orders as the number does; NaN is the least of all.
fn ordered(score: f32) -> u32 {
    if score.is_nan() {
        return 0;
    }
    let bits = (score + 0.0).to_bits(); // + 0.0 makes one of the two zeros
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_their_order_as_integers() {
        let scores = [f32::NAN, f32::NEG_INFINITY, -1e9, -2.0, -1.0, -0.0, 1e-9, 3.0, f32::INFINITY];
        assert!(scores.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        assert_eq!(ordered(0.0), ordered(-0.0));
    }
}
