//! Allocates tensors by hand and whole graphs in one region, of real memory or to measure.

use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Buffer, Slot};
use orlop_graph::{Graph, Leaf, NodeId, Order, TensorDesc, TensorId};
use orlop_plan::{ChunkOffset, FreeList};

use super::tensor_allocator::{AllocatorState, refused};
use crate::lowered::plain::{Homes, check_order, usage_of};
use crate::planning::trace::{Rules, Trace, TraceEvent, walk};
use crate::{ArenaId, ArenaInfo, Error, Sharing, TensorAllocator, Unread, Usage, ValueId};

/// A tensor allocator and a graph allocator in one object, for those who size memory by measuring: allocate
/// inputs and then the graph with a measuring one, make a real one of [`RegionAllocator::max_bytes`], do the
/// same again, write the inputs, compute.
///
/// Leaves that were not allocated by hand are placed right before their first use and may share memory with
/// earlier results, so whatever is set before a run must be allocated by hand first. Results that no node reads
/// live to the end. For another graph, [`RegionAllocator::reset`] it first.
#[derive(Debug)]
pub struct RegionAllocator {
    tensors: TensorAllocator,
    /// Where the last graph's tensors went, those included whose range was given back since.
    placed: HashMap<TensorId, ChunkOffset>,
    /// How the graph was placed; `None` while it was not.
    last: Option<LastPlacing>,
}

/// The order that a graph was placed in, and what is needed to place it in another one.
#[derive(Clone, Debug)]
struct LastPlacing {
    order: Order,
    /// What was allocated before.
    before: (AllocatorState, HashMap<TensorId, ChunkOffset>),
    /// A tensor that was allocated by hand since.
    since: Option<TensorId>,
}

impl RegionAllocator {
    /// An object around a tensor allocator of any kind.
    pub fn new(tensors: TensorAllocator) -> RegionAllocator {
        RegionAllocator { tensors, placed: HashMap::new(), last: None }
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
        if let Some(last) = &mut self.last {
            last.since.get_or_insert(id);
        }
        Ok(offset)
    }

    /// Allocates all of a graph that is not allocated yet and returns [`RegionAllocator::max_bytes`]. What was
    /// allocated by hand stays where it is; like everything else it is given back, or taken over in place,
    /// after its last use. A graph that is allocated already is left alone, unless it is to run in another order than it
    /// was placed for: then everything but what was allocated by hand is placed anew.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`], [`Error::OtherGraph`], [`Error::AllocatedSince`], and what the buffer's init hook refuses;
    /// everything is as it was then.
    pub fn alloc_graph(&mut self, graph: &Graph) -> Result<u64, Error> {
        self.alloc_ordered(graph, &graph.order())
    }

    /// As [`RegionAllocator::alloc_graph`], in an order of the caller's: memory is given back at its barriers.
    ///
    /// # Errors
    /// As there, and [`Error::Graph`] for an order that is not one of this graph.
    pub fn alloc_graph_in(&mut self, graph: &Graph, order: &Order) -> Result<u64, Error> {
        check_order(graph, order)?;
        self.alloc_ordered(graph, order)
    }

    fn alloc_ordered(&mut self, graph: &Graph, order: &Order) -> Result<u64, Error> {
        self.tensors.check_graph(graph)?;
        let Some(last) = self.last.take_if(|last| last.order != *order) else {
            return self.place(graph, order);
        };
        // In another order: from where the last one began.
        if let Some(since) = last.since {
            self.last = Some(last);
            return Err(Error::AllocatedSince { tensor: graph.tensor(since).name.clone() });
        }
        let now = (self.tensors.state(), self.placed.clone());
        let (state, placed) = last.before.clone();
        self.tensors.restore(state);
        self.placed = placed;
        let outcome = self.place(graph, order);
        if outcome.is_err() {
            self.tensors.restore(now.0);
            (self.placed, self.last) = (now.1, Some(last));
        } else if let Some(buffer) = self.tensors.buffer() {
            let moved = |(id, place): &(&TensorId, &ChunkOffset)| self.placed.get(*id) != Some(*place);
            for (id, place) in now.1.iter().filter(moved) {
                buffer.free_tensor(&graph.tensor(*id).desc, self.tensors.start() + place.offset);
            }
        }
        outcome
    }

    fn place(&mut self, graph: &Graph, order: &Order) -> Result<u64, Error> {
        let arena = ArenaId::new(0);
        let mut usage = usage_of(graph, order, &InRegion(&self.tensors))?;
        let by_hand: Vec<Option<ChunkOffset>> = graph.tensor_ids().map(|id| self.tensors.place(id)).collect();
        usage.unread = Unread::LivesOn;
        // Whatever has memory has it from the beginning, results included.
        usage.leaves = (0..by_hand.len())
            .filter(|index| by_hand[*index].is_some())
            .map(|index| (ValueId::new(index), arena))
            .collect();
        usage.validate()?;

        let trace = walk(&usage, Rules { sharing: Sharing::Full, across_arenas: false });
        let placed_before = |id: &TensorId| self.placed.contains_key(id);
        if graph.tensor_ids().filter(|id| trace.homes[id.index()].is_some()).all(|id| placed_before(&id)) {
            return Ok(self.tensors.max_bytes());
        }
        let outcome = self.replay(&usage, &trace, &by_hand)?;
        let placed: HashMap<TensorId, ChunkOffset> = graph
            .tensor_ids()
            .filter_map(|id| Some((id, outcome.places[trace.homes[id.index()]?]?)))
            .collect();
        self.init(graph, &placed, &by_hand)?;

        let holders = graph.tensor_ids().filter_map(|id| {
            let piece = trace.homes[id.index()].filter(|piece| !outcome.released[*piece])?;
            let holds = trace.pieces[piece].values.last() == Some(&ValueId::new(id.index()));
            Some((id, outcome.places[piece].filter(|_| holds)?, trace.pieces[piece].bytes))
        });
        let untouched = self
            .tensors
            .live()
            .filter(|(id, ..)| by_hand.get(id.index()).is_none() || trace.homes[id.index()].is_none());
        let live: Vec<_> = holders.chain(untouched).collect();
        let before = (self.tensors.state(), std::mem::replace(&mut self.placed, placed));
        self.last = Some(LastPlacing { order: order.clone(), before, since: None });
        self.tensors.adopt(graph, outcome.list, live);
        Ok(self.tensors.max_bytes())
    }

    /// Goes through the events on a copy of the free list.
    fn replay(
        &self,
        usage: &Usage,
        trace: &Trace,
        by_hand: &[Option<ChunkOffset>],
    ) -> Result<Outcome, Error> {
        let pieces = trace.pieces.len();
        let list = self.tensors.try_out();
        let mut outcome = Outcome { list, places: vec![None; pieces], released: vec![false; pieces] };
        for event in &trace.events {
            match *event {
                TraceEvent::Allocate { piece, value, .. } => {
                    let bytes = trace.pieces[piece].bytes;
                    let place = match by_hand[value.index()] {
                        Some(place) => place,
                        None => {
                            outcome.list.allocate(bytes).map_err(|e| refused(e, usage.name(value), bytes))?
                        }
                    };
                    outcome.places[piece] = Some(place);
                }
                TraceEvent::Release { piece, .. } => {
                    let (Some(place), bytes) = (outcome.places[piece], trace.pieces[piece].bytes) else {
                        continue;
                    };
                    let name = usage.name(trace.pieces[piece].values[0]);
                    outcome.list.release(place, bytes).map_err(|e| refused(e, name, bytes))?;
                    outcome.released[piece] = true;
                }
                TraceEvent::Shrink { .. } => {}
            }
        }
        Ok(outcome)
    }

    /// Tells the buffer of everything that is bound now, views included.
    fn init(
        &self,
        graph: &Graph,
        placed: &HashMap<TensorId, ChunkOffset>,
        by_hand: &[Option<ChunkOffset>],
    ) -> Result<(), Error> {
        let Some(buffer) = self.tensors.buffer() else { return Ok(()) };
        let mut bound = Vec::new();
        for id in graph.tensor_ids().filter(|id| by_hand[id.index()].is_none()) {
            let tensor = graph.tensor(id);
            let Some(root) = placed.get(&tensor.storage.root) else { continue };
            let offset = self.tensors.start() + root.offset + tensor.storage.offset;
            if let Err(error) = buffer.init_tensor(&tensor.desc, offset) {
                bound.into_iter().rev().for_each(|(desc, offset)| buffer.free_tensor(desc, offset));
                return Err(error.into());
            }
            bound.push((&tensor.desc, offset));
        }
        Ok(())
    }

    /// Where a tensor lies, views included; `None` while measuring.
    pub fn slot(&self, graph: &Graph, id: TensorId) -> Option<Slot> {
        let buffer = Arc::clone(self.tensors.buffer()?);
        Some(Slot { buffer, offset: self.offset(graph, id)? })
    }

    /// The offset of a tensor, views included.
    pub fn offset(&self, graph: &Graph, id: TensorId) -> Option<u64> {
        self.tensors.check_graph(graph).ok()?;
        let storage = graph.get(id)?.storage;
        Some(self.tensors.start() + self.placed.get(&storage.root)?.offset + storage.offset)
    }

    /// See [`TensorAllocator::reset`].
    pub fn reset(&mut self) {
        self.tensors.reset();
        self.placed.clear();
        self.last = None;
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

/// What going through a graph's events leaves behind.
struct Outcome {
    list: FreeList,
    /// Where each piece went.
    places: Vec<Option<ChunkOffset>>,
    /// Which pieces were given back.
    released: Vec<bool>,
}

/// One arena, where everything but external leaves may lie.
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

    fn node(&self, _: NodeId) -> ArenaId {
        ArenaId::new(0)
    }
}
