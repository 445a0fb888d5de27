//! What the host knows of a buffer's contents, since it wrote them itself.

use std::collections::BTreeMap;
use std::ops::Range;

/// Writes up to this size are remembered: positions, row numbers, page tables of long contexts, and the activations of some
/// tokens. What is not remembered and is needed on the host takes a round trip.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Most bytes that are remembered of one buffer.
const ALL_BYTES: usize = 16 << 20;

/// Pieces by where they begin; none overlaps another.
#[derive(Debug, Default)]
pub(super) struct Known {
    pieces: BTreeMap<u64, Vec<u8>>,
    bytes: usize,
}

impl Known {
    /// Notes what was written.
    pub(super) fn note(&mut self, offset: u64, bytes: &[u8]) {
        self.forget(&(offset..offset + bytes.len() as u64));
        if bytes.is_empty() || bytes.len() > PIECE_BYTES {
            return;
        }
        if self.bytes + bytes.len() > ALL_BYTES {
            *self = Known::default();
        }
        self.bytes += bytes.len();
        self.pieces.insert(offset, bytes.to_vec());
    }

    /// A range that lies in one piece.
    pub(super) fn get(&self, range: &Range<u64>) -> Option<&[u8]> {
        let (start, piece) = self.pieces.range(..=range.start).next_back()?;
        piece.get((range.start - start) as usize..(range.end - start) as usize)
    }

    /// Forgets every piece that a write touches.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((start, piece)) = self.pieces.range(..range.end).next_back() {
            let start = *start;
            if start + piece.len() as u64 <= range.start {
                return;
            }
            self.bytes -= self.pieces.remove(&start).map_or(0, |piece| piece.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_known_until_something_touches_it() {
        let mut known = Known::default();
        known.note(10, &[1, 2, 3, 4]);
        known.note(20, &[5; 4]);
        assert_eq!(known.get(&(11..13)), Some(&[2, 3][..]));
        assert_eq!((known.get(&(9..12)), known.get(&(12..21))), (None, None));
        known.forget(&(0..10));
        known.forget(&(14..20));
        assert!(known.get(&(10..14)).is_some() && known.get(&(20..24)).is_some());
        known.forget(&(13..21));
        assert_eq!((known.get(&(10..14)), known.get(&(20..24)), known.bytes), (None, None, 0));
    }

    #[test]
    fn page_tables_of_long_contexts_are_known() {
        // 128 sequences of 131,072 tokens, in pages of 64.
        let pages = vec![7; 128 * 131_072 / 64 * 4];
        let mut known = Known::default();
        known.note(64, &pages);
        assert_eq!(known.get(&(64..64 + pages.len() as u64)), Some(&pages[..]));
    }

    #[test]
    fn memory_for_pieces_is_limited() {
        let mut known = Known::default();
        for piece in 0..100 {
            known.note(piece * PIECE_BYTES as u64, &[0; PIECE_BYTES]);
            assert!(known.bytes <= ALL_BYTES);
        }
        known.note(0, &[0; PIECE_BYTES + 1]);
        assert_eq!(known.get(&(0..1)), None);
    }
}
