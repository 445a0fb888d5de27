use std::ops::Range;
use std::sync::Arc;

use orlop_plan::{
    BufferSpec, ChunkRule, FreeList, FreeListError, Plan, Problem, SolveOptions, Strategy, bound, solve_until,
};

use crate::trace::{Rules, Trace, TraceEvent, walk};
use crate::{ArenaId, Decision, Error, Sharing, Usage, ValueId};

/// Where every value of a usage lies, and how good that is. A plain value: it prints, compares, and can be
/// kept.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryPlan {
    /// What was planned for.
    pub usage: Arc<Usage>,
    /// The plan of each arena of the usage.
    pub arenas: Vec<ArenaPlan>,
    /// Memory of one piece each: values that take it over from each other share one.
    pub storages: Vec<PlannedStorage>,
    /// Which results took the place of operands, and which did not, with the reason.
    pub decisions: Vec<Decision>,
    places: Vec<Option<ArenaOffset>>,
}

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaOffset {
    /// The arena.
    pub arena: ArenaId,
    /// Which of the arena's chunks.
    pub chunk: u32,
    /// Bytes from the chunk's beginning.
    pub offset: u64,
}

/// How an arena was planned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaPlan {
    /// Bytes of each chunk.
    pub chunks: Vec<u64>,
    /// Chunks that exceed the largest size, for one value that does.
    pub oversize: Vec<u32>,
    /// The sum of the chunks.
    pub peak: u64,
    /// Most bytes in use at one step; no plan for these storages is smaller.
    pub bound: u64,
    /// No smaller plan exists for these storages.
    pub optimal: bool,
    /// What found the plan.
    pub strategy: Strategy,
    /// How results shared memory with operands.
    pub sharing: Sharing,
    /// Counted work.
    pub work: u64,
}

/// A piece of memory and its users.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PlannedStorage {
    /// Where it lies.
    pub place: ArenaOffset,
    /// Its size, rounded up.
    pub bytes: u64,
    /// Steps at which it is in use.
    pub live: Range<usize>,
    /// Its values, one after the other.
    pub values: Vec<ValueId>,
}

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Strategy and effort. Default: the best of all, at default effort.
    pub search: SolveOptions,
    /// Default [`Sharing::Full`]: the planner also tries what is below it, and keeps the smallest.
    pub sharing: Sharing,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions { search: SolveOptions::default(), sharing: Sharing::Full }
    }
}

impl PlanOptions {
    /// Planning as ggml does it: best fit in the order of execution, first operand in place.
    pub const GGML: PlanOptions = PlanOptions {
        search: SolveOptions { strategy: Strategy::Ggml, effort: 0 },
        sharing: Sharing::Direct,
    };
}

/// One arena's part of a candidate plan.
struct Candidate {
    trace: usize,
    arena: ArenaPlan,
    /// Chunk and offset of each of the trace's pieces that lie in this arena.
    places: Vec<(usize, orlop_plan::ChunkOffset)>,
}

/// Plans a usage: chooses what is done in place, and a place for everything, in each arena by itself.
///
/// # Errors
/// What [`Usage::validate`] refuses, and [`Error::Plan`] if sizes do not fit 64 bits or a capacity is not met.
pub fn plan_memory(usage: &Arc<Usage>, options: &PlanOptions) -> Result<MemoryPlan, Error> {
    plan_memory_until(usage, options, &|| false)
}

/// [`plan_memory`], but `stop` is asked every now and then, and the best plan so far comes back soon after it says yes.
///
/// # Errors
/// As [`plan_memory`].
pub fn plan_memory_until(
    usage: &Arc<Usage>,
    options: &PlanOptions,
    stop: &dyn Fn() -> bool,
) -> Result<MemoryPlan, Error> {
    usage.validate()?;
    let online = options.search.strategy == Strategy::Ggml;
    let sharings: &[Sharing] = match options.sharing {
        Sharing::Full if !online => &[Sharing::Full, Sharing::Tight, Sharing::Direct],
        Sharing::Tight if !online => &[Sharing::Tight, Sharing::Direct],
        Sharing::None => &[Sharing::None],
        _ => &[Sharing::Direct],
    };
    let mut traces: Vec<(Sharing, Trace)> = Vec::new();
    for sharing in sharings {
        traces.push((*sharing, walk(usage, Rules { sharing: *sharing, across_arenas: false })));
    }
    let mut best: Vec<Candidate> = Vec::with_capacity(usage.arenas.len());
    for index in 0..usage.arenas.len() {
        best.push(best_for_arena(usage, ArenaId::new(index), &traces, options, stop)?);
    }
    Ok(assemble(usage, &traces, best))
}

/// Plans a usage exactly as ggml's graph allocator does, in-place moves into another buffer included.
///
/// # Errors
/// As [`plan_memory`].
pub fn plan_as_ggml(usage: &Arc<Usage>) -> Result<MemoryPlan, Error> {
    usage.validate()?;
    let rules = Rules { sharing: Sharing::Direct, across_arenas: true };
    let traces = vec![(Sharing::Direct, walk(usage, rules))];
    let mut online = Vec::with_capacity(usage.arenas.len());
    for index in 0..usage.arenas.len() {
        online.push(replay(usage, ArenaId::new(index), 0, &traces[0].1, ChunkRule::Ggml)?);
    }
    Ok(assemble(usage, &traces, online))
}

/// Plans a usage with ggml's choice of what is done in place, moves into another buffer included, and with places
/// that are at least as good as ggml's own, unless those break the limit of a chunk.
///
/// # Errors
/// As [`plan_memory`].
pub fn plan_like_ggml(usage: &Arc<Usage>, search: &SolveOptions) -> Result<MemoryPlan, Error> {
    usage.validate()?;
    let rules = Rules { sharing: Sharing::Direct, across_arenas: true };
    let traces = vec![(Sharing::Direct, walk(usage, rules))];
    let options = PlanOptions { search: *search, sharing: Sharing::Direct };
    let arenas = (0..usage.arenas.len()).map(ArenaId::new);
    let best = arenas.map(|arena| best_for_arena(usage, arena, &traces, &options, &|| false));
    Ok(assemble(usage, &traces, best.collect::<Result<_, Error>>()?))
}

fn best_for_arena(
    usage: &Usage,
    arena: ArenaId,
    traces: &[(Sharing, Trace)],
    options: &PlanOptions,
    stop: &dyn Fn() -> bool,
) -> Result<Candidate, Error> {
    let mut best: Option<Candidate> = None;
    let mut keep = |candidate: Candidate| {
        if best.as_ref().is_none_or(|best| candidate.arena.peak < best.arena.peak) {
            best = Some(candidate);
        }
    };
    for (index, (sharing, trace)) in traces.iter().enumerate() {
        let known = traces[..index].iter().any(|(_, known)| known.pieces == trace.pieces);
        if options.search.strategy != Strategy::Ggml && !known {
            let problem = problem_of(usage, arena, trace);
            let plan = solve_until(&problem, &options.search, stop);
            keep(searched(
                trace,
                arena,
                index,
                *sharing,
                plan.map_err(|source| plan_error(usage, arena, source))?,
            ));
        }
        let online = matches!(options.search.strategy, Strategy::Ggml | Strategy::Best);
        if online && matches!(sharing, Sharing::Direct | Sharing::None) {
            let mut candidate = replay(usage, arena, index, trace, ChunkRule::Ggml)?;
            if has_too_large_chunk(usage, trace, arena, &candidate) {
                candidate = replay(usage, arena, index, trace, ChunkRule::Tightest)?;
            }
            keep(Candidate { arena: ArenaPlan { sharing: *sharing, ..candidate.arena }, ..candidate });
        }
    }
    best.ok_or(Error::NoBuffers)
}

/// Whether a chunk exceeds the limit without holding one piece that does: ggml's sixteenth has no end.
fn has_too_large_chunk(usage: &Usage, trace: &Trace, arena: ArenaId, candidate: &Candidate) -> bool {
    let max = usage.arenas[arena.index()].max_chunk;
    candidate.arena.oversize.iter().any(|chunk| {
        let inside = candidate.places.iter().filter(|(_, place)| place.chunk == *chunk);
        let largest = inside.map(|(piece, _)| trace.pieces[*piece].bytes).max().unwrap_or(0);
        candidate.arena.chunks[*chunk as usize] > max.max(largest)
    })
}

fn pieces_of(trace: &Trace, arena: ArenaId) -> impl Iterator<Item = (usize, &crate::trace::Piece)> {
    trace.pieces.iter().enumerate().filter(move |(_, piece)| piece.arena == arena)
}

fn problem_of(usage: &Usage, arena: ArenaId, trace: &Trace) -> Problem {
    let info = &usage.arenas[arena.index()];
    let buffer = |piece: &crate::trace::Piece| {
        BufferSpec::new(piece.bytes, info.alignment, piece.live.start as u64..piece.live.end as u64)
    };
    Problem {
        buffers: pieces_of(trace, arena).map(|(_, piece)| buffer(piece)).collect(),
        capacity: None,
        max_chunk: (info.max_chunk != u64::MAX).then_some(info.max_chunk),
    }
}

/// The pieces of one arena as they were planned offline.
fn searched(trace: &Trace, arena: ArenaId, index: usize, sharing: Sharing, plan: Plan) -> Candidate {
    let places = pieces_of(trace, arena).map(|(piece, _)| piece).zip(plan.places).collect();
    let Plan { chunks, oversize, peak, bound, optimal, strategy, work, .. } = plan;
    let arena = ArenaPlan { chunks, oversize, peak, bound, optimal, strategy, sharing, work };
    Candidate { trace: index, arena, places }
}

/// Plans the pieces of one arena by best fit, in the order in which the trace needs them.
fn replay(
    usage: &Usage,
    arena: ArenaId,
    index: usize,
    trace: &Trace,
    rule: ChunkRule,
) -> Result<Candidate, Error> {
    let info = &usage.arenas[arena.index()];
    let mine = |piece: usize| trace.pieces[piece].arena == arena;
    let mut places: Vec<Option<orlop_plan::ChunkOffset>> = vec![None; trace.pieces.len()];
    let mut sizes: Vec<u64> = trace.pieces.iter().map(|piece| piece.bytes).collect();
    let refused = |value: ValueId| {
        move |error: FreeListError| match error {
            FreeListError::OutOfSpace { needed, largest } => {
                Error::OutOfSpace { tensor: usage.name(value).to_owned(), needed, largest }
            }
            _ => Error::NotAllocated { tensor: usage.name(value).to_owned() },
        }
    };
    let mut list = FreeList::chunked(info.alignment, info.max_chunk, rule)
        .map_err(|_| Error::BadAlignment { arena: info.name.clone(), alignment: info.alignment })?;
    for event in &trace.events {
        match *event {
            TraceEvent::Allocate { piece, value, .. } if mine(piece) => {
                places[piece] = Some(list.allocate(sizes[piece]).map_err(refused(value))?);
            }
            TraceEvent::Shrink { piece, from, to } if mine(piece) => {
                let Some(place) = places[piece] else { continue };
                list.shrink(place, from, to).map_err(refused(trace.pieces[piece].values[0]))?;
                sizes[piece] = to;
            }
            TraceEvent::Release { piece, .. } if mine(piece) => {
                let Some(place) = places[piece] else { continue };
                list.release(place, sizes[piece]).map_err(refused(trace.pieces[piece].values[0]))?;
            }
            _ => {}
        }
    }
    let chunks: Vec<u64> = list.high_waters().collect();
    let oversize =
        (0..chunks.len() as u32).filter(|chunk| chunks[*chunk as usize] > info.max_chunk).collect();
    let problem = problem_of(usage, arena, trace);
    // The list's own sum would stop at 2^64.
    problem.validate().map_err(|source| plan_error(usage, arena, source))?;
    let (peak, bound) = (list.high_water(), bound(&problem));
    let work = trace.events.len() as u64;
    let shrinks =
        trace.events.iter().any(|event| matches!(event, TraceEvent::Shrink { piece, .. } if mine(*piece)));
    Ok(Candidate {
        trace: index,
        arena: ArenaPlan {
            chunks,
            oversize,
            peak,
            bound,
            // What was handed on and cut would have to count less in the bound.
            optimal: peak <= bound && !shrinks,
            strategy: if rule == ChunkRule::Ggml { Strategy::Ggml } else { Strategy::Online },
            sharing: Sharing::Direct,
            work,
        },
        places: places.into_iter().enumerate().filter_map(|(piece, place)| Some((piece, place?))).collect(),
    })
}

fn plan_error(usage: &Usage, arena: ArenaId, source: orlop_plan::PlanError) -> Error {
    Error::Plan { arena: usage.arenas[arena.index()].name.clone(), source: Box::new(source) }
}

fn assemble(usage: &Arc<Usage>, traces: &[(Sharing, Trace)], chosen: Vec<Candidate>) -> MemoryPlan {
    let mut storages = Vec::new();
    let mut decisions: Vec<Decision> = Vec::new();
    let mut places: Vec<Option<ArenaOffset>> = vec![None; usage.values().len()];
    for (index, candidate) in chosen.iter().enumerate() {
        let arena = ArenaId::new(index);
        let trace = &traces[candidate.trace].1;
        for (piece, place) in &candidate.places {
            let place = ArenaOffset { arena, chunk: place.chunk, offset: place.offset };
            let piece_info = &trace.pieces[*piece];
            for value in &piece_info.values {
                if trace.homes[value.index()] == Some(*piece) {
                    places[value.index()] = Some(place);
                }
            }
            storages.push(PlannedStorage {
                place,
                bytes: piece_info.bytes,
                live: piece_info.live.clone(),
                values: piece_info.values.clone(),
            });
        }
        let here = |decision: &&Decision| usage.step(decision.step).arena == arena;
        decisions.extend(trace.decisions.iter().filter(here).copied());
    }
    decisions.sort_by_key(|decision| decision.step);
    for (index, value) in usage.values().iter().enumerate() {
        if value.root.index() != index
            && let Some(root) = places[value.root.index()]
        {
            places[index] = Some(ArenaOffset { offset: root.offset + value.offset, ..root });
        }
    }
    let arenas = chosen.into_iter().map(|candidate| candidate.arena).collect();
    MemoryPlan { usage: Arc::clone(usage), arenas, storages, decisions, places }
}

/// A storage in use at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakStorage {
    /// The name of the value that holds it.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Where it lies.
    pub place: ArenaOffset,
    /// Steps at which it is in use.
    pub live: Range<usize>,
}

impl MemoryPlan {
    /// Where a value lies; `None` if it lies in memory of somebody else's or in none.
    pub fn place(&self, id: ValueId) -> Option<ArenaOffset> {
        self.places.get(id.index()).copied().flatten()
    }

    pub(crate) fn from_parts(
        usage: &Arc<Usage>,
        arenas: Vec<ArenaPlan>,
        storages: Vec<PlannedStorage>,
        decisions: Vec<Decision>,
        places: Vec<Option<ArenaOffset>>,
    ) -> MemoryPlan {
        MemoryPlan { usage: Arc::clone(usage), arenas, storages, decisions, places }
    }

    pub(crate) fn places(&self) -> &[Option<ArenaOffset>] {
        &self.places
    }

    /// Bytes of all arenas; `u64::MAX` if that is more than 64 bits hold.
    pub fn total(&self) -> u64 {
        self.arenas.iter().fold(0, |sum, arena| sum.saturating_add(arena.peak))
    }

    /// The step at which most of an arena is in use, and what is in use there, largest first.
    pub fn peak(&self, arena: ArenaId) -> (usize, Vec<PeakStorage>) {
        let mut change = vec![0i128; self.usage.step_count().max(1) + 1];
        let mine = |storage: &&PlannedStorage| storage.place.arena == arena;
        for storage in self.storages.iter().filter(mine) {
            change[storage.live.start] += i128::from(storage.bytes);
            change[storage.live.end] -= i128::from(storage.bytes);
        }
        let (mut now, mut most, mut step) = (0, 0, 0);
        for (index, change) in change.iter().enumerate() {
            now += change;
            if now > most {
                (most, step) = (now, index);
            }
        }
        let mut peak: Vec<PeakStorage> = self
            .storages
            .iter()
            .filter(mine)
            .filter(|storage| storage.live.contains(&step) && storage.bytes > 0)
            .map(|storage| PeakStorage {
                name: self.holder(storage, step),
                bytes: storage.bytes,
                place: storage.place,
                live: storage.live.clone(),
            })
            .collect();
        peak.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.place.cmp(&b.place)));
        (step, peak)
    }

    /// The value that holds a storage at a step: the last that took it over by then.
    fn holder(&self, storage: &PlannedStorage, step: usize) -> String {
        let taken = |value: &&ValueId| {
            self.decisions.iter().any(|d| d.value == **value && d.verdict.is_taken() && d.step <= step)
        };
        let value = storage.values.iter().skip(1).rev().find(taken).unwrap_or(&storage.values[0]);
        self.usage.name(*value).to_owned()
    }

    /// Whether this plan serves another usage: edges, roots, flags and arenas agree by position, nothing has
    /// grown, and every result that takes an operand's place still may.
    ///
    /// # Errors
    /// The first difference.
    pub fn fits(&self, usage: &Usage) -> Result<(), Misfit> {
        let planned = &*self.usage;
        if std::ptr::eq(planned, usage) {
            return Ok(());
        }
        if planned.arenas != usage.arenas {
            return Err(Misfit::Arenas);
        }
        if planned.values().len() != usage.values().len() {
            return Err(Misfit::Values { planned: planned.values().len(), given: usage.values().len() });
        }
        if planned.step_count() != usage.step_count() {
            return Err(Misfit::Steps { planned: planned.step_count(), given: usage.step_count() });
        }
        if planned.leaves != usage.leaves || planned.unread != usage.unread {
            return Err(Misfit::Leafs);
        }
        for index in 0..usage.step_count() {
            let (old, new) = (planned.step(index), usage.step(index));
            if old.arena != new.arena
                || old.group != new.group
                || old.reads != new.reads
                || old.writes != new.writes
            {
                return Err(Misfit::Step { step: index });
            }
        }
        for (index, (old, new)) in planned.values().iter().zip(usage.values()).enumerate() {
            let id = ValueId::new(index);
            let name = || usage.name(id).to_owned();
            if old.root != new.root || old.flags != new.flags {
                return Err(Misfit::Value { value: name() });
            }
            if new.root != id || new.flags.external {
                continue;
            }
            let grown = match self.place(id) {
                Some(place) => usage.rounded_bytes(id, place.arena) > planned.rounded_bytes(id, place.arena),
                None => new.bytes > old.bytes,
            };
            if grown {
                return Err(Misfit::Grown { value: name(), planned: old.bytes, given: new.bytes });
            }
        }
        for decision in self.decisions.iter().filter(|decision| decision.verdict.is_taken()) {
            let (new, operand) = (usage.value(decision.value), usage.value(decision.operand));
            let step = usage.step(decision.step);
            // Whatever else the step reads of that memory must lie exactly under the result, too.
            let legal = |(slot, read): (usize, &ValueId)| {
                let read = usage.value(*read);
                let offered = step.overwrites.iter().any(|pair| {
                    step.writes[pair.write as usize] == decision.value && pair.read as usize == slot
                });
                read.root != operand.root || (offered && read.layout == new.layout && read.offset == 0)
            };
            if !step.reads.iter().enumerate().all(legal) {
                return Err(Misfit::InPlace { value: usage.name(decision.value).to_owned() });
            }
        }
        Ok(())
    }

    /// Checks the plan against its usage, by other means than it was made: lifetimes are recomputed from the
    /// steps alone, and no two values whose lifetimes meet may touch the same bytes unless one took the other's
    /// place.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), crate::Flaw> {
        crate::check::check(self)
    }
}

/// Why a recorded plan does not serve a usage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// Number, alignment or limits of arenas.
    #[error("the arenas differ")]
    Arenas,
    /// Number of values.
    #[error("planned for {planned} values, there are {given}")]
    Values {
        /// In the plan.
        planned: usize,
        /// Now.
        given: usize,
    },
    /// Number of steps.
    #[error("planned for {planned} steps, there are {given}")]
    Steps {
        /// In the plan.
        planned: usize,
        /// Now.
        given: usize,
    },
    /// Which leaves there are, and where.
    #[error("the leaves differ")]
    Leafs,
    /// What a step reads or writes, or where.
    #[error("step {step} reads or writes something else, or elsewhere")]
    Step {
        /// The step.
        step: usize,
    },
    /// A value's root or flags.
    #[error("`{value}` has another root or other flags")]
    Value {
        /// Its name.
        value: String,
    },
    /// A value's size.
    #[error("`{value}` has grown from {planned} to {given} bytes")]
    Grown {
        /// Its name.
        value: String,
        /// In the plan.
        planned: u64,
        /// Now.
        given: u64,
    },
    /// A result may no longer take its operand's place.
    #[error("`{value}` can no longer take its operand's place")]
    InPlace {
        /// Its name.
        value: String,
    },
}
