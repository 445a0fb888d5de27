//! The check of a memory plan, by other means than it was made.

use std::collections::BTreeMap;

use crate::{MemoryPlan, StepView, Unread, Usage, ValueId};

/// What is wrong with a memory plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// The parts of a plan that was read from somewhere do not belong together.
    #[error("this is no plan: {what}")]
    Malformed {
        /// What is wrong.
        what: String,
    },
    /// A value that a step touches has no place.
    #[error("`{value}` has no place")]
    Unplaced {
        /// Its name.
        value: String,
    },
    /// A value has a place that is not its own: it is external, or its root or its storage lie elsewhere.
    #[error("`{value}` has a place that cannot be")]
    Misplaced {
        /// Its name.
        value: String,
    },
    /// A value ends outside its chunk.
    #[error("`{value}` ends at {end} of a chunk of {chunk} bytes")]
    Outside {
        /// Its name.
        value: String,
        /// First byte after it.
        end: u64,
        /// Bytes of the chunk.
        chunk: u64,
    },
    /// A value begins off its arena's alignment.
    #[error("`{value}` begins at {offset}")]
    Misaligned {
        /// Its name.
        value: String,
        /// Where.
        offset: u64,
    },
    /// A chunk exceeds the arena's limit and holds more than one oversize value.
    #[error("chunk {chunk} of {arena} has {bytes} bytes, at most {max} are allowed")]
    ChunkTooLarge {
        /// The arena.
        arena: String,
        /// The chunk.
        chunk: u32,
        /// Its bytes.
        bytes: u64,
        /// Most bytes.
        max: u64,
    },
    /// A result takes the place of an operand that it may not take.
    #[error("`{value}` may not take the place of `{operand}`")]
    BadShare {
        /// The result.
        value: String,
        /// The operand.
        operand: String,
    },
    /// Two values are in memory together and overlap.
    #[error("`{first}` and `{second}` overlap at step {step}")]
    Overlap {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// A step at which both are alive.
        step: usize,
    },
}

/// A root's lifetime, closed on the left and open on the right.
#[derive(Clone, Copy)]
struct Life {
    start: usize,
    end: usize,
}

/// See [`MemoryPlan::check`]. Shares nothing with the walk that planning is based on.
pub(crate) fn check(plan: &MemoryPlan) -> Result<(), Flaw> {
    check_shape(plan)?;
    let usage = &*plan.usage;
    let name = |index: usize| usage.name(ValueId::new(index)).to_owned();
    let mut lives = lifetimes(plan);
    check_storages(plan, &lives)?;
    cut_short_what_was_taken(plan, &mut lives)?;

    for (index, value) in usage.values().iter().enumerate() {
        let place = plan.place(ValueId::new(index));
        let root = plan.place(value.root);
        if value.root.index() != index {
            let same = match (place, root) {
                (None, None) => true,
                (Some(place), Some(root)) => {
                    (place.arena, place.chunk, Some(place.offset))
                        == (root.arena, root.chunk, root.offset.checked_add(value.offset))
                }
                _ => false,
            };
            if !same {
                return Err(Flaw::Misplaced { value: name(index) });
            }
            continue;
        }
        let Some(place) = place else {
            match lives[index] {
                Some(_) if !value.flags.external => return Err(Flaw::Unplaced { value: name(index) }),
                _ => continue,
            }
        };
        if value.flags.external {
            return Err(Flaw::Misplaced { value: name(index) });
        }
        let arena = &usage.arenas[place.arena.index()];
        if !place.offset.is_multiple_of(arena.alignment) {
            return Err(Flaw::Misaligned { value: name(index), offset: place.offset });
        }
        let chunk = plan.arenas[place.arena.index()].chunks.get(place.chunk as usize).copied().unwrap_or(0);
        let end = place.offset.saturating_add(value.bytes);
        if end > chunk && value.bytes > 0 {
            return Err(Flaw::Outside { value: name(index), end, chunk });
        }
    }
    check_chunks(plan)?;
    check_overlaps(plan, &lives)
}

/// A plan that was read from somewhere may name what is not there.
fn check_shape(plan: &MemoryPlan) -> Result<(), Flaw> {
    let malformed = |what: String| Err(Flaw::Malformed { what });
    let usage = &*plan.usage;
    if let Err(error) = usage.validate() {
        return malformed(error.to_string());
    }
    let values = usage.values().len();
    if plan.places().len() != values || plan.arenas.len() != usage.arenas.len() {
        return malformed("it has other values or arenas than its usage".to_owned());
    }
    for (arena, info) in plan.arenas.iter().zip(&usage.arenas) {
        let sum = arena.chunks.iter().try_fold(0u64, |sum, bytes| sum.checked_add(*bytes));
        if sum != Some(arena.peak) {
            return malformed(format!("the chunks of {} are not its peak", info.name));
        }
    }
    let arena_exists = |place: &crate::ArenaOffset| place.arena.index() < plan.arenas.len();
    if !plan.places().iter().flatten().all(arena_exists) {
        return malformed("a place is in an arena that is not there".to_owned());
    }
    let known = |id: &ValueId| id.index() < values;
    let decided = |d: &crate::Decision| d.step < usage.step_count() && known(&d.value) && known(&d.operand);
    if !plan.decisions.iter().all(decided) {
        return malformed("a decision is about something that is not there".to_owned());
    }
    // That a storage's arena is there follows: its values have the same place.
    if !plan.storages.iter().all(|storage| !storage.values.is_empty() && storage.values.iter().all(known)) {
        return malformed("a storage holds nothing, or something that is not there".to_owned());
    }
    let steps = usage.step_count().max(1);
    if let Some(crate::PlannedStorage { live, .. }) =
        plan.storages.iter().find(|storage| storage.live.is_empty() || storage.live.end > steps)
    {
        return malformed(format!("a storage lives from step {} to {} of {steps}", live.start, live.end));
    }
    Ok(())
}

/// Storages are what the plan says of itself: each value lies in one, for all of its life.
fn check_storages(plan: &MemoryPlan, lives: &[Option<Life>]) -> Result<(), Flaw> {
    let usage = &*plan.usage;
    let mut stored = vec![false; usage.values().len()];
    for storage in &plan.storages {
        for id in &storage.values {
            let alive = match lives[id.index()] {
                Some(life) => storage.live.start <= life.start && life.end <= storage.live.end,
                None => true,
            };
            let twice = std::mem::replace(&mut stored[id.index()], true);
            if twice || !alive || plan.place(*id) != Some(storage.place) {
                return Err(Flaw::Misplaced { value: usage.name(*id).to_owned() });
            }
        }
    }
    let root = |index: &usize| usage.values()[*index].root.index() == *index;
    let placed = |index: &usize| plan.place(ValueId::new(*index)).is_some();
    match (0..stored.len()).filter(root).filter(placed).find(|index| !stored[*index]) {
        Some(index) => Err(Flaw::Misplaced { value: usage.name(ValueId::new(index)).to_owned() }),
        None => Ok(()),
    }
}

/// What a step writes; a marker has no contents.
fn contents<'a>(usage: &'a Usage, step: &StepView<'a>) -> impl Iterator<Item = &'a ValueId> + use<'a> {
    step.writes.iter().filter(|id| usage.value(**id).root == **id || !usage.value(**id).flags.marker)
}

/// When each root is in memory, from the steps alone.
fn lifetimes(plan: &MemoryPlan) -> Vec<Option<Life>> {
    let usage = &*plan.usage;
    let end = usage.step_count().max(1);
    let mut lives: Vec<Option<Life>> = vec![None; usage.values().len()];
    let mut touch = |root: ValueId, start: usize, last: usize| {
        let life = lives[root.index()].get_or_insert(Life { start, end: 0 });
        life.start = life.start.min(start);
        life.end = life.end.max(last + 1);
    };
    let first_group_end = usage.groups().next().map_or(0, |group| group.end - 1);
    // A leaf that is a view of a result has nothing of its own.
    let leaves = || usage.leaves.iter().map(|(id, _)| *id).filter(|id| usage.value(*id).root == *id);
    for id in leaves() {
        touch(id, 0, first_group_end);
    }
    let mut read = vec![false; usage.values().len()];
    for id in usage.steps().flat_map(|step| step.reads) {
        read[id.index()] = true;
        read[usage.value(*id).root.index()] = true;
    }
    for group in usage.groups() {
        let last = group.end - 1;
        for index in group {
            let step = usage.step(index);
            for id in step.reads.iter().chain(contents(usage, &step)) {
                let value = usage.value(*id);
                let start = if usage.value(value.root).flags.input { 0 } else { index };
                let unread_root = value.root == *id && !read[id.index()];
                let unread_view = value.root != *id && !read[id.index()];
                let lives_on = usage.unread == Unread::LivesOn && (unread_root || unread_view);
                touch(value.root, start, if lives_on { end - 1 } else { last });
            }
        }
    }
    if usage.unread == Unread::LivesOn {
        for id in leaves().filter(|id| !read[id.index()]) {
            touch(id, 0, end - 1);
        }
    }
    for (index, value) in usage.values().iter().enumerate() {
        if let (true, Some(life)) = (value.flags.output, &mut lives[index]) {
            life.end = end;
        }
    }
    lives
}

/// Where a result took an operand's place, the operand must have ended there; its lifetime is cut to just before.
fn cut_short_what_was_taken(plan: &MemoryPlan, lives: &mut [Option<Life>]) -> Result<(), Flaw> {
    let usage = &*plan.usage;
    let mut group_end = vec![0; usage.step_count()];
    for group in usage.groups() {
        let end = group.end;
        group.for_each(|index| group_end[index] = end);
    }
    for decision in plan.decisions.iter().filter(|decision| decision.verdict.is_taken()) {
        let step = usage.step(decision.step);
        let operand = usage.value(decision.operand);
        let root = usage.value(operand.root);
        let bad = || Flaw::BadShare {
            value: usage.name(decision.value).to_owned(),
            operand: usage.name(decision.operand).to_owned(),
        };
        let offered = |slot: usize| {
            let pair = |pair: &crate::OverwritePair| {
                step.writes[pair.write as usize] == decision.value && pair.read as usize == slot
            };
            step.overwrites.iter().any(pair)
        };
        let reads = || {
            let of_root = |(_, read): &(usize, &ValueId)| usage.value(**read).root == operand.root;
            step.reads.iter().enumerate().filter(of_root)
        };
        let asked_for = reads().any(|(slot, read)| *read == decision.operand && offered(slot));
        // Whatever the step reads of that memory lies exactly under the result.
        let under_result = reads().all(|(slot, read)| {
            let read = usage.value(*read);
            offered(slot) && read.offset == 0 && read.layout == usage.value(decision.value).layout
        });
        let last_here = match lives[operand.root.index()] {
            Some(life) => life.end == group_end[decision.step],
            None => false,
        };
        // Later steps of the same group may not touch it either.
        let read_later_in_group = (decision.step + 1..group_end[decision.step]).any(|later| {
            let later = usage.step(later);
            later.reads.iter().chain(contents(usage, &later)).any(|id| usage.value(*id).root == operand.root)
        });
        let written = |value: &ValueId| usage.value(*value).root == operand.root;
        if !asked_for
            || !under_result
            || !last_here
            || read_later_in_group
            || contents(usage, &step).any(written)
            || root.flags.output
            || root.flags.external
            || plan.place(operand.root) != plan.place(decision.value)
        {
            return Err(bad());
        }
        if let Some(life) = &mut lives[operand.root.index()] {
            life.end = decision.step;
        }
    }
    Ok(())
}

fn check_chunks(plan: &MemoryPlan) -> Result<(), Flaw> {
    for (info, arena) in plan.usage.arenas.iter().zip(&plan.arenas) {
        for (chunk, bytes) in arena.chunks.iter().enumerate() {
            let chunk = chunk as u32;
            if *bytes > info.max_chunk && !arena.oversize.contains(&chunk) {
                let (arena, max) = (info.name.clone(), info.max_chunk);
                return Err(Flaw::ChunkTooLarge { arena, chunk, bytes: *bytes, max });
            }
        }
    }
    Ok(())
}

/// Sweeps over time with the ranges in use, by address; a new range may touch neither neighbour.
fn check_overlaps(plan: &MemoryPlan, lives: &[Option<Life>]) -> Result<(), Flaw> {
    let usage = &*plan.usage;
    let mut events: Vec<(usize, bool, usize)> = Vec::new();
    for (index, life) in lives.iter().enumerate() {
        if let Some(life) = life
            && life.start < life.end
            && usage.value(ValueId::new(index)).bytes > 0
            && plan.place(ValueId::new(index)).is_some()
        {
            events.push((life.start, true, index));
            events.push((life.end, false, index));
        }
    }
    // Ends come before beginnings of the same step.
    events.sort_unstable();
    let mut in_use: BTreeMap<crate::ArenaOffset, (u64, usize)> = BTreeMap::new();
    for (step, begins, index) in events {
        let Some(place) = plan.place(ValueId::new(index)) else { continue };
        if !begins {
            if in_use.get(&place).is_some_and(|(_, holder)| *holder == index) {
                in_use.remove(&place);
            }
            continue;
        }
        let end = place.offset.saturating_add(usage.value(ValueId::new(index)).bytes);
        let same_chunk =
            |other: &crate::ArenaOffset| (other.arena, other.chunk) == (place.arena, place.chunk);
        let below = in_use.range(..=place).next_back().filter(|(at, _)| same_chunk(at));
        let above = in_use.range(place..).next().filter(|(at, _)| same_chunk(at));
        let clash = match (below, above) {
            (Some((_, (below_end, other))), _) if *below_end > place.offset => Some(*other),
            (_, Some((at, (_, other)))) if at.offset < end => Some(*other),
            _ => None,
        };
        if let Some(other) = clash {
            let (first, second) = (ValueId::new(other), ValueId::new(index));
            return Err(Flaw::Overlap {
                first: usage.name(first).to_owned(),
                second: usage.name(second).to_owned(),
                step,
            });
        }
        in_use.insert(place, (end, index));
    }
    Ok(())
}
