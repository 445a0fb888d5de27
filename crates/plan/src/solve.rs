//! The solver: runs a strategy, or all of them, and keeps the smallest plan.

mod balance;
mod budget;
mod exact;
mod greedy;
mod improve;
mod instance;
mod online;
mod order;
mod refine;
mod repair;
mod sections;
mod skyline;
mod valley;

use crate::bound::max_load;
use crate::{
    BufferId, BufferSpec, ChunkOffset, ChunkRule, Plan, PlanError, Problem, SolveOptions, Strategy, bound,
};
use budget::Budget;
use greedy::{Aim, Layout, greedy};
use instance::Instance;
use refine::Seeds;

/// Work charged for a replay through the free list, per buffer.
const REPLAY_WORK: u64 = 64;

/// Assigns an offset to every buffer.
///
/// Fixed buffers keep their offset, buffers that are live at the same step share no bytes, offsets are
/// multiples of the buffer's alignment, and each buffer lies within one chunk. With a capacity, the search
/// ends at the first plan that fits; without one, when a plan is proven optimal or the effort is spent. A
/// strategy that runs out of effort falls back to [`Strategy::Online`], and the plan says so.
///
/// ```
/// use orlop_plan::{BufferSpec, Problem, SolveOptions, solve, verify};
/// let mut problem = Problem::default();
/// let a = problem.push(BufferSpec::new(256, 64, 0..2))?;
/// let b = problem.push(BufferSpec::new(128, 64, 2..4))?;
/// let plan = solve(&problem, &SolveOptions::default())?;
/// verify(&problem, &plan).expect("a valid plan");
/// assert_eq!(plan.place(a), plan.place(b)); // never live together, so they share
/// assert_eq!((plan.peak, plan.gap(), plan.optimal), (256, 0, true));
/// # Ok::<(), orlop_plan::PlanError>(())
/// ```
///
/// # Errors
/// Those of [`Problem::validate`]; [`PlanError::Impossible`] when the capacity is below the bound;
/// [`PlanError::NoPlan`] when a search proved that no plan fits it; [`PlanError::OverCapacity`] when no plan
/// within it was found; [`PlanError::AddressesOverflow`] when offsets exceed 64 bits;
/// [`PlanError::ChunkLimit`] under [`Strategy::Ggml`].
pub fn solve(problem: &Problem, options: &SolveOptions) -> Result<Plan, PlanError> {
    solve_until(problem, options, &|| false)
}

/// [`solve`] that polls `stop` and returns the best plan so far soon after `stop` returns `true`.
///
/// Use it for a time limit: the planner itself has no clock. The result then depends on timing.
///
/// ```
/// use orlop_plan::{BufferSpec, Problem, SolveOptions, Strategy, solve_until};
/// let mut problem = Problem::default();
/// problem.push(BufferSpec::new(256, 64, 0..2))?;
/// let began = std::time::Instant::now();
/// let options = SolveOptions::with(Strategy::Exact);
/// let plan = solve_until(&problem, &options, &|| began.elapsed().as_secs() >= 10)?;
/// assert!(plan.optimal);
/// # Ok::<(), orlop_plan::PlanError>(())
/// ```
///
/// # Errors
/// As [`solve`].
pub fn solve_until(
    problem: &Problem,
    options: &SolveOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Plan, PlanError> {
    problem.validate()?;
    let bound = bound(problem);
    if let Some(capacity) = problem.capacity
        && capacity < bound
    {
        return Err(PlanError::Impossible {
            capacity,
            bound,
            together: impossible_together(problem, capacity),
        });
    }
    let mut search = Search::new(problem, bound, options, stop);
    search.run(options.strategy)?;
    if let (Some(capacity), Some(together)) = (problem.capacity, search.conflict) {
        return Err(PlanError::NoPlan { capacity, together });
    }
    let Some((layout, strategy)) = search.best else {
        return Err(PlanError::AddressesOverflow { strategy: options.strategy });
    };
    let plan = finish(problem, layout, bound, strategy, search.budget.spent)?;
    let plan = Plan { optimal: plan.peak <= search.lower, ..plan };
    match problem.capacity {
        Some(capacity) if plan.peak > capacity => {
            Err(PlanError::OverCapacity { capacity, best: Box::new(plan) })
        }
        _ => Ok(plan),
    }
}

/// A few buffers, live at one step or fixed, that exceed a capacity below the bound.
fn impossible_together(problem: &Problem, capacity: u64) -> Vec<BufferId> {
    let load = max_load(problem);
    let bytes = |buffer: &BufferSpec| buffer.footprint().unwrap_or(u64::MAX);
    let few = if load.bytes > capacity {
        let alive = (0u32..).zip(&problem.buffers).filter(|(_, b)| b.size > 0 && b.live.contains(&load.step));
        exact::core::exceeding(alive.map(|(index, b)| (bytes(b), index)).collect(), capacity)
    } else {
        // Per chunk, the fixed buffer that reaches highest.
        let mut tops: Vec<(u32, u64, u32)> = (0u32..)
            .zip(&problem.buffers)
            .filter(|(_, b)| b.size > 0)
            .filter_map(|(index, b)| Some((b.fixed?.chunk, b.fixed?.offset.saturating_add(bytes(b)), index)))
            .collect();
        tops.sort_unstable();
        tops.reverse();
        tops.dedup_by_key(|(chunk, ..)| *chunk);
        exact::core::exceeding(tops.into_iter().map(|(_, top, index)| (top, index)).collect(), capacity)
    };
    few.into_iter().filter_map(|index| problem.id(index as usize)).collect()
}

/// The best layout so far, and the budget left to improve it.
struct Search<'a> {
    problem: &'a Problem,
    bound: u64,
    /// The best proven lower bound on every plan: `bound`, or more.
    lower: u64,
    /// The search ends at this peak.
    goal: u64,
    budget: Budget<'a>,
    /// Threads of the exact search.
    threads: usize,
    best: Option<(Layout, Strategy)>,
    /// Buffers that are proven to have no plan within the capacity.
    conflict: Option<Vec<BufferId>>,
}

impl<'a> Search<'a> {
    fn new(
        problem: &'a Problem,
        bound: u64,
        options: &SolveOptions,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let goal = problem.capacity.unwrap_or(0).max(bound);
        let budget = Budget::per_buffer(options.effort, problem.buffers.len()).until(stop);
        let threads = options.threads.max(1);
        Self { problem, bound, lower: bound, goal, budget, threads, best: None, conflict: None }
    }

    fn run(&mut self, strategy: Strategy) -> Result<(), PlanError> {
        match strategy {
            Strategy::Ggml => return self.ggml(),
            Strategy::Online => self.online(),
            Strategy::Best => {
                self.online();
                if self.problem.max_chunk.is_some() && !self.is_done() {
                    // A ggml plan that breaks the chunk limit is skipped.
                    let _ = self.ggml();
                }
                if !self.is_done() {
                    self.improve();
                }
            }
            Strategy::Refine => self.offline(&PORTFOLIO, true),
            Strategy::Valley => self.valley(),
            Strategy::Repair => self.repair_only(),
            Strategy::Exact => self.exact_only(),
            one => self.offline(&[one], false),
        }
        if self.best.is_none() {
            self.online();
        }
        Ok(())
    }

    fn online(&mut self) {
        self.budget.charge(REPLAY_WORK.saturating_mul(self.problem.buffers.len() as u64));
        if let Some(layout) = online::replay(self.problem, ChunkRule::Tightest) {
            self.offer(layout, Strategy::Online);
        }
    }

    fn ggml(&mut self) -> Result<(), PlanError> {
        self.budget.charge(REPLAY_WORK.saturating_mul(self.problem.buffers.len() as u64));
        let Some(layout) = online::replay(self.problem, ChunkRule::Ggml) else { return Ok(()) };
        finish(self.problem, layout.clone(), self.bound, Strategy::Ggml, 0)?;
        self.offer(layout, Strategy::Ggml);
        Ok(())
    }

    /// Runs greedy strategies in turn, then refines their orders.
    fn offline(&mut self, strategies: &[Strategy], refine: bool) {
        let Some(items) = Instance::new(self.problem, self.budget.left()) else { return };
        self.budget.charge(items.conflicts());
        let step = max_load(self.problem).step;
        let mut seeds = Seeds::default();
        for &strategy in strategies {
            for &key in order::keys(strategy) {
                if self.is_done() {
                    return;
                }
                let order = order::order(&items, key, step, &mut self.budget);
                for &fit in order::fits(key) {
                    if self.is_done() {
                        return;
                    }
                    let aim = Aim { cutoff: self.best_peak(), target: self.bound };
                    let run = greedy(&items, &order, fit, aim, &mut self.budget);
                    let seed = (order.clone(), fit);
                    match run.layout {
                        Some(layout) => {
                            self.offer_items(&items.buffer, layout, strategy);
                            seeds.push_best(seed);
                        }
                        None => seeds.push(seed),
                    }
                }
            }
        }
        if refine {
            self.refine(&items, seeds);
        }
    }

    fn best_peak(&self) -> u64 {
        self.best.as_ref().map_or(u64::MAX, |(layout, _)| layout.peak)
    }

    fn is_done(&self) -> bool {
        self.budget.is_spent() || self.is_reached()
    }

    /// Whether the best plan is optimal or fits the capacity, or a conflict is proven.
    fn is_reached(&self) -> bool {
        self.conflict.is_some() || self.best_peak() <= self.goal.max(self.lower)
    }

    /// Keeps a layout if it is smaller than the best one.
    fn offer(&mut self, layout: Layout, strategy: Strategy) {
        if self.best.as_ref().is_none_or(|(best, _)| layout.peak < best.peak) {
            self.best = Some((layout, strategy));
        }
    }

    /// [`Self::offer`] for a layout of items, where item `i` is buffer `buffers[i]`.
    fn offer_items(&mut self, buffers: &[u32], layout: Layout, strategy: Strategy) {
        let mut places: Vec<ChunkOffset> =
            self.problem.buffers.iter().map(|buffer| buffer.fixed.unwrap_or_default()).collect();
        for (buffer, place) in buffers.iter().zip(layout.places) {
            places[*buffer as usize] = place;
        }
        self.offer(Layout { places, peak: layout.peak }, strategy);
    }
}

/// Greedy strategies in the order they are tried.
const PORTFOLIO: [Strategy; 7] = [
    Strategy::Size,
    Strategy::Dense,
    Strategy::Skyline,
    Strategy::Area,
    Strategy::Lifetime,
    Strategy::Conflict,
    Strategy::Order,
];

/// Builds a plan from a layout: heights, peak, and oversize chunks.
fn finish(
    problem: &Problem,
    layout: Layout,
    bound: u64,
    strategy: Strategy,
    work: u64,
) -> Result<Plan, PlanError> {
    let overflow = PlanError::AddressesOverflow { strategy };
    let count = layout.places.iter().map(|place| place.chunk as usize + 1).max().unwrap_or(0);
    let mut chunks = vec![0u64; count];
    let mut largest = vec![0u64; count];
    for (buffer, place) in problem.buffers.iter().zip(&layout.places).filter(|(b, _)| b.size > 0) {
        let footprint = buffer.footprint();
        let end = footprint.and_then(|bytes| place.offset.checked_add(bytes)).ok_or(overflow.clone())?;
        let chunk = place.chunk as usize;
        chunks[chunk] = chunks[chunk].max(end);
        largest[chunk] = largest[chunk].max(footprint.unwrap_or(0));
    }
    let max_chunk = problem.max_chunk.unwrap_or(u64::MAX);
    let over = || (0u32..).zip(chunks.iter().zip(&largest)).filter(|(_, (height, _))| **height > max_chunk);
    if let Some((chunk, (&height, _))) = over().find(|(_, (height, largest))| height > largest) {
        return Err(PlanError::ChunkLimit { chunk, height, max_chunk });
    }
    let oversize = over().map(|(chunk, _)| chunk).collect();
    let peak = chunks.iter().try_fold(0u64, |sum, height| sum.checked_add(*height)).ok_or(overflow)?;
    Ok(Plan { places: layout.places, chunks, oversize, peak, bound, optimal: peak == bound, strategy, work })
}

#[cfg(test)]
mod tests;
