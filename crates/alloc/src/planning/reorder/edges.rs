//! Which steps must come before which, which may move, and where a usage falls apart into blocks.

use std::ops::Range;

use crate::{Unread, Usage, ValueId};

/// For each step the steps that must come before it, sorted.
///
/// Beside the bytes that steps touch, who made a value comes before who names it or a view of it, also where that has no
/// bytes.
/// Foreign graphs do not say which of their steps write and which only look: of theirs, all steps that touch memory
/// that has views keep their order.
pub(super) fn predecessors(usage: &Usage) -> Vec<Vec<u32>> {
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); usage.step_count()];
    for edge in usage.dependencies() {
        before[edge.after as usize].push(edge.before);
    }
    let foreign = usage.unread == Unread::LivesOn;
    let mut viewed = vec![false; usage.values().len()];
    for (index, value) in usage.values().iter().enumerate() {
        viewed[value.root.index()] |= foreign && value.root.index() != index;
    }
    let mut maker: Vec<Option<u32>> = vec![None; usage.values().len()];
    let mut last: Vec<Option<u32>> = vec![None; usage.values().len()];
    for (index, step) in usage.steps().enumerate() {
        let index = index as u32;
        let mut after = |earlier: Option<u32>| {
            before[index as usize].extend(earlier.filter(|earlier| *earlier != index));
        };
        for id in step.reads.iter().chain(step.writes) {
            let root = usage.value(*id).root.index();
            after(maker[id.index()]);
            after(maker[root]);
            if viewed[root] {
                after(last[root].replace(index));
            }
        }
        step.writes.iter().for_each(|id: &ValueId| maker[id.index()] = Some(index));
    }
    for list in &mut before {
        list.sort_unstable();
        list.dedup();
    }
    before
}

/// Runs of steps that may change places with each other: of one arena, each a group of its own, and where there are
/// several arenas no markers and no copies, whose sources no step names.
pub(super) fn movable(usage: &Usage) -> Vec<Range<usize>> {
    let several = usage.arenas.len() > 1;
    let fixed = |index: usize| {
        let step = usage.step(index);
        several && (step.reads.is_empty() || step.writes.iter().any(|id| usage.value(*id).flags.marker))
    };
    let mut runs: Vec<Range<usize>> = Vec::new();
    for group in usage.groups() {
        let start = group.start;
        if group.len() > 1 || fixed(start) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == start && usage.step(run.start).arena == usage.step(start).arena => {
                run.end += 1
            }
            _ => runs.push(group),
        }
    }
    runs
}

/// Cuts a run after every step that all earlier ones lead to and all later ones follow from: every order passes
/// through these points.
pub(super) fn pieces(before: &[Vec<u32>], run: Range<usize>) -> Vec<Range<usize>> {
    let length = run.len();
    // For each step its last predecessor and its first successor within the run, counted from 1; 0 and `length + 1`
    // for none.
    let mut latest = vec![0; length];
    let mut first = vec![length + 1; length];
    for step in run.clone() {
        let here = step - run.start;
        for earlier in
            before[step].iter().map(|earlier| *earlier as usize).filter(|earlier| *earlier >= run.start)
        {
            let earlier = earlier - run.start;
            latest[here] = latest[here].max(earlier + 1);
            first[earlier] = first[earlier].min(here + 1);
        }
    }
    // The smallest of `latest` over later steps, and the largest of `first` over earlier ones.
    let mut follows = vec![usize::MAX; length + 1];
    for here in (0..length).rev() {
        follows[here] = follows[here + 1].min(latest[here]);
    }
    let mut leads = 0;
    let mut pieces = Vec::new();
    let mut start = 0;
    for here in 0..length {
        if leads <= here + 1 && follows[here + 1] > here {
            pieces.push(run.start + start..run.start + here + 1);
            start = here + 1;
        }
        leads = leads.max(first[here]);
    }
    if start < length {
        pieces.push(run.start + start..run.end);
    }
    pieces
}
