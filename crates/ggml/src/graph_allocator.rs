//! The graph allocator.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use orlop_alloc::{ArenaInfo, MemoryPlan, ValueId, plan_as_ggml, plan_like_ggml};
use orlop_plan::{SolveOptions, Strategy};

use crate::census::Census;
use crate::chunks::Chunks;
use crate::error::Error;
use crate::host::{Host, text};
use crate::raw::{Buffer, BufferType, GraphRef, STATUS_ALLOC_FAILED, STATUS_SUCCESS, TensorRef};
use crate::record::{Record, Spot};
use crate::report;
use crate::runtime::Ours;
use crate::usage::{Assigned, Questions, usage_of};

/// Work allowed per storage: graphs of a thousand nodes are planned in a few milliseconds.
const EFFORT: SolveOptions = SolveOptions { strategy: Strategy::Best, effort: 512 };

/// What callers know as `ggml_gallocr_t`.
#[derive(Debug)]
pub struct GgmlGraphAllocator {
    ours: &'static Ours,
    /// The arena of each buffer type that was given: those that are the same share one.
    arena_of: Vec<usize>,
    arenas: Vec<Arena>,
    bufts: Vec<*mut BufferType>,
    /// The last plan, and the arenas that it was made for.
    record: Option<(Record, Assigned)>,
    /// The tensors of the graph at hand, by number.
    seen: Vec<Option<TensorRef>>,
}

#[derive(Debug)]
struct Arena {
    info: ArenaInfo,
    /// `None` until something was reserved.
    chunks: Option<Chunks>,
}

/// Numbers of buffers, one a leaf and one a node; without them all are the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids<'a> {
    pub(crate) leaves: Option<&'a [i32]>,
    pub(crate) nodes: Option<&'a [i32]>,
}

impl Ids<'_> {
    pub(crate) const NONE: Ids<'static> = Ids { leaves: None, nodes: None };
}

impl GgmlGraphAllocator {
    pub(crate) fn new(ours: &'static Ours, given: &[*mut BufferType]) -> Result<GgmlGraphAllocator, Error> {
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

    /// How many buffer types were given.
    pub(crate) fn len(&self) -> usize {
        self.arena_of.len()
    }

    /// Plans, unless the last plan serves, and allocates what the plan needs. Where that fails, everything is as it was.
    pub(crate) fn reserve(&mut self, graph: GraphRef<'_>, ids: Ids<'_>) -> Result<(), Error> {
        let assigned = self.assigned(graph, ids)?;
        let is_same = self.record.as_ref().is_some_and(|(_, planned)| *planned == assigned);
        if is_same && self.fits(graph) {
            return Ok(());
        }
        let census = Census::of(graph)?;
        let plan = self.plan(&census, &assigned, true)?;
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
        self.seen = census.tensors.iter().map(|tensor| Some(*tensor)).collect();
        self.record = Some((Record::new(census, &plan), assigned));
        Ok(())
    }

    /// Bytes that reserving would take, for each buffer type that was given. Changes nothing.
    pub(crate) fn measure(&self, graph: GraphRef<'_>, ids: Ids<'_>) -> Result<Vec<usize>, Error> {
        let plan = self.plan(&Census::of(graph)?, &self.assigned(graph, ids)?, false)?;
        let bytes = |arena: usize| plan.arenas[arena].peak as usize;
        Ok(self.only_first(&bytes))
    }

    /// Gives every tensor of a graph its place, planning anew where the last plan does not serve; false where that is
    /// needed and the caller has to say which buffers are meant.
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

    /// Whether the last plan serves a graph, which is then the one that was seen last.
    fn fits(&mut self, graph: GraphRef<'_>) -> bool {
        let (host, bufts) = (&self.ours.host, &self.bufts);
        self.record.as_ref().is_some_and(|(record, _)| record.fits(graph, host, bufts, &mut self.seen))
    }

    /// Bytes of a buffer; 0 if there is none yet, or an earlier one is the same.
    pub(crate) fn buffer_bytes(&self, id: usize) -> usize {
        let bytes = |arena: usize| self.arenas[arena].chunks.as_ref().map_or(0, Chunks::bytes);
        self.only_first(&bytes).get(id).copied().unwrap_or(0)
    }

    /// A number for each buffer type that was given, 0 where an earlier one shares its arena.
    fn only_first(&self, of: &dyn Fn(usize) -> usize) -> Vec<usize> {
        let first = |(index, arena): (usize, &usize)| {
            let known = self.arena_of[..index].contains(arena);
            if known { 0 } else { of(*arena) }
        };
        self.arena_of.iter().enumerate().map(first).collect()
    }

    fn plan(
        &self,
        census: &Census,
        assigned: &Assigned,
        may_use_what_is_there: bool,
    ) -> Result<MemoryPlan, Error> {
        let host = &self.ours.host;
        let bytes = |arena: usize, tensor: TensorRef| {
            host.buft_get_alloc_size(self.bufts[arena], tensor.as_ptr()) as u64
        };
        let may_overwrite = |op| self.ours.may_overwrite(op);
        let questions = Questions { bytes: &bytes, may_overwrite: &may_overwrite };
        let mut larger = HashMap::new();
        loop {
            let infos = self.arenas.iter().map(|arena| arena.info.clone()).collect();
            let usage = Arc::new(usage_of(census, infos, assigned, &questions, &larger));
            let plan = self.place(&usage, may_use_what_is_there)?;
            // Who took over memory in another arena may need more there than at home.
            let mut is_enough = true;
            for decision in plan.decisions.iter().filter(|decision| decision.verdict.is_taken()) {
                let Some(place) = plan.place(decision.value) else { continue };
                let tensor = census.tensors[decision.value.index()];
                let needs = bytes(place.arena.index(), tensor);
                if needs > usage.value(decision.value).bytes {
                    larger.insert(decision.value.index() as u32, needs);
                    is_enough = false;
                }
            }
            if is_enough {
                report::plan(self.ours, census, assigned, &plan);
                return Ok(plan);
            }
        }
    }

    /// ggml's own places if the buffers are already large enough for them, else the best that can be found.
    fn place(
        &self,
        usage: &Arc<orlop_alloc::Usage>,
        may_use_what_is_there: bool,
    ) -> Result<MemoryPlan, Error> {
        let is_there = |arena: &Arena| arena.chunks.is_some();
        if may_use_what_is_there && !self.arenas.is_empty() && self.arenas.iter().all(is_there) {
            let quick = plan_as_ggml(usage)?;
            let holds = |(arena, sizes): (&Arena, &Vec<u64>)| {
                arena.chunks.as_ref().is_some_and(|chunks| chunks.hold(sizes))
            };
            if self.arenas.iter().zip(&sizes(&quick)).all(holds) {
                return Ok(quick);
            }
        }
        Ok(plan_like_ggml(usage, &EFFORT)?)
    }

    fn assigned(&self, graph: GraphRef<'_>, ids: Ids<'_>) -> Result<Assigned, Error> {
        let arenas = |what: &'static str, ids: Option<&[i32]>, count: usize| {
            let arena = |position: usize| {
                let id = ids.map_or(0, |ids| ids[position]);
                let found = usize::try_from(id).ok().and_then(|id| self.arena_of.get(id));
                found.copied().ok_or(Error::BadBufferId { what, position, id, buffers: self.len() })
            };
            (0..count).map(arena).collect::<Result<Vec<usize>, Error>>()
        };
        Ok(Assigned {
            leaves: arenas("leaf", ids.leaves, graph.leaf_count())?,
            nodes: arenas("node", ids.nodes, graph.node_count())?,
        })
    }

    /// Binds what was last seen. Where that fails, nothing is bound.
    fn bind(&mut self) -> Result<(), Error> {
        let Some((record, _)) = &self.record else { return Ok(()) };
        let chunks = |arena: &Arena| arena.chunks.as_ref().map(Chunks::list).unwrap_or_default();
        let lists: Vec<Vec<(*mut Buffer, *mut c_void)>> = self.arenas.iter().map(chunks).collect();
        self.arenas.iter().filter_map(|arena| arena.chunks.as_ref()).for_each(Chunks::reset);
        for number in 0..record.len() {
            let Some(tensor) = self.seen[number] else { continue };
            let status = bind_one(&self.ours.host, tensor, record.spot(number), &lists);
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

/// What the host's own functions for one tensor do, but for checks that the plan has made already.
fn bind_one(host: &Host, tensor: TensorRef, spot: Spot, lists: &[Vec<(*mut Buffer, *mut c_void)>]) -> c_int {
    let (buffer, data) = match spot {
        Spot::Own { arena, chunk, offset, .. } if !tensor.is_elsewhere() => {
            let Some((buffer, base)) = lists[arena as usize].get(chunk as usize) else {
                return STATUS_ALLOC_FAILED;
            };
            (*buffer, base.wrapping_byte_add(offset as usize))
        }
        Spot::View { .. } if tensor.buffer().is_null() => {
            // Some roots were given memory without buffers: so are their views.
            let has_memory = |root: &TensorRef| !root.buffer().is_null() && !root.data().is_null();
            let Some(root) = tensor.view_src().filter(has_memory) else { return STATUS_SUCCESS };
            (root.buffer(), root.data().wrapping_byte_add(tensor.view_offs()))
        }
        _ => return STATUS_SUCCESS,
    };
    tensor.bind(buffer, data);
    host.buffer_init_tensor(buffer, tensor.as_ptr())
}

/// Bytes of each arena's chunks. Values without bytes need a chunk to lie in, too.
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
