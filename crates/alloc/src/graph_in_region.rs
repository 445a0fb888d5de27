use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Buffer, Slot};
use orlop_graph::{Graph, Leaf, Order, TensorDesc, TensorId};
use orlop_plan::Place;

use crate::graph_usage::{Homes, Lowered, plain_steps, usage_of};
use crate::tensor_allocator::refused;
use crate::trace::{Event, Rules, walk};
use crate::{ArenaId, ArenaInfo, Error, Sharing, TensorAllocator, Unread, ValueId};

/// A tensor allocator and a graph allocator in one object, for those who size memory by measuring: allocate
/// inputs and then the graph with a measuring one, make a real one of [`RegionAllocator::max_bytes`], do the
/// same again, write the inputs, compute.
///
/// Leafs that were not allocated by hand are placed right before their first use and may share memory with
/// earlier results, so whatever is set before a run must be allocated by hand first. Results that nobody reads
/// live to the end.
#[derive(Debug)]
pub struct RegionAllocator {
    tensors: TensorAllocator,
    /// Where the last graph's tensors went, those included whose range was given back since.
    placed: HashMap<TensorId, Place>,
}

impl RegionAllocator {
    /// An object around a tensor allocator of any kind.
    pub fn new(tensors: TensorAllocator) -> RegionAllocator {
        RegionAllocator { tensors, placed: HashMap::new() }
    }

    /// See [`TensorAllocator::alloc`].
    ///
    /// # Errors
    /// As there.
    pub fn alloc(&mut self, graph: &Graph, id: TensorId) -> Result<u64, Error> {
        let offset = self.tensors.alloc(graph, id)?;
        if let Some(place) = self.tensors.place(id) {
            self.placed.insert(id, place);
        }
        Ok(offset)
    }

    /// Allocates all of a graph that is not allocated yet and returns [`RegionAllocator::max_bytes`].
    ///
    /// # Errors
    /// [`Error::OutOfSpace`]; nothing is allocated then.
    pub fn alloc_graph(&mut self, graph: &Graph) -> Result<u64, Error> {
        self.alloc_graph_in(graph, &graph.order())
    }

    /// As [`RegionAllocator::alloc_graph`], in an order of the caller's: memory is given back at its barriers.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`]; nothing is allocated then.
    pub fn alloc_graph_in(&mut self, graph: &Graph, order: &Order) -> Result<u64, Error> {
        let (steps, groups) = plain_steps(graph, order);
        let arena = ArenaId::new(0);
        let at: Vec<(ArenaId, u32)> = groups.into_iter().map(|group| (arena, group)).collect();
        let mut usage = usage_of(Lowered { graph, steps: &steps, at: &at }, &InRegion(&self.tensors))?;
        let by_hand: Vec<Option<Place>> = graph.tensor_ids().map(|id| self.tensors.place(id)).collect();
        usage.unread = Unread::LivesOn;
        usage.leafs.retain(|(value, _)| by_hand[value.index()].is_some());
        usage.validate()?;

        let trace = walk(&usage, Rules { sharing: Sharing::Full, across_arenas: false });
        let mut list = self.tensors.try_out();
        let mut places: Vec<Option<Place>> = vec![None; trace.pieces.len()];
        for event in &trace.events {
            match *event {
                Event::Allocate { piece, value, .. } => {
                    let bytes = trace.pieces[piece].bytes;
                    let place = match by_hand[value.index()] {
                        Some(place) => place,
                        None => list.allocate(bytes).map_err(|e| refused(e, usage.name(value), bytes))?,
                    };
                    places[piece] = Some(place);
                }
                Event::Release { piece, .. } => {
                    let (Some(place), bytes) = (places[piece], trace.pieces[piece].bytes) else { continue };
                    let name = usage.name(trace.pieces[piece].values[0]);
                    list.release(place, bytes).map_err(|e| refused(e, name, bytes))?;
                }
                Event::Shrink { .. } => {}
            }
        }

        let mut live = Vec::new();
        self.placed.clear();
        for id in graph.tensor_ids() {
            let Some(piece) = trace.homes[id.index()] else { continue };
            let Some(place) = places[piece] else { continue };
            self.placed.insert(id, place);
            let lives_on = trace.pieces[piece].live.end >= usage.step_count();
            let holds = trace.pieces[piece].values.last() == Some(&ValueId::new(id.index()));
            if lives_on && holds && self.tensors.place(id).is_none() {
                live.push((id, place, trace.pieces[piece].bytes));
            }
        }
        self.tensors.adopt(list, live);
        Ok(self.tensors.max_bytes())
    }

    /// Where a tensor lies, views included; `None` while measuring.
    pub fn slot(&self, graph: &Graph, id: TensorId) -> Option<Slot> {
        let buffer = Arc::clone(self.tensors.buffer()?);
        Some(Slot { buffer, offset: self.offset(graph, id)? })
    }

    /// The offset of a tensor, views included.
    pub fn offset(&self, graph: &Graph, id: TensorId) -> Option<u64> {
        let storage = graph.get(id)?.storage;
        Some(self.tensors.start() + self.placed.get(&storage.root)?.offset + storage.offset)
    }

    /// See [`TensorAllocator::reset`].
    pub fn reset(&mut self) {
        self.tensors.reset();
        self.placed.clear();
    }

    /// See [`TensorAllocator::max_bytes`].
    pub fn max_bytes(&self) -> u64 {
        self.tensors.max_bytes()
    }

    /// See [`TensorAllocator::is_measuring`].
    pub fn is_measuring(&self) -> bool {
        self.tensors.is_measuring()
    }

    /// See [`TensorAllocator::buffer`].
    pub fn buffer(&self) -> Option<&Arc<dyn Buffer>> {
        self.tensors.buffer()
    }
}

/// One arena, where everything but external leafs may lie.
struct InRegion<'a>(&'a TensorAllocator);

impl Homes for InRegion<'_> {
    fn arenas(&self) -> Vec<ArenaInfo> {
        vec![ArenaInfo { name: "region".to_owned(), alignment: self.0.alignment(), max_chunk: u64::MAX }]
    }

    fn bytes(&self, _: ArenaId, desc: &TensorDesc) -> u64 {
        self.0.alloc_bytes(desc)
    }

    fn leaf(&self, _: TensorId, leaf: Leaf) -> Option<ArenaId> {
        (!leaf.is_external()).then(|| ArenaId::new(0))
    }
}
