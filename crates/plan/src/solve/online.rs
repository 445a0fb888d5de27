//! Replays a problem through the free list in step order.

use super::greedy::Layout;
use crate::{ChunkOffset, ChunkRule, FreeList, FreeListError, Problem};

/// Merged bytes of adjacent or overlapping fixed buffers of one chunk, reserved until their last step.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    place: ChunkOffset,
    size: u64,
    until: u64,
}

/// Allocates every buffer at its first step and releases it after its last. At one step, releases come first;
/// both go by id. The bytes of fixed buffers are reserved from the start until their last step. `None` on
/// overflow. The problem must be valid.
pub(super) fn replay(problem: &Problem, rule: ChunkRule) -> Option<Layout> {
    let mut list = open_list(problem, rule).ok()?;
    let footprint: Vec<u64> = problem.buffers.iter().map(|b| b.footprint()).collect::<Option<_>>()?;
    let mut reserved = reservations(problem, &footprint);
    for range in &reserved {
        while problem.max_chunk.is_some() && list.chunk_count() <= range.place.chunk as usize {
            let last = list.chunk_count() == range.place.chunk as usize;
            // Only a range at offset 0 of its chunk can exceed the chunk limit.
            list.open_chunk(if last { range.size } else { 0 })?;
        }
        if !list.claim(range.place, range.size) {
            return None;
        }
    }
    reserved.sort_by_key(|range| (range.until, range.place));
    let mut reserved = reserved.into_iter().peekable();

    let placed = |index: &usize| problem.buffers[*index].fixed.is_none() && footprint[*index] > 0;
    let mut starts: Vec<usize> = (0..problem.buffers.len()).filter(placed).collect();
    let mut ends = starts.clone();
    starts.sort_by_key(|index| problem.buffers[*index].live.start);
    ends.sort_by_key(|index| problem.buffers[*index].live.end);
    let mut ends = ends.into_iter().peekable();

    let mut places: Vec<ChunkOffset> = problem.buffers.iter().map(|b| b.fixed.unwrap_or_default()).collect();
    for index in starts {
        let buffer = &problem.buffers[index];
        let now = buffer.live.start;
        while let Some(range) = reserved.next_if(|range| range.until <= now) {
            list.give(range.place, range.size, 0).ok()?;
        }
        while let Some(gone) = ends.next_if(|index| problem.buffers[*index].live.end <= now) {
            list.give(places[gone], footprint[gone], 0).ok()?;
        }
        places[index] = list.take(footprint[index], buffer.align).ok()?;
    }
    Some(Layout { places, peak: list.high_waters().try_fold(0u64, u64::checked_add)? })
}

fn open_list(problem: &Problem, rule: ChunkRule) -> Result<FreeList, FreeListError> {
    match problem.max_chunk {
        Some(max_chunk) => FreeList::chunked(1, max_chunk, rule),
        None => FreeList::unbounded(1),
    }
}

/// The union of the fixed buffers' bytes, by ascending offset.
fn reservations(problem: &Problem, footprint: &[u64]) -> Vec<Reserved> {
    let mut fixed: Vec<Reserved> = problem
        .buffers
        .iter()
        .zip(footprint)
        .filter(|(_, size)| **size > 0)
        .filter_map(|(b, size)| Some(Reserved { place: b.fixed?, size: *size, until: b.live.end }))
        .collect();
    fixed.sort_by_key(|range| (range.place, range.until));
    let mut union: Vec<Reserved> = vec![];
    for range in fixed {
        match union.last_mut() {
            Some(last)
                if last.place.chunk == range.place.chunk
                    && range.place.offset <= last.place.offset + last.size =>
            {
                let end = (last.place.offset + last.size).max(range.place.offset + range.size);
                last.size = end - last.place.offset;
                last.until = last.until.max(range.until);
            }
            _ => union.push(range),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferSpec;

    fn offsets(problem: &Problem) -> Vec<(u32, u64)> {
        let layout = replay(problem, ChunkRule::Tightest).unwrap();
        layout.places.into_iter().map(|place| (place.chunk, place.offset)).collect()
    }

    #[test]
    fn what_ends_at_a_step_makes_room_for_what_starts_there() {
        let made = [(32, 0..2), (64, 0..3), (32, 2..3), (0, 0..9)];
        let buffers = made.map(|(size, live)| BufferSpec::new(size, 32, live)).to_vec();
        let problem = Problem { buffers, ..Problem::default() };
        assert_eq!(offsets(&problem), [(0, 0), (0, 32), (0, 0), (0, 0)]);
    }

    #[test]
    fn fixed_bytes_are_kept_clear_until_their_last_step() {
        let fixed = |live, offset| BufferSpec::new(10, 1, live).fixed_at(ChunkOffset { chunk: 0, offset });
        let free = |live| BufferSpec::new(10, 1, live);
        let buffers = vec![fixed(5..6, 0), fixed(2..4, 5), free(0..1), free(6..7)];
        let problem = Problem { buffers, ..Problem::default() };
        assert_eq!(offsets(&problem), [(0, 0), (0, 5), (0, 15), (0, 0)]);
    }

    #[test]
    fn chunks_before_a_fixed_one_keep_the_limit() {
        let fixed = BufferSpec::new(300, 1, 0..9).fixed_at(ChunkOffset { chunk: 1, offset: 0 });
        let buffers = vec![fixed, BufferSpec::new(60, 1, 0..9), BufferSpec::new(60, 1, 0..9)];
        let problem = Problem { buffers, max_chunk: Some(100), ..Problem::default() };
        assert_eq!(offsets(&problem), [(1, 0), (0, 0), (2, 0)]);
    }

    #[test]
    fn mixed_alignments_leave_the_padding_to_others() {
        let made = [(1, 1), (64, 64), (8, 8)];
        let buffers = made.map(|(size, align)| BufferSpec::new(size, align, 0..1)).to_vec();
        let problem = Problem { buffers, ..Problem::default() };
        assert_eq!(offsets(&problem), [(0, 0), (0, 64), (0, 8)]);
    }
}
