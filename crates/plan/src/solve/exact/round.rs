//! A round of the portfolio: every search takes a turn, on one thread or on several.
//!
//! The result is that of turns one after the other: of the searches that end, the first one counts, and work is charged
//! as if those after it had not run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::SEARCHES;
use super::partition::Partition;
use super::search::{Outcome, Search};
use crate::solve::budget::Budget;

/// Nodes between two checks of the budget.
const NODES_PER_CHECK: u64 = 1 << 10;

/// A turn as it was: its work until each check, and its end.
struct Turn {
    /// Pieces of [`NODES_PER_CHECK`] nodes, or of the rest, that ended without a result.
    open: u64,
    /// Nodes of the last piece.
    last: u64,
    outcome: Outcome,
    /// The turn ended before its nodes were spent, at a request to stop.
    is_cut: bool,
}

/// The first search that ended, and its outcome; `Some(None)` if none did. `None` if the budget is spent.
pub(super) fn run(
    searches: &mut [Search<'_>],
    nodes: u64,
    threads: usize,
    partition: &Partition,
    budget: &mut Budget<'_>,
) -> Option<Option<(usize, Outcome)>> {
    let each = node_work(partition);
    let turn = |search: &mut Search<'_>, times: u64, left: u64, is_over: &(dyn Fn() -> bool + Sync)| {
        take_turn(search, nodes.saturating_mul(times), each, left, is_over)
    };
    if threads <= 1 {
        for (index, (search, (.., times))) in searches.iter_mut().zip(SEARCHES).enumerate() {
            let done = turn(search, times, budget.left(), &|| budget.is_stopped());
            if let Some(outcome) = settle(&done, each, budget)? {
                return Some(Some((index, outcome)));
            }
        }
        return Some(None);
    }
    let left = budget.left();
    // Searches after the first that ended do not matter.
    let ended = AtomicUsize::new(usize::MAX);
    let turns: Vec<Mutex<Option<Turn>>> = searches.iter().map(|_| Mutex::new(None)).collect();
    let queue = Mutex::new(searches.iter_mut().zip(SEARCHES).enumerate());
    let polled: &Budget<'_> = budget;
    std::thread::scope(|scope| {
        for _ in 0..threads.min(turns.len()) {
            scope.spawn(|| {
                while let Some((index, (search, (.., times)))) = queue.lock().ok().and_then(|mut q| q.next())
                {
                    let is_over = || ended.load(Ordering::Relaxed) < index || polled.is_stopped();
                    let done = turn(search, times, left, &is_over);
                    if done.outcome != Outcome::Stopped {
                        ended.fetch_min(index, Ordering::Relaxed);
                    }
                    if let Ok(mut slot) = turns[index].lock() {
                        *slot = Some(done);
                    }
                }
            });
        }
    });
    for (index, turn) in turns.into_iter().enumerate() {
        let done = turn.into_inner().ok().flatten()?;
        if let Some(outcome) = settle(&done, each, budget)? {
            return Some(Some((index, outcome)));
        }
    }
    Some(None)
}

/// Runs a search for `nodes` nodes, or until it alone has done `left` work.
fn take_turn(
    search: &mut Search<'_>,
    nodes: u64,
    each: u64,
    left: u64,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Turn {
    let mut turn = Turn { open: 0, last: 0, outcome: Outcome::Stopped, is_cut: false };
    let (mut rest, mut work) = (nodes, 0u64);
    while rest > 0 && work < left {
        if is_over() {
            turn.is_cut = true;
            break;
        }
        let before = search.nodes;
        turn.outcome = search.run(rest.min(NODES_PER_CHECK));
        turn.last = search.nodes - before;
        work = work.saturating_add((turn.last + 1).saturating_mul(each));
        if turn.outcome != Outcome::Stopped {
            break;
        }
        turn.open += 1;
        rest -= turn.last.min(rest);
    }
    turn
}

/// Charges a turn; `None` if the budget ends within it, else the outcome if the search ended.
fn settle(turn: &Turn, each: u64, budget: &mut Budget<'_>) -> Option<Option<Outcome>> {
    let is_open = turn.outcome == Outcome::Stopped;
    let full = (NODES_PER_CHECK + 1).saturating_mul(each);
    for piece in 1..=turn.open {
        let is_last = is_open && piece == turn.open;
        budget.charge(if is_last { (turn.last + 1).saturating_mul(each) } else { full });
        if budget.is_spent() {
            return None;
        }
    }
    if is_open {
        // A turn that begins with nothing left does nothing, and is charged nothing.
        return if turn.is_cut || budget.is_spent() { stop(budget) } else { Some(None) };
    }
    budget.charge((turn.last + 1).saturating_mul(each));
    Some(Some(turn.outcome))
}

/// Ends the budget of a search that was asked to stop.
fn stop<T>(budget: &mut Budget<'_>) -> Option<T> {
    budget.end();
    None
}

/// Work charged per node.
fn node_work(partition: &Partition) -> u64 {
    64 + partition.sections() as u64 + partition.len() as u64 / 8
}
