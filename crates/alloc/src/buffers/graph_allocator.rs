//! Allocates whole graphs from planned buffers, one graph after the other.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use orlop_backend::{BufferType, Slot, same_type};
use orlop_graph::{Graph, Leaf, NodeId, Order, TensorDesc, TensorId};

use super::arena::Arenas;
use super::observe::{AllocEvent, Observer, narrate};
use crate::lowered::plain::{Homes, check_order, usage_of};
use crate::{
    ArenaId, ArenaInfo, Error, Externals, Growth, MemoryPlan, Misfit, PlanOptions, Usage, ValueId,
    plan_memory,
};

/// Allocates whole graphs from buffers of one or several types, and keeps the memory from graph to graph.
///
/// [`GraphAllocator::reserve`] plans for the largest graph once; [`GraphAllocator::alloc`] then binds that graph
/// and every smaller one of the same shape without planning again, and plans anew by itself when one does not
/// fit. Graphs are never changed; what is bound comes back as an [`Allocation`], which keeps its memory alive
/// even when the allocator moves on to larger buffers.
///
/// ```
/// use orlop_alloc::{Externals, GraphAllocator};
/// use orlop_backend::HostBufferType;
/// use orlop_graph::{DType, GraphBuilder};
/// let mut b = GraphBuilder::new();
/// let x = b.input("x", DType::F32, &[16]);
/// let y = b.sqr(x);
/// let z = b.relu(y);
/// b.output(z);
/// let graph = b.build()?;
/// let mut allocator = GraphAllocator::new([HostBufferType::new("host") as _])?;
/// let allocation = allocator.alloc(&graph, &Externals::new())?;
/// // Both ops run in place: everything lies where the input does.
/// assert_eq!(allocation.slot(z).map(|slot| slot.offset), Some(0));
/// assert_eq!(allocator.buffer_bytes(0)?, 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GraphAllocator {
    /// The arena of each buffer type given; equal types have one.
    arena_of: Vec<ArenaId>,
    arenas: Arenas,
    plan: Option<Arc<MemoryPlan>>,
    /// What the plan served last; the same again needs no look.
    served: Option<(Graph, Arc<Assignment>)>,
    options: PlanOptions,
    growth: Growth,
    observer: Option<Box<dyn Observer>>,
}

/// Which buffer type each node's result and each leaf is placed in, by position in the allocator's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// One number a node of the graph; none for the first buffer everywhere.
    pub nodes: Option<Vec<usize>>,
    /// One number a leaf of the graph, in the order of [`Graph::leaves`]; none for the first buffer everywhere.
    pub leaves: Option<Vec<usize>>,
    /// The order of execution; none for the graph's own.
    pub order: Option<Order>,
}

/// A graph bound to memory.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub(crate) graph: Graph,
    pub(crate) assignment: Arc<Assignment>,
    tensors: Vec<Option<Slot>>,
    plan: Arc<MemoryPlan>,
}

impl Allocation {
    /// Where a tensor lies, views included; `None` for external leaves that were not given.
    pub fn slot(&self, id: TensorId) -> Option<&Slot> {
        self.tensors.get(id.index())?.as_ref()
    }

    /// All places, by tensor.
    pub fn slots(&self) -> &[Option<Slot>] {
        &self.tensors
    }

    /// The plan behind it.
    pub fn plan(&self) -> &Arc<MemoryPlan> {
        &self.plan
    }
}

impl GraphAllocator {
    /// An allocator over buffer types; nothing is allocated yet. Types that are given twice share one arena.
    ///
    /// # Errors
    /// [`Error::NoBuffers`] for an empty list, [`Error::BadAlignment`].
    pub fn new(types: impl IntoIterator<Item = Arc<dyn BufferType>>) -> Result<GraphAllocator, Error> {
        let mut distinct: Vec<Arc<dyn BufferType>> = Vec::new();
        let mut arena_of = Vec::new();
        for buffer_type in types {
            let alignment = buffer_type.alignment();
            if !alignment.is_power_of_two() {
                return Err(Error::BadAlignment { arena: buffer_type.name().to_owned(), alignment });
            }
            let known = distinct.iter().position(|known| same_type(known, &buffer_type));
            let index = known.unwrap_or_else(|| {
                distinct.push(buffer_type);
                distinct.len() - 1
            });
            arena_of.push(ArenaId::new(index));
        }
        if arena_of.is_empty() {
            return Err(Error::NoBuffers);
        }
        Ok(GraphAllocator {
            arena_of,
            arenas: Arenas::new(distinct),
            plan: None,
            served: None,
            options: PlanOptions::default(),
            growth: Growth::default(),
            observer: None,
        })
    }

    /// Plans with other options. Default: [`PlanOptions::default`].
    pub fn with_options(mut self, options: PlanOptions) -> GraphAllocator {
        self.options = options;
        self
    }

    /// Grows in another way. Default: [`Growth::Keep`].
    pub fn with_growth(mut self, growth: Growth) -> GraphAllocator {
        self.growth = growth;
        self
    }

    /// Tells an observer what happens. Default: none.
    pub fn with_observer(mut self, observer: impl Observer + 'static) -> GraphAllocator {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Plans a graph in the first buffer and allocates what it needs.
    ///
    /// # Errors
    /// As [`GraphAllocator::reserve_with`].
    pub fn reserve(&mut self, graph: &Graph) -> Result<&MemoryPlan, Error> {
        self.reserve_with(graph, &Assignment::default())
    }

    /// Plans a graph and allocates what it needs.
    ///
    /// # Errors
    /// [`Error::BadBufferId`], [`Error::AssignmentLength`], [`Error::Graph`] for an order that is not one of this
    /// graph, [`Error::TooLarge`], [`Error::AllocFailed`]; with
    /// [`Growth::Keep`] the allocator is then as it was, with [`Growth::Replace`] it may have to be reserved anew.
    pub fn reserve_with(&mut self, graph: &Graph, assignment: &Assignment) -> Result<&MemoryPlan, Error> {
        let usage = Arc::new(self.usage(graph, assignment)?);
        Ok(&**self.adopt(&usage, None)?)
    }

    /// What a graph would need, in bytes for each buffer type given; types given before count 0. Nothing is
    /// allocated, and nothing that is reserved changes.
    ///
    /// # Errors
    /// As [`GraphAllocator::reserve_with`], but for allocation.
    pub fn reserve_size(&self, graph: &Graph, assignment: &Assignment) -> Result<Vec<u64>, Error> {
        let plan = plan_memory(&Arc::new(self.usage(graph, assignment)?), &self.options)?;
        let bytes = |index: usize| plan.arenas[self.arena_of[index].index()].peak;
        let first = |index: usize| !self.arena_of[..index].contains(&self.arena_of[index]);
        Ok((0..self.arena_of.len()).map(|index| if first(index) { bytes(index) } else { 0 }).collect())
    }

    /// Binds a graph in the first buffer; plans anew if what is reserved does not fit.
    ///
    /// # Errors
    /// As [`GraphAllocator::alloc_with`].
    pub fn alloc(&mut self, graph: &Graph, externals: &Externals) -> Result<Allocation, Error> {
        self.alloc_with(graph, &Assignment::default(), externals)
    }

    /// Binds a graph; plans anew if what is reserved does not fit.
    ///
    /// # Errors
    /// As [`GraphAllocator::reserve_with`], [`Error::ExternalMismatch`], and what a buffer's init hook refuses:
    /// the plan is in force then, and the graph can be bound again.
    pub fn alloc_with(
        &mut self,
        graph: &Graph,
        assignment: &Assignment,
        externals: &Externals,
    ) -> Result<Allocation, Error> {
        externals.check_given(graph)?;
        let again = |(served, how): &(Graph, Arc<Assignment>)| served.is_same(graph) && **how == *assignment;
        if !self.served.as_ref().is_some_and(again) {
            let usage = self.usage(graph, assignment)?;
            match self.plan.as_ref().map(|plan| plan.fits(&usage)) {
                Some(Ok(())) => {}
                Some(Err(misfit)) => drop(self.adopt(&Arc::new(usage), Some(&misfit))?),
                None => drop(self.adopt(&Arc::new(usage), None)?),
            }
            self.served = Some((graph.clone(), Arc::new(assignment.clone())));
        }
        self.bind(externals)
    }

    /// Bytes allocated for a buffer type given: 0 before the first reserve, and for a type given before, so that
    /// the sum over all is what is allocated.
    ///
    /// # Errors
    /// [`Error::BadBufferId`].
    pub fn buffer_bytes(&self, index: usize) -> Result<u64, Error> {
        let arena = *self.arena_of.get(index).ok_or_else(|| Error::BadBufferId {
            id: index,
            buffers: self.arena_of.len(),
            user: "a size query".to_owned(),
        })?;
        if self.arena_of[..index].contains(&arena) {
            return Ok(0);
        }
        Ok(self.arenas.bytes(arena.index()).unwrap_or(0))
    }

    /// The plan in force.
    pub fn plan(&self) -> Option<&Arc<MemoryPlan>> {
        self.plan.as_ref()
    }

    /// The usage of a graph under an assignment: one step a node, views left out.
    ///
    /// # Errors
    /// [`Error::BadBufferId`], [`Error::AssignmentLength`], [`Error::Graph`].
    pub fn usage(&self, graph: &Graph, assignment: &Assignment) -> Result<Usage, Error> {
        let nodes = self.buffers(assignment.nodes.as_deref(), graph.nodes().len(), "nodes")?;
        let leaves = self.buffers(assignment.leaves.as_deref(), graph.leaves().count(), "leaves")?;
        let own;
        let order = match &assignment.order {
            Some(order) => {
                check_order(graph, order)?;
                order
            }
            None => {
                own = graph.order();
                &own
            }
        };
        let leaves = graph.leaves().map(|(id, _)| id).zip(leaves).collect();
        usage_of(graph, order, &Assigned { types: self.arenas.types(), leaves, nodes })
    }

    fn buffers(
        &self,
        given: Option<&[usize]>,
        expected: usize,
        what: &'static str,
    ) -> Result<Vec<ArenaId>, Error> {
        let Some(given) = given else { return Ok(vec![self.arena_of[0]; expected]) };
        if given.len() != expected {
            return Err(Error::AssignmentLength { what, expected, given: given.len() });
        }
        let arena = |(position, id): (usize, &usize)| {
            self.arena_of.get(*id).copied().ok_or_else(|| Error::BadBufferId {
                id: *id,
                buffers: self.arena_of.len(),
                user: format!("number {position} of the {what}"),
            })
        };
        given.iter().enumerate().map(arena).collect()
    }

    fn adopt(&mut self, usage: &Arc<Usage>, reason: Option<&Misfit>) -> Result<&Arc<MemoryPlan>, Error> {
        let plan = Arc::new(plan_memory(usage, &self.options)?);
        if self.growth == Growth::Replace {
            self.plan = None;
        }
        self.served = None;
        let grown = self.arenas.ensure(&plan, self.growth)?;
        if let Some(observer) = &mut self.observer {
            observer.observe(&AllocEvent::Planned { reason, plan: &plan });
            narrate(&plan, &mut **observer);
            grown.iter().for_each(|grown| observer.observe(&AllocEvent::Grew(grown)));
        }
        Ok(self.plan.insert(plan))
    }

    fn bind(&self, externals: &Externals) -> Result<Allocation, Error> {
        let plan = self.plan.as_ref().ok_or(Error::NotReserved)?;
        let (graph, assignment) = self.served.clone().ok_or(Error::NotReserved)?;
        self.arenas.chunks().for_each(|buffer| buffer.reset());
        let mut tensors = Vec::with_capacity(graph.tensors().len());
        for id in graph.tensor_ids() {
            let tensor = graph.tensor(id);
            let root = tensor.storage.root;
            let slot = match plan.place(ValueId::new(root.index())) {
                Some(place) => self.arenas.slot(place),
                None => externals.get(root).map(|stored| stored.slot().clone()),
            };
            // A view's place is taken from its root's: its offset may be another one than in the plan.
            let slot = slot.map(|slot| Slot { offset: slot.offset + tensor.storage.offset, ..slot });
            // External leaves were bound when they were stored; their views were not.
            let bound_before = root == id && graph.root_leaf(id).is_some_and(|leaf| leaf.is_external());
            if let (Some(slot), false) = (&slot, bound_before) {
                slot.buffer.init_tensor(&tensor.desc, slot.offset)?;
            }
            tensors.push(slot);
        }
        Ok(Allocation { assignment, tensors, plan: Arc::clone(plan), graph })
    }
}

/// Leaves in the arenas they were assigned to; external ones lie elsewhere.
struct Assigned<'a> {
    types: &'a [Arc<dyn BufferType>],
    leaves: HashMap<TensorId, ArenaId>,
    /// By node.
    nodes: Vec<ArenaId>,
}

impl Homes for Assigned<'_> {
    fn arenas(&self) -> Vec<ArenaInfo> {
        self.types.iter().map(|buffer_type| ArenaInfo::of(&**buffer_type)).collect()
    }

    fn bytes(&self, arena: ArenaId, desc: &TensorDesc) -> u64 {
        self.types[arena.index()].alloc_bytes(desc)
    }

    fn leaf(&self, id: TensorId, leaf: Leaf) -> Option<ArenaId> {
        if leaf.is_external() { None } else { self.leaves.get(&id).copied() }
    }

    fn node(&self, node: NodeId) -> ArenaId {
        self.nodes[node.index()]
    }
}

impl fmt::Debug for GraphAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphAllocator").field("arenas", &self.arenas).field("growth", &self.growth).finish()
    }
}
