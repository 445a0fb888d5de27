//! The search for the order of one block that needs the least memory.

use std::collections::HashSet;

use super::block::Block;
use super::bound::lower_bound;
use super::effort::Effort;
use super::state::State;

/// How many of the steps that could be next are tried out before one is chosen.
const LOOKS: usize = 12;

/// Heights between the bound and the best order so far that are tried.
const ROUNDS: usize = 8;

/// An order of a block, and what it needs.
pub(super) struct Found {
    pub(super) order: Vec<usize>,
    pub(super) peak: u64,
}

/// What came of looking for an order below a height.
enum Outcome {
    Order(Vec<u32>),
    /// There is none, and none below this height either.
    NoneBelow(u64),
    /// The effort was spent.
    Spent,
}

/// The lowest order of a block that could be found, or one as low as `enough`. The given order is kept if there is
/// no lower one.
pub(super) fn best_order(block: &Block, enough: u64, effort: &mut Effort<'_>) -> Found {
    let mirrored = block.mirrored();
    let mut best = Found { order: (0..block.len()).collect(), peak: block.peak };
    let mut low = lower_bound(block).max(enough);
    let mut height = low;
    for round in 0..ROUNDS {
        if low >= best.peak || effort.is_stopped() {
            break;
        }
        let share = effort.left() / (2 * (ROUNDS - round) as u64);
        match at_most(block, &mirrored, height, share, effort) {
            Outcome::Order(order) => {
                best.peak = State::new(block).peak_of(order.iter().copied());
                best.order = order.into_iter().map(|step| step as usize).collect();
            }
            Outcome::NoneBelow(height) => low = height,
            Outcome::Spent => low = height.saturating_add(1),
        }
        height = low + (best.peak.max(low) - low) / 2;
    }
    best
}

/// An order that never needs more than `height`, sought from the end and, in vain, from the beginning.
fn at_most(block: &Block, mirrored: &Block, height: u64, share: u64, effort: &mut Effort<'_>) -> Outcome {
    let mut outcome = Outcome::Spent;
    for block in [mirrored, block] {
        let mut part = effort.share(share);
        outcome = descend(block, height, &mut part);
        effort.settle(share, part);
        match &mut outcome {
            Outcome::Order(order) if block.backwards => {
                let last = order.len().saturating_sub(1) as u32;
                order.reverse();
                order.iter_mut().for_each(|step| *step = last - *step);
            }
            Outcome::Spent => continue,
            _ => {}
        }
        break;
    }
    outcome
}

/// A choice on the way down: how many steps were done before it, and what else could be next.
struct Choice {
    done: usize,
    mark: u64,
    next: Vec<u32>,
}

/// Goes forward within a height, and back where that ends nowhere. A step that leaves no more behind than it found
/// is always right, so only steps that leave more are choices; sets of steps that led nowhere are not tried again.
fn descend(block: &Block, height: u64, effort: &mut Effort<'_>) -> Outcome {
    let mut state = State::new(block);
    if state.live > height {
        return Outcome::NoneBelow(state.live);
    }
    // The least that any step needed which did not fit.
    let mut beyond = u64::MAX;
    let mut hopeless: HashSet<u64> = HashSet::new();
    let mut choices: Vec<Choice> = Vec::new();
    loop {
        settle(&mut state, height, effort);
        if state.done.len() == block.len() {
            return Outcome::Order(state.done);
        }
        if effort.is_spent() {
            return Outcome::Spent;
        }
        if !hopeless.contains(&state.mark) {
            let next = candidates(&mut state, height, &mut beyond, effort);
            choices.push(Choice { done: state.done.len(), mark: state.mark, next });
        }
        loop {
            let Some(choice) = choices.last_mut() else { return Outcome::NoneBelow(beyond) };
            state.retreat(choice.done);
            if let Some(step) = choice.next.pop() {
                state.advance(step);
                break;
            }
            hopeless.insert(choice.mark);
            choices.pop();
        }
    }
}

/// Does all steps that fit and leave no more behind than they find.
fn settle(state: &mut State<'_>, height: u64, effort: &mut Effort<'_>) {
    while !effort.is_spent() {
        effort.spend(state.ready.len() as u64);
        let free = |step: &u32| {
            let cost = state.cost(*step);
            cost.during <= height && cost.after <= state.live
        };
        let Some(step) = state.ready.iter().copied().find(free) else { return };
        state.advance(step);
    }
}

/// The steps that fit, the most promising last: what leaves least behind once all that follows by itself is done.
fn candidates(state: &mut State<'_>, height: u64, beyond: &mut u64, effort: &mut Effort<'_>) -> Vec<u32> {
    effort.spend(state.ready.len() as u64);
    let mut fitting: Vec<(u64, u32)> = Vec::new();
    for step in &state.ready {
        let cost = state.cost(*step);
        if cost.during <= height {
            fitting.push((cost.after, *step));
        } else {
            *beyond = (*beyond).min(cost.during);
        }
    }
    fitting.sort_unstable();
    if fitting.len() > 1 {
        let done = state.done.len();
        for (after, step) in fitting.iter_mut().take(LOOKS) {
            state.advance(*step);
            settle(state, height, effort);
            *after = state.live;
            state.retreat(done);
        }
        let looked = fitting.len().min(LOOKS);
        fitting[..looked].sort_unstable();
    }
    fitting.into_iter().rev().map(|(_, step)| step).collect()
}
