//! Buffers behind the arenas of plans, which grow from plan to plan.

use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, DeviceError, Slot};

use super::linear::new_buffer;
use crate::{ArenaId, ArenaOffset, Error, MemoryPlan, ValueId};

/// What happens to memory that has become too small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Growth {
    /// The new memory is allocated before the old is freed; if that fails, nothing has changed.
    #[default]
    Keep,
    /// The old memory is freed first, so that both never exist together; if the new cannot be had, what was
    /// reserved is gone, and the object can be reserved anew.
    Replace,
}

/// A chunk that was replaced by a larger one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Name of the buffer type.
    pub buffer_type: String,
    /// Which chunk of its arena.
    pub chunk: usize,
    /// Bytes before; 0 if there was none.
    pub from: u64,
    /// Bytes now.
    pub to: u64,
}

/// The memory behind the arenas of plans: for each arena a list of chunks, which only ever grow.
#[derive(Debug)]
pub struct Arenas {
    types: Vec<Arc<dyn BufferType>>,
    chunks: Vec<Vec<Arc<dyn Buffer>>>,
}

impl Arenas {
    /// Arenas of these types, without any memory yet.
    pub fn new(types: Vec<Arc<dyn BufferType>>) -> Arenas {
        let chunks = vec![Vec::new(); types.len()];
        Arenas { types, chunks }
    }

    /// Their types.
    pub fn types(&self) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    /// Bytes of an arena's chunks, `None` while there are none.
    pub fn bytes(&self, arena: usize) -> Option<u64> {
        let chunks = &self.chunks[arena];
        (!chunks.is_empty())
            .then(|| chunks.iter().fold(0, |sum: u64, chunk| sum.saturating_add(chunk.bytes())))
    }

    /// All chunks of all arenas.
    pub fn chunks(&self) -> impl Iterator<Item = &Arc<dyn Buffer>> {
        self.chunks.iter().flatten()
    }

    /// Makes every chunk at least as large as a plan wants it. Every arena has at least one chunk afterwards,
    /// of 0 bytes if need be, so that views of nothing have somewhere to lie.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::AllocFailed`]; see [`Growth`] for what then holds.
    pub fn ensure(&mut self, plan: &MemoryPlan, growth: Growth) -> Result<Vec<Grown>, Error> {
        let wanted = self.wanted(plan);
        if growth == Growth::Replace {
            // An empty buffer in its place keeps the positions of the others.
            for (arena, chunk, ..) in &wanted {
                if let Some(buffer) = self.chunks[*arena].get_mut(*chunk) {
                    *buffer = empty(&self.types[*arena])?;
                }
            }
        }
        let mut fresh = Vec::new();
        for (arena, chunk, _, bytes) in &wanted {
            let buffer_type = &self.types[*arena];
            let buffer = new_buffer(buffer_type, *bytes)
                .map_err(|source| failed(plan, *arena, *chunk, *bytes, &**buffer_type, source))?;
            fresh.push(buffer);
        }
        let mut grown = Vec::new();
        for ((arena, chunk, from, to), buffer) in wanted.into_iter().zip(fresh) {
            let chunks = &mut self.chunks[arena];
            if chunk < chunks.len() {
                chunks[chunk] = buffer;
            } else {
                chunks.push(buffer);
            }
            grown.push(Grown { buffer_type: self.types[arena].name().to_owned(), chunk, from, to });
        }
        Ok(grown)
    }

    /// Whether every chunk is as large as a plan wants it: [`Arenas::ensure`] would change nothing.
    pub fn holds(&self, plan: &MemoryPlan) -> bool {
        self.wanted(plan).is_empty()
    }

    /// Arena, chunk, bytes now and bytes wanted of each chunk that is too small for a plan.
    fn wanted(&self, plan: &MemoryPlan) -> Vec<(usize, usize, u64, u64)> {
        let mut wanted = Vec::new();
        for (arena, planned) in plan.arenas.iter().enumerate() {
            let sizes: &[u64] = if planned.chunks.is_empty() { &[0] } else { &planned.chunks };
            for (chunk, bytes) in sizes.iter().enumerate() {
                let now = self.chunks[arena].get(chunk).map(|buffer| buffer.bytes());
                if now.is_none_or(|now| now < *bytes) {
                    wanted.push((arena, chunk, now.unwrap_or(0), *bytes));
                }
            }
        }
        wanted
    }

    /// The place of a plan as a place in memory.
    pub fn slot(&self, place: ArenaOffset) -> Option<Slot> {
        let buffer = self.chunks.get(place.arena.index())?.get(place.chunk as usize)?;
        Some(Slot { buffer: Arc::clone(buffer), offset: place.offset })
    }
}

fn empty(buffer_type: &Arc<dyn BufferType>) -> Result<Arc<dyn Buffer>, Error> {
    let failed = |source| Error::AllocFailed {
        buffer_type: buffer_type.name().to_owned(),
        bytes: 0,
        source: Box::new(source),
    };
    new_buffer(buffer_type, 0).map_err(failed)
}

/// A failed allocation, with the name of the value to blame where one alone is too large.
fn failed(
    plan: &MemoryPlan,
    arena: usize,
    chunk: usize,
    bytes: u64,
    buffer_type: &dyn BufferType,
    source: DeviceError,
) -> Error {
    let name = buffer_type.name().to_owned();
    if let DeviceError::TooLarge { max, .. } = &source {
        let arena_id = ArenaId::new(arena);
        let in_chunk = |(index, value): &(usize, &crate::ValueInfo)| {
            value.root.index() == *index
                && plan
                    .place(ValueId::new(*index))
                    .is_some_and(|place| (place.arena, place.chunk as usize) == (arena_id, chunk))
        };
        let values = plan.usage.values().iter().enumerate().filter(in_chunk);
        let sizes = values.map(|(index, _)| {
            let id = ValueId::new(index);
            (plan.usage.rounded_bytes(id, arena_id), id)
        });
        // The first of equals is the one whose memory the others took over.
        if let Some((bytes, id)) = sizes.max_by_key(|(bytes, id)| (*bytes, std::cmp::Reverse(*id)))
            && bytes > *max
        {
            let tensor = plan.usage.name(id).to_owned();
            return Error::TooLarge { tensor, bytes, max: *max, buffer_type: name };
        }
    }
    Error::AllocFailed { buffer_type: name, bytes, source: Box::new(source) }
}
