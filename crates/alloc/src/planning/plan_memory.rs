//! From a usage to a memory plan.
//!
//! A usage is walked once for each way of sharing memory ([`super::trace`]). Each arena is planned by itself: the
//! solver of `orlop-plan` takes the lifetimes, and best fit in the order of execution replays the sequence of requests.
//! The smallest plan of each arena stays.

use std::sync::Arc;

use orlop_plan::{
    BufferSpec, ChunkRule, FreeList, FreeListError, Plan, Problem, SolveOptions, Strategy, solve_until,
};

use super::trace::{Piece, Rules, Trace, TraceEvent, walk};
use crate::{
    ArenaId, ArenaOffset, ArenaPlan, Decision, Error, MemoryPlan, PlanOptions, PlannedStorage, Sharing,
    Usage, ValueId,
};

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
    stop: &(dyn Fn() -> bool + Sync),
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
    Ok(assemble(usage, traces, best))
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
    Ok(assemble(usage, traces, online))
}

/// Plans a usage with ggml's choice of what is done in place, moves into another buffer included. Each arena gets ggml's own
/// places if they reach the bound, or if `is_enough` says so of their chunks; else the best places found, which are at least
/// as good unless ggml's break the limit of a chunk.
///
/// # Errors
/// As [`plan_memory`].
pub fn plan_like_ggml(
    usage: &Arc<Usage>,
    search: &orlop_plan::SolveOptions,
    is_enough: &dyn Fn(ArenaId, &[u64]) -> bool,
) -> Result<MemoryPlan, Error> {
    usage.validate()?;
    let rules = Rules { sharing: Sharing::Direct, across_arenas: true };
    let traces = vec![(Sharing::Direct, walk(usage, rules))];
    let options = PlanOptions { search: *search, sharing: Sharing::Direct };
    let plan = |arena: ArenaId| {
        let trace = &traces[0].1;
        let online = replay(usage, arena, 0, trace, ChunkRule::Ggml)?;
        let is_least = online.arena.optimal && !has_too_large_chunk(usage, trace, arena, &online);
        if is_least || is_enough(arena, &online.arena.chunks) {
            return Ok(online);
        }
        best_for_arena(usage, arena, &traces, &options, &|| false)
    };
    let chosen = (0..usage.arenas.len()).map(|arena| plan(ArenaId::new(arena)));
    let chosen = chosen.collect::<Result<_, Error>>()?;
    Ok(assemble(usage, traces, chosen))
}

fn best_for_arena(
    usage: &Usage,
    arena: ArenaId,
    traces: &[(Sharing, Trace)],
    options: &PlanOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Candidate, Error> {
    let mut best: Option<Candidate> = None;
    let mut keep = |candidate: Candidate| {
        if best.as_ref().is_none_or(|best| candidate.arena.peak < best.arena.peak) {
            best = Some(candidate);
        }
    };
    for (index, (sharing, trace)) in traces.iter().enumerate() {
        let known = traces[..index].iter().any(|(_, known)| known.pieces == trace.pieces);
        let mut is_least = false;
        if options.search.strategy != Strategy::Ggml && !known {
            let problem = problem_of(usage, arena, trace);
            let plan =
                first_plan(&problem, options, stop).map_err(|source| plan_error(usage, arena, source))?;
            is_least = plan.gap() == 0 && !shrinks(trace, arena);
            keep(searched(trace, arena, index, *sharing, plan));
        }
        let online = matches!(options.search.strategy, Strategy::Ggml | Strategy::Best);
        // Only what is handed on and cut makes less than the bound possible.
        if online && !is_least && matches!(sharing, Sharing::Direct | Sharing::None) {
            let mut candidate = replay(usage, arena, index, trace, ChunkRule::Ggml)?;
            if has_too_large_chunk(usage, trace, arena, &candidate) {
                candidate = replay(usage, arena, index, trace, ChunkRule::Tightest)?;
            }
            keep(Candidate { arena: ArenaPlan { sharing: *sharing, ..candidate.arena }, ..candidate });
        }
    }
    best.ok_or(Error::NoBuffers)
}

/// Work per buffer of the first attempt of [`Strategy::Best`]: one packing, which reaches the bound of most graphs.
const FIRST_EFFORT: u64 = 192;

/// The plan of a quick strategy if it reaches the bound, else that of all strategies.
fn first_plan(
    problem: &Problem,
    options: &PlanOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Plan, orlop_plan::PlanError> {
    if options.search.strategy == Strategy::Best && options.search.effort >= FIRST_EFFORT {
        let quick = SolveOptions { effort: FIRST_EFFORT, ..SolveOptions::with(Strategy::Valley) };
        let plan = solve_until(problem, &quick, stop)?;
        if plan.gap() == 0 {
            return Ok(plan);
        }
    }
    solve_until(problem, &options.search, stop)
}

/// Whether memory of an arena is handed on and cut.
fn shrinks(trace: &Trace, arena: ArenaId) -> bool {
    let mine = |piece: usize| trace.pieces[piece].arena == arena;
    trace.events.iter().any(|event| matches!(event, TraceEvent::Shrink { piece, .. } if mine(*piece)))
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

fn pieces_of(trace: &Trace, arena: ArenaId) -> impl Iterator<Item = (usize, &Piece)> {
    trace.pieces.iter().enumerate().filter(move |(_, piece)| piece.arena == arena)
}

fn problem_of(usage: &Usage, arena: ArenaId, trace: &Trace) -> Problem {
    let info = &usage.arenas[arena.index()];
    let buffer = |piece: &Piece| {
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
    // Events follow the steps, and what a step releases comes after what it allocates, so most alive at an event is the bound.
    let (mut all, mut alive, mut bound) = (0u128, 0u128, 0u128);
    for event in &trace.events {
        match *event {
            TraceEvent::Allocate { piece, value, .. } if mine(piece) => {
                places[piece] = Some(list.allocate(sizes[piece]).map_err(refused(value))?);
                let bytes = u128::from(trace.pieces[piece].bytes);
                (all, alive) = (all + bytes, alive + bytes);
                bound = bound.max(alive);
            }
            TraceEvent::Shrink { piece, from, to } if mine(piece) => {
                let Some(place) = places[piece] else { continue };
                list.shrink(place, from, to).map_err(refused(trace.pieces[piece].values[0]))?;
                sizes[piece] = to;
            }
            TraceEvent::Release { piece, .. } if mine(piece) => {
                let Some(place) = places[piece] else { continue };
                list.release(place, sizes[piece]).map_err(refused(trace.pieces[piece].values[0]))?;
                alive -= u128::from(trace.pieces[piece].bytes);
            }
            _ => {}
        }
    }
    if all >= u128::from(u64::MAX) {
        // The list's own sum would stop at 2^64.
        let valid = problem_of(usage, arena, trace).validate();
        valid.map_err(|source| plan_error(usage, arena, source))?;
    }
    let chunks: Vec<u64> = list.high_waters().collect();
    let oversize =
        (0..chunks.len() as u32).filter(|chunk| chunks[*chunk as usize] > info.max_chunk).collect();
    let (peak, bound) = (list.high_water(), bound as u64);
    let work = trace.events.len() as u64;
    Ok(Candidate {
        trace: index,
        arena: ArenaPlan {
            chunks,
            oversize,
            peak,
            bound,
            // What was handed on and cut would have to count less in the bound.
            optimal: peak <= bound && !shrinks(trace, arena),
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

fn assemble(usage: &Arc<Usage>, mut traces: Vec<(Sharing, Trace)>, chosen: Vec<Candidate>) -> MemoryPlan {
    let mut storages = Vec::with_capacity(chosen.iter().map(|candidate| candidate.places.len()).sum());
    let mut decisions: Vec<Decision> = Vec::new();
    let mut places: Vec<Option<ArenaOffset>> = vec![None; usage.values().len()];
    for (index, candidate) in chosen.iter().enumerate() {
        let arena = ArenaId::new(index);
        let trace = &mut traces[candidate.trace].1;
        for (piece, place) in &candidate.places {
            let place = ArenaOffset { arena, chunk: place.chunk, offset: place.offset };
            let Piece { bytes, live, values, .. } = &mut trace.pieces[*piece];
            // A piece lies in one arena, so its values are taken once.
            let (bytes, live, values) = (*bytes, live.clone(), std::mem::take(values));
            for value in &values {
                if trace.homes[value.index()] == Some(*piece) {
                    places[value.index()] = Some(place);
                }
            }
            storages.push(PlannedStorage { place, bytes, live, values });
        }
        let here = |decision: &&Decision| usage.arena_of_step(decision.step) == arena;
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
    MemoryPlan::from_parts(usage, arenas, storages, decisions, places)
}
