//! Tensors of one graph in one region, allocated and released one by one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, ForeignBufferType, Slot};
use orlop_graph::{Graph, TensorDesc, TensorId};
use orlop_plan::{ChunkOffset, FreeList, FreeListError};

use super::linear::{aligned_start, check_alignment, first_aligned, new_buffer};
use crate::Error;

/// Allocates and releases tensors of one graph in one region, by best fit. Another graph's turn comes when nothing is
/// allocated any more.
///
/// A measuring allocator has no memory: it goes through the same motions in an endless region, to find out how
/// large a real one must be. A real one of exactly [`TensorAllocator::max_bytes`] then repeats them.
#[derive(Debug)]
pub struct TensorAllocator {
    region: Region,
    list: FreeList,
    /// The graph that `live` speaks of; `None` while nothing was allocated.
    graph: Option<Graph>,
    live: HashMap<TensorId, Held>,
    max_bytes: u64,
}

/// A tensor's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    place: ChunkOffset,
    bytes: u64,
}

/// Which tensors of which graph hold which ranges.
#[derive(Clone, Debug)]
pub(crate) struct AllocatorState {
    list: FreeList,
    graph: Option<Graph>,
    live: HashMap<TensorId, Held>,
}

/// Where tensors go.
enum Region {
    /// Nowhere: sizes as a buffer type wants them, or as they are.
    Measuring(Option<Arc<dyn BufferType>>),
    /// A buffer, from its first aligned byte on.
    Buffer { buffer: Arc<dyn Buffer>, start: u64 },
}

impl TensorAllocator {
    /// Measures with an alignment.
    ///
    /// # Errors
    /// [`Error::BadAlignment`].
    pub fn measure(alignment: u64) -> Result<TensorAllocator, Error> {
        TensorAllocator::new(Region::Measuring(None), alignment, None)
    }

    /// Measures with the alignment and the sizes of a buffer type.
    ///
    /// # Errors
    /// [`Error::BadAlignment`].
    pub fn measure_for(buffer_type: Arc<dyn BufferType>) -> Result<TensorAllocator, Error> {
        let alignment = buffer_type.alignment();
        TensorAllocator::new(Region::Measuring(Some(buffer_type)), alignment, None)
    }

    /// Allocates from a buffer that the caller has.
    ///
    /// # Errors
    /// [`Error::BadAlignment`].
    pub fn in_buffer(buffer: Arc<dyn Buffer>) -> Result<TensorAllocator, Error> {
        let alignment = buffer.buffer_type().alignment();
        let start = aligned_start(&*buffer);
        let bytes = buffer.bytes().saturating_sub(start);
        TensorAllocator::new(Region::Buffer { buffer, start }, alignment, Some(bytes))
    }

    /// Allocates from a new buffer of a type.
    ///
    /// # Errors
    /// [`Error::AllocFailed`], [`Error::BadAlignment`].
    pub fn with_buffer(buffer_type: &Arc<dyn BufferType>, bytes: u64) -> Result<TensorAllocator, Error> {
        let failed = |source| Error::AllocFailed {
            buffer_type: buffer_type.name().to_owned(),
            bytes,
            source: Box::new(source),
        };
        TensorAllocator::in_buffer(new_buffer(buffer_type, bytes).map_err(failed)?)
    }

    /// Allocates from memory that the caller hands over. The memory need not be aligned itself.
    ///
    /// # Errors
    /// [`Error::BadAlignment`].
    pub fn in_memory(memory: Box<[u8]>, alignment: u64) -> Result<TensorAllocator, Error> {
        check_alignment("memory", alignment)?;
        let buffer = ForeignBufferType::writable("memory", 1)?.over_memory(memory)?;
        let start = first_aligned(&*buffer, alignment);
        let bytes = buffer.bytes().saturating_sub(start);
        TensorAllocator::new(Region::Buffer { buffer, start }, alignment, Some(bytes))
    }

    fn new(region: Region, alignment: u64, bytes: Option<u64>) -> Result<TensorAllocator, Error> {
        let list = match bytes {
            Some(bytes) => FreeList::bounded(alignment, bytes),
            None => FreeList::unbounded(alignment),
        };
        let list = list.map_err(|_| Error::BadAlignment { arena: region.name(), alignment })?;
        Ok(TensorAllocator { region, list, graph: None, live: HashMap::new(), max_bytes: 0 })
    }

    /// Whether it only measures.
    pub fn is_measuring(&self) -> bool {
        matches!(self.region, Region::Measuring(_))
    }

    /// Its buffer, if it has one.
    pub fn buffer(&self) -> Option<&Arc<dyn Buffer>> {
        match &self.region {
            Region::Measuring(_) => None,
            Region::Buffer { buffer, .. } => Some(buffer),
        }
    }

    /// Most bytes ever in use, from the buffer's beginning to the end of the highest tensor; a reset keeps it.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Allocates a tensor and returns its offset in the buffer, or in the endless region of a measuring allocator.
    ///
    /// # Errors
    /// [`Error::IsView`], [`Error::AlreadyAllocated`] (also for leaves in memory of the caller's),
    /// [`Error::OutOfSpace`], [`Error::ForeignTensor`], [`Error::OtherGraph`], and what the buffer's init hook refuses.
    pub fn alloc(&mut self, graph: &Graph, id: TensorId) -> Result<u64, Error> {
        let tensor =
            graph.get(id).ok_or(Error::ForeignTensor { tensor: id, tensors: graph.tensors().len() })?;
        self.check_graph(graph)?;
        if graph.is_view(id) {
            return Err(Error::IsView { tensor: tensor.name.clone() });
        }
        if self.live.contains_key(&id) || graph.root_leaf(id).is_some_and(|leaf| leaf.is_external()) {
            return Err(Error::AlreadyAllocated { tensor: tensor.name.clone() });
        }
        let bytes = self.region.alloc_bytes(&tensor.desc);
        let place = self.list.allocate(bytes).map_err(|error| refused(error, &tensor.name, bytes))?;
        let offset = self.region.start() + place.offset;
        if let Region::Buffer { buffer, .. } = &self.region
            && let Err(error) = buffer.init_tensor(&tensor.desc, offset)
        {
            // The range was handed out just now, so it can be given back.
            let _ = self.list.release(place, bytes);
            return Err(error.into());
        }
        self.graph.get_or_insert_with(|| graph.clone());
        self.live.insert(id, Held { place, bytes });
        self.max_bytes = self.max_bytes.max(self.region.start() + self.list.high_water());
        Ok(offset)
    }

    /// Gives a tensor's range back.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] if it has none here, [`Error::OtherGraph`].
    pub fn free(&mut self, graph: &Graph, id: TensorId) -> Result<(), Error> {
        self.check_graph(graph)?;
        let name = || graph.get(id).map_or_else(|| id.to_string(), |tensor| tensor.name.clone());
        let held = self.live.get(&id).copied().ok_or_else(|| Error::NotAllocated { tensor: name() })?;
        if let (Region::Buffer { buffer, start }, Some(tensor)) = (&self.region, graph.get(id)) {
            buffer.free_tensor(&tensor.desc, start + held.place.offset);
        }
        self.list.release(held.place, held.bytes).map_err(|error| refused(error, &name(), held.bytes))?;
        self.live.remove(&id);
        self.graph.take_if(|_| self.live.is_empty());
        Ok(())
    }

    /// Where a tensor lies; `None` if it is not allocated here, or nothing lies anywhere while measuring.
    pub fn slot(&self, id: TensorId) -> Option<Slot> {
        let held = self.live.get(&id)?;
        let Region::Buffer { buffer, start } = &self.region else { return None };
        Some(Slot { buffer: Arc::clone(buffer), offset: start + held.place.offset })
    }

    /// The offset of a tensor that is allocated here.
    pub fn offset(&self, id: TensorId) -> Option<u64> {
        Some(self.region.start() + self.live.get(&id)?.place.offset)
    }

    /// Forgets all tensors.
    pub fn reset(&mut self) {
        self.list.reset();
        self.graph = None;
        self.live.clear();
    }

    /// Refuses a graph other than the one whose tensors are allocated: ids of two graphs are the same numbers.
    pub(crate) fn check_graph(&self, graph: &Graph) -> Result<(), Error> {
        match &self.graph {
            Some(own) if !own.is_same(graph) => Err(Error::OtherGraph { allocated: self.live.len() }),
            _ => Ok(()),
        }
    }

    /// Bytes that a tensor takes here, before rounding up.
    pub(crate) fn alloc_bytes(&self, desc: &TensorDesc) -> u64 {
        self.region.alloc_bytes(desc)
    }

    pub(crate) fn alignment(&self) -> u64 {
        self.list.align()
    }

    /// A copy of the free list, to try a sequence on.
    pub(crate) fn try_out(&self) -> FreeList {
        self.list.clone()
    }

    pub(crate) fn place(&self, id: TensorId) -> Option<ChunkOffset> {
        Some(self.live.get(&id)?.place)
    }

    /// What is allocated now, for [`TensorAllocator::restore`].
    pub(crate) fn state(&self) -> AllocatorState {
        AllocatorState { list: self.list.clone(), graph: self.graph.clone(), live: self.live.clone() }
    }

    /// Goes back to what was allocated at another time.
    pub(crate) fn restore(&mut self, state: AllocatorState) {
        AllocatorState { list: self.list, graph: self.graph, live: self.live } = state;
    }

    /// Everything that holds a range: who, where, and how much.
    pub(crate) fn live(&self) -> impl Iterator<Item = (TensorId, ChunkOffset, u64)> + '_ {
        self.live.iter().map(|(id, held)| (*id, held.place, held.bytes))
    }

    /// Adopts the outcome of a sequence tried on a copy: who of a graph holds a range after it, where, and how much.
    pub(crate) fn adopt(
        &mut self,
        graph: &Graph,
        list: FreeList,
        live: impl IntoIterator<Item = (TensorId, ChunkOffset, u64)>,
    ) {
        self.graph = Some(graph.clone());
        self.list = list;
        self.live = live.into_iter().map(|(id, place, bytes)| (id, Held { place, bytes })).collect();
        self.max_bytes = self.max_bytes.max(self.region.start() + self.list.high_water());
    }

    pub(crate) fn start(&self) -> u64 {
        self.region.start()
    }
}

impl Region {
    fn name(&self) -> String {
        match self {
            Region::Measuring(None) => "a measuring region".to_owned(),
            Region::Measuring(Some(buffer_type)) => buffer_type.name().to_owned(),
            Region::Buffer { buffer, .. } => buffer.buffer_type().name().to_owned(),
        }
    }

    fn start(&self) -> u64 {
        match self {
            Region::Measuring(_) => 0,
            Region::Buffer { start, .. } => *start,
        }
    }

    fn alloc_bytes(&self, desc: &TensorDesc) -> u64 {
        match self {
            Region::Measuring(None) => desc.bytes(),
            Region::Measuring(Some(buffer_type)) => buffer_type.alloc_bytes(desc),
            Region::Buffer { buffer, .. } => buffer.buffer_type().alloc_bytes(desc),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

pub(crate) fn refused(error: FreeListError, tensor: &str, bytes: u64) -> Error {
    let tensor = tensor.to_owned();
    match error {
        FreeListError::OutOfSpace { needed, largest } => Error::OutOfSpace { tensor, needed, largest },
        FreeListError::NotAllocated { place, .. } => {
            Error::BadRelease { tensor, offset: place.offset, bytes }
        }
        _ => Error::NotAllocated { tensor },
    }
}
