//! The choice of a free block for a request.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::FreeList;
use super::chunk::{Chunk, Hole};
use crate::ChunkOffset;
use crate::round::round_up;

/// How a [`FreeList`] chooses between chunks. With one chunk the rules differ only when it is full to its
/// last byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChunkRule {
    /// Best fit: the tightest hole of all chunks, the highest of equals; else the tail that grows its chunk
    /// least, or among those that need no growth, the tightest; else a new chunk. Any number of chunks; the
    /// time to find a hole is independent of it.
    #[default]
    Tightest,
    /// The rule of [ggml-alloc], byte for byte: the tightest hole of the last chunk that has one; the free
    /// block at the highest offset of a chunk counts as its tail even in a full chunk. Tails as above, but
    /// the sixteenth chunk is the last and unlimited. Takes one search per chunk.
    ///
    /// [ggml-alloc]: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-alloc.c
    Ggml,
}

/// ggml's number of chunks; the last one is unlimited.
const GGML_CHUNKS: usize = 16;

impl ChunkRule {
    /// Capacity of a new chunk `chunk` for at least `wanted` bytes; `None` at the limit.
    pub(super) fn chunk_capacity(self, chunk: usize, wanted: u64) -> Option<u64> {
        match self {
            Self::Tightest => Some(wanted),
            Self::Ggml if chunk + 1 < GGML_CHUNKS => Some(wanted),
            Self::Ggml => (chunk + 1 == GGML_CHUNKS).then_some(u64::MAX),
        }
    }
}

/// Holes by size; of equal sizes the highest offset is first.
pub(super) type HoleIndex = BTreeSet<(u64, Reverse<ChunkOffset>)>;

/// A chunk's tail, ordered by bytes below the high-water mark, then by room, then earlier chunks last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TailKey {
    slack: u64,
    room: u64,
    chunk: Reverse<u32>,
}

impl TailKey {
    pub(super) fn of(number: u32, chunk: &Chunk) -> Self {
        Self { slack: chunk.slack(), room: chunk.tail_room(), chunk: Reverse(number) }
    }
}

/// The lowest offset in a block for `need` bytes at a multiple of `align`.
fn fit((start, len): Hole, need: u64, align: u64) -> Option<u64> {
    let at = round_up(start, align)?;
    (at.checked_add(need)? <= start + len).then_some(at)
}

/// The smallest hole that fits the request. A hole shorter than `need + align` can fail because of its
/// alignment; with one alignment for all requests the first hole tried fits.
fn tightest(index: &HoleIndex, need: u64, align: u64, skip: Option<Hole>) -> Option<ChunkOffset> {
    let highest = Reverse(ChunkOffset { chunk: u32::MAX, offset: u64::MAX });
    index.range((need, highest)..).find_map(|(size, Reverse(place))| {
        let hole = (place.offset, *size);
        let offset = fit(hole, need, align).filter(|_| Some(hole) != skip)?;
        Some(ChunkOffset { chunk: place.chunk, offset })
    })
}

impl FreeList {
    pub(super) fn find(&self, need: u64, align: u64) -> Option<ChunkOffset> {
        match self.rule {
            ChunkRule::Tightest => {
                let hole = self.hole_indexes.first().and_then(|index| tightest(index, need, align, None));
                hole.or_else(|| self.cheapest_tail(need, align))
            }
            ChunkRule::Ggml => {
                self.last_chunk_with_a_hole(need, align).or_else(|| self.ggml_tail(need, align))
            }
        }
    }

    fn cheapest_tail(&self, need: u64, align: u64) -> Option<ChunkOffset> {
        let place_in = |key: &TailKey, limit: fn(&Chunk) -> u64| {
            let chunk = self.chunks.get(key.chunk.0 as usize)?;
            let offset = fit((chunk.tail, limit(chunk) - chunk.tail), need, align)?;
            Some(ChunkOffset { chunk: key.chunk.0, offset })
        };
        let paid = TailKey { slack: need, room: 0, chunk: Reverse(u32::MAX) };
        if let Some(place) = self.tails.range(paid..).find_map(|key| place_in(key, |c| c.high_water)) {
            return Some(place);
        }
        // Of equal slack the largest tail is last, so one per slack is enough.
        let mut next = self.tails.last();
        while let Some(key) = next {
            if let Some(place) = place_in(key, |c| c.capacity) {
                return Some(place);
            }
            let below = TailKey { slack: key.slack, room: 0, chunk: Reverse(u32::MAX) };
            next = self.tails.range(..below).next_back();
        }
        None
    }

    fn last_chunk_with_a_hole(&self, need: u64, align: u64) -> Option<ChunkOffset> {
        self.chunks.iter().zip(&self.hole_indexes).rev().find_map(|(chunk, index)| {
            let skip = if chunk.tail_room() == 0 { chunk.holes().next_back() } else { None };
            tightest(index, need, align, skip)
        })
    }

    fn ggml_tail(&self, need: u64, align: u64) -> Option<ChunkOffset> {
        let mut best: Option<(i128, ChunkOffset)> = None;
        for (number, chunk) in (0u32..).zip(&self.chunks) {
            let last = match chunk.tail_room() {
                0 => chunk.holes().next_back(),
                room => Some((chunk.tail, room)),
            };
            let Some(offset) = last.and_then(|block| fit(block, need, align)) else { continue };
            // Negative: bytes that the chunk grows by. Otherwise: bytes that stay unused.
            let reuse = i128::from(chunk.high_water) - i128::from(offset) - i128::from(need);
            let better = best
                .is_none_or(|(so_far, _)| (so_far < 0 && reuse > so_far) || (reuse >= 0 && reuse < so_far));
            if better {
                best = Some((reuse, ChunkOffset { chunk: number, offset }));
            }
        }
        best.map(|(_, place)| place)
    }
}
