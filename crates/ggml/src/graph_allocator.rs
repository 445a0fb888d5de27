//! The graph allocator (`ggml_gallocr`).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use orlop_alloc::{ArenaId, ArenaInfo, MemoryPlan, ValueId, plan_like_ggml};
use orlop_plan::{SolveOptions, Strategy};

use crate::cached_plan::{CachedPlan, TensorMemory};
use crate::chunks::Chunks;
use crate::error::Error;
use crate::graph_tensors::GraphTensors;
use crate::host::{Host, text};
use crate::raw::{Buffer, BufferType, GraphRef, STATUS_ALLOC_FAILED, STATUS_SUCCESS, TensorRef};
use crate::report;
use crate::runtime::Interposer;
use crate::usage::{ArenaAssignment, TensorQueries, usage_of};

/// Work per storage: graphs of a thousand nodes are planned in a few milliseconds.
const EFFORT: SolveOptions = SolveOptions { effort: 512, ..SolveOptions::with(Strategy::Best) };

/// The object behind `ggml_gallocr_t`.
#[derive(Debug)]
pub struct GgmlGraphAllocator {
    ours: &'static Interposer,
    /// The arena of each given buffer type; equal types share one.
    arena_of: Vec<usize>,
    arenas: Vec<Arena>,
    bufts: Vec<*mut BufferType>,
    /// The last plan, and the arenas of its tensors.
    record: Option<(CachedPlan, ArenaAssignment)>,
    /// The tensors of the current graph, by number.
    seen: Vec<Option<TensorRef>>,
}

#[derive(Debug)]
struct Arena {
    info: ArenaInfo,
    /// `None` before the first reservation.
    chunks: Option<Chunks>,
}

/// Buffer ids per leaf and per node; default: 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids<'a> {
    pub(crate) leaves: Option<&'a [i32]>,
    pub(crate) nodes: Option<&'a [i32]>,
}

impl Ids<'_> {
    pub(crate) const NONE: Ids<'static> = Ids { leaves: None, nodes: None };
}

impl GgmlGraphAllocator {
    pub(crate) fn new(
        ours: &'static Interposer,
        given: &[*mut BufferType],
    ) -> Result<GgmlGraphAllocator, Error> {
        let mut bufts: Vec<*mut BufferType> = Vec::new();
        let mut arenas = Vec::new();
        let mut arena_of = Vec::with_capacity(given.len());
        for buft in given {
            if buft.is_null() {
                return Err(Error::Null { what: "a buffer type" });
            }
            let known = bufts.iter().position(|known| known == buft);
            arena_of.push(known.unwrap_or(bufts.len()));
            if known.is_none() {
                bufts.push(*buft);
                let info = ArenaInfo {
                    name: text(ours.host.buft_name(*buft)),
                    alignment: ours.host.buft_get_alignment(*buft) as u64,
                    max_chunk: match ours.host.buft_get_max_size(*buft) {
                        usize::MAX => u64::MAX,
                        bytes => bytes as u64,
                    },
                };
                arenas.push(Arena { info, chunks: None });
            }
        }
        Ok(GgmlGraphAllocator { ours, arena_of, arenas, bufts, record: None, seen: Vec::new() })
    }

    /// Number of given buffer types.
    pub(crate) fn len(&self) -> usize {
        self.arena_of.len()
    }

    /// Plans, unless the last plan fits, and allocates the plan's buffers. On failure nothing changes.
    pub(crate) fn reserve(&mut self, graph: GraphRef<'_>, ids: Ids<'_>) -> Result<(), Error> {
        let assigned = self.assigned(graph, ids)?;
        if self.fits_as(graph, &assigned) {
            return Ok(());
        }
        self.replan(graph, assigned)
    }

    fn replan(&mut self, graph: GraphRef<'_>, assigned: ArenaAssignment) -> Result<(), Error> {
        let graph_tensors = GraphTensors::of(graph)?;
        let plan = self.plan(&graph_tensors, &assigned, true)?;
        let sizes = sizes(&plan);
        let mut grown = Vec::new();
        for (index, (arena, sizes)) in self.arenas.iter().zip(&sizes).enumerate() {
            if !arena.chunks.as_ref().is_some_and(|chunks| chunks.hold(sizes)) {
                grown.push((index, Chunks::new(&self.ours.host, self.bufts[index], sizes)?));
            }
        }
        for (index, chunks) in grown {
            self.arenas[index].chunks = Some(chunks);
        }
        self.seen = graph_tensors.tensors.iter().map(|tensor| Some(*tensor)).collect();
        self.record = Some((CachedPlan::new(graph_tensors, &plan), assigned));
        Ok(())
    }

    /// Bytes that [`Self::reserve`] would allocate, for each given buffer type.
    pub(crate) fn measure(&self, graph: GraphRef<'_>, ids: Ids<'_>) -> Result<Vec<usize>, Error> {
        let plan = self.plan(&GraphTensors::of(graph)?, &self.assigned(graph, ids)?, false)?;
        let bytes = |arena: usize| plan.arenas[arena].peak as usize;
        Ok(self.only_first(&bytes))
    }

    /// Assigns memory to every tensor of a graph, and plans again if the last plan does not fit. `false` if that needs
    /// buffer ids from the caller.
    pub(crate) fn allocate(&mut self, graph: GraphRef<'_>) -> Result<bool, Error> {
        if !self.fits(graph) {
            if self.len() != 1 {
                return Ok(false);
            }
            self.reserve(graph, Ids::NONE)?;
        }
        self.bind()?;
        Ok(true)
    }

    /// Assigns memory to every tensor of a graph with these buffer ids, and plans again if the last plan does not fit;
    /// `before_growth` is called before buffers may be replaced.
    pub(crate) fn allocate_as(
        &mut self,
        graph: GraphRef<'_>,
        ids: Ids<'_>,
        before_growth: impl FnOnce(),
    ) -> Result<(), Error> {
        let assigned = self.assigned(graph, ids)?;
        if !self.fits_as(graph, &assigned) {
            before_growth();
            self.replan(graph, assigned)?;
        }
        self.bind()
    }

    fn fits_as(&mut self, graph: GraphRef<'_>, assigned: &ArenaAssignment) -> bool {
        let is_same = self.record.as_ref().is_some_and(|(_, planned)| planned == assigned);
        is_same && self.fits(graph)
    }

    /// Whether the last plan fits a graph, which becomes the current one.
    fn fits(&mut self, graph: GraphRef<'_>) -> bool {
        let (host, bufts) = (&self.ours.host, &self.bufts);
        self.record.as_ref().is_some_and(|(record, _)| record.fits(graph, host, bufts, &mut self.seen))
    }

    /// Bytes of a buffer; 0 before a reservation, and for a type equal to an earlier one.
    pub(crate) fn buffer_bytes(&self, id: usize) -> usize {
        let bytes = |arena: usize| self.arenas[arena].chunks.as_ref().map_or(0, Chunks::bytes);
        self.only_first(&bytes).get(id).copied().unwrap_or(0)
    }

    /// A number for each given buffer type; 0 for a type equal to an earlier one.
    fn only_first(&self, of: &dyn Fn(usize) -> usize) -> Vec<usize> {
        let first = |(index, arena): (usize, &usize)| {
            let known = self.arena_of[..index].contains(arena);
            if known { 0 } else { of(*arena) }
        };
        self.arena_of.iter().enumerate().map(first).collect()
    }

    fn plan(
        &self,
        graph_tensors: &GraphTensors,
        assigned: &ArenaAssignment,
        may_reuse_buffers: bool,
    ) -> Result<MemoryPlan, Error> {
        let host = &self.ours.host;
        let bytes = |arena: usize, tensor: TensorRef| {
            host.buft_get_alloc_size(self.bufts[arena], tensor.as_ptr()) as u64
        };
        let may_overwrite = |op| self.ours.may_overwrite(op);
        let usage_of = |larger: &HashMap<u32, u64>, are_named: bool| {
            let queries = TensorQueries { bytes: &bytes, may_overwrite: &may_overwrite, are_named };
            let infos = self.arenas.iter().map(|arena| arena.info.clone()).collect();
            Arc::new(usage_of(graph_tensors, infos, assigned, &queries, larger))
        };
        let mut larger = HashMap::new();
        loop {
            let usage = usage_of(&larger, self.ours.reports());
            let plan = match self.place(&usage, may_reuse_buffers) {
                // The error names tensors.
                Err(_) => self.place(&usage_of(&larger, true), may_reuse_buffers)?,
                Ok(plan) => plan,
            };
            // A tensor that reuses memory of another arena may need more bytes there.
            let mut is_enough = true;
            let moves = if self.arenas.len() > 1 { &plan.decisions[..] } else { &[] };
            for decision in moves.iter().filter(|decision| decision.verdict.is_taken()) {
                let Some(place) = plan.place(decision.value) else { continue };
                let tensor = graph_tensors.tensors[decision.value.index()];
                let needs = bytes(place.arena.index(), tensor);
                if needs > usage.value(decision.value).bytes {
                    larger.insert(decision.value.index() as u32, needs);
                    is_enough = false;
                }
            }
            if is_enough {
                report::plan(self.ours, graph_tensors, assigned, &plan);
                return Ok(plan);
            }
        }
    }

    /// ggml's own offsets if they are best or the allocated buffers are large enough for them, else the best plan found.
    fn place(&self, usage: &Arc<orlop_alloc::Usage>, may_reuse_buffers: bool) -> Result<MemoryPlan, Error> {
        let is_enough = |arena: ArenaId, sizes: &[u64]| {
            let chunks = self.arenas[arena.index()].chunks.as_ref();
            may_reuse_buffers && chunks.is_some_and(|chunks| chunks.hold(sizes))
        };
        Ok(plan_like_ggml(usage, &EFFORT, &is_enough)?)
    }

    fn assigned(&self, graph: GraphRef<'_>, ids: Ids<'_>) -> Result<ArenaAssignment, Error> {
        let arenas = |what: &'static str, ids: Option<&[i32]>, count: usize| {
            if let (None, Some(first)) = (ids, self.arena_of.first()) {
                return Ok(vec![*first; count]);
            }
            let arena = |position: usize| {
                let id = ids.map_or(0, |ids| ids[position]);
                let found = usize::try_from(id).ok().and_then(|id| self.arena_of.get(id));
                found.copied().ok_or(Error::BadBufferId { what, position, id, buffers: self.len() })
            };
            (0..count).map(arena).collect::<Result<Vec<usize>, Error>>()
        };
        Ok(ArenaAssignment {
            leaves: arenas("leaf", ids.leaves, graph.leaf_count())?,
            nodes: arenas("node", ids.nodes, graph.node_count())?,
        })
    }

    /// Binds the current graph's tensors. On failure nothing is bound.
    fn bind(&mut self) -> Result<(), Error> {
        let Some((record, _)) = &self.record else { return Ok(()) };
        let chunks = |arena: &Arena| arena.chunks.as_ref().map(Chunks::list).unwrap_or_default();
        let lists: Vec<Vec<(*mut Buffer, *mut c_void)>> = self.arenas.iter().map(chunks).collect();
        self.arenas.iter().filter_map(|arena| arena.chunks.as_ref()).for_each(Chunks::reset);
        for number in 0..record.len() {
            let Some(tensor) = self.seen[number] else { continue };
            let status = bind_one(&self.ours.host, tensor, record.memory(number), &lists);
            if status != STATUS_SUCCESS {
                for bound in self.seen[..=number].iter().flatten() {
                    if lists.iter().flatten().any(|(buffer, _)| *buffer == bound.buffer()) {
                        bound.unbind();
                    }
                }
                return Err(Error::NotBound { tensor: tensor.name(), status });
            }
        }
        Ok(())
    }
}

/// Binds one tensor as the host's own functions do, without the checks that the plan already made.
fn bind_one(
    host: &Host,
    tensor: TensorRef,
    memory: TensorMemory,
    lists: &[Vec<(*mut Buffer, *mut c_void)>],
) -> c_int {
    let (buffer, data) = match memory {
        TensorMemory::Own { arena, chunk, offset, .. } if !tensor.is_allocated() => {
            let Some((buffer, base)) = lists[arena as usize].get(chunk as usize) else {
                return STATUS_ALLOC_FAILED;
            };
            (*buffer, base.wrapping_byte_add(offset as usize))
        }
        TensorMemory::View { .. } if tensor.buffer().is_null() => {
            // Roots may have memory without a buffer; their views are left alone.
            let has_memory = |root: &TensorRef| !root.buffer().is_null() && !root.data().is_null();
            let Some(root) = tensor.view_src().filter(has_memory) else { return STATUS_SUCCESS };
            (root.buffer(), root.data().wrapping_byte_add(tensor.view_offs()))
        }
        _ => return STATUS_SUCCESS,
    };
    tensor.bind(buffer, data);
    host.buffer_init_tensor(buffer, tensor.as_ptr())
}

/// Bytes of each arena's chunks. Empty values need a chunk, too.
fn sizes(plan: &MemoryPlan) -> Vec<Vec<u64>> {
    let mut sizes: Vec<Vec<u64>> = plan.arenas.iter().map(|arena| arena.chunks.clone()).collect();
    for number in 0..plan.usage.values().len() {
        if let Some(place) = plan.place(ValueId::new(number)) {
            let chunks = &mut sizes[place.arena.index()];
            if chunks.len() <= place.chunk as usize {
                chunks.resize(place.chunk as usize + 1, 0);
            }
        }
    }
    sizes
}
