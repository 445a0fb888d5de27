//! The check of a [`PlanWithin`]: the given steps and the plan's are executed on symbolic contents, and every step must read
//! the same. Shares no code with the search.

use std::collections::{BTreeMap, HashMap};

use super::{FittedStep, PlanWithin, StepFacts};
use crate::{Unread, Usage, ValueId};

/// A difference between the given steps and those of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayFlaw {
    /// The lists of a plan do not belong together.
    #[error("the plan has {steps} steps and {values} values, and its lists are of other lengths")]
    Lists {
        /// Its steps.
        steps: usize,
        /// Its values.
        values: usize,
    },
    /// A given step does not run exactly once.
    #[error("step {step} runs {times} times")]
    Runs {
        /// The step of the given usage.
        step: usize,
        /// How often it runs.
        times: u32,
    },
    /// A step reads other contents than it does in the given usage.
    #[error("at step {at}, `{value}` holds other contents than the given steps leave there")]
    Contents {
        /// The step of the plan.
        at: usize,
        /// What it reads.
        value: String,
    },
    /// A result that is read from outside is not in memory after the last step.
    #[error("`{value}` is not in memory after the last step")]
    Result {
        /// Its name.
        value: String,
    },
}

/// Contents, interned: equal numbers are equal contents.
#[derive(Default)]
struct Contents {
    known: HashMap<Vec<u32>, u32>,
}

/// Contents that are never set.
const UNSET: u32 = u32::MAX;

impl Contents {
    fn number(&mut self, what: Vec<u32>) -> u32 {
        let fresh = self.known.len() as u32;
        *self.known.entry(what).or_insert(fresh)
    }

    fn initial(&mut self, root: ValueId) -> u32 {
        self.number(vec![0, root.index() as u32])
    }

    /// What a step writes: over `old` contents if it is a view of them.
    fn result(&mut self, step: usize, slot: usize, old: Option<u32>, reads: &[u32]) -> u32 {
        let head = [1, step as u32, slot as u32, old.map_or(0, |_| 1), old.unwrap_or(0)];
        self.number(head.into_iter().chain(reads.iter().copied()).collect())
    }
}

/// What the given steps read and leave behind.
struct Expected {
    /// Per step, the contents of the root of each read.
    reads: Vec<Vec<u32>>,
    /// Per root, its last contents.
    last: Vec<u32>,
    /// Roots that must be in memory after the last step.
    stays: Vec<bool>,
}

impl Expected {
    fn of(usage: &Usage, facts: &StepFacts, contents: &mut Contents) -> Expected {
        let begins = begins(usage);
        let start = |index: usize| match begins[index] {
            true => contents.initial(ValueId::new(index)),
            false => UNSET,
        };
        let mut last: Vec<u32> = (0..usage.values().len()).map(start).collect();
        let mut reads = Vec::with_capacity(usage.step_count());
        let mut is_read = vec![false; usage.values().len()];
        for (index, step) in usage.steps().enumerate() {
            let read: Vec<u32> = step.reads.iter().map(|id| last[usage.value(*id).root.index()]).collect();
            for (slot, id) in changes(usage, index, facts) {
                let root = usage.value(*id).root;
                let old = (root != *id).then(|| last[root.index()]);
                last[root.index()] = contents.result(index, slot, old, &read);
            }
            step.reads.iter().for_each(|id| {
                is_read[id.index()] = true;
                is_read[usage.value(*id).root.index()] = true;
            });
            reads.push(read);
        }
        let mut stays: Vec<bool> = usage.values().iter().map(|value| value.flags.output).collect();
        for id in usage.steps().flat_map(|step| step.writes) {
            let value = usage.value(*id);
            stays[value.root.index()] |=
                usage.unread == Unread::LivesOn && !is_read[id.index()] && !value.flags.marker;
        }
        Expected { reads, last, stays }
    }
}

/// The writes of a step that change contents: those of views and markers do not.
fn changes<'a>(
    usage: &'a Usage,
    index: usize,
    facts: &'a StepFacts,
) -> impl Iterator<Item = (usize, &'a ValueId)> {
    let writes = usage.step(index).writes.iter().enumerate();
    writes.filter(move |(_, id)| !facts.is_only_view(index) && !usage.value(**id).flags.marker)
}

/// Roots with contents before the first step.
fn begins(usage: &Usage) -> Vec<bool> {
    let mut begins: Vec<bool> =
        usage.values().iter().map(|value| value.flags.input || value.flags.external).collect();
    usage.leaves.iter().for_each(|(value, _)| begins[usage.value(*value).root.index()] = true);
    begins
}

/// Memory at the plan's addresses: per chunk, the end and contents at each offset.
struct Memory<'a> {
    plan: &'a PlanWithin,
    chunks: BTreeMap<(usize, u32), BTreeMap<u64, (u64, u32)>>,
    /// Contents of external values.
    outside: Vec<u32>,
}

impl Memory<'_> {
    /// Chunk and bytes of a root; `None` if it is external, has no place, or no bytes.
    fn range(&self, root: ValueId) -> Option<((usize, u32), u64, u64)> {
        let place = self.plan.plan.place(root)?;
        let bytes = self.plan.plan.usage.rounded_bytes(root, place.arena);
        (bytes > 0)
            .then(|| ((place.arena.index(), place.chunk), place.offset, place.offset.saturating_add(bytes)))
    }

    fn is_outside(&self, root: ValueId) -> bool {
        self.plan.plan.usage.value(root).flags.external
    }

    /// The contents of a root; `None` if other bytes were written there since.
    fn read(&self, root: ValueId) -> Option<u32> {
        if self.is_outside(root) {
            return Some(self.outside[root.index()]);
        }
        let (chunk, from, to) = self.range(root)?;
        let (end, contents) = self.chunks.get(&chunk)?.get(&from)?;
        (*end == to).then_some(*contents)
    }

    fn write(&mut self, root: ValueId, contents: u32) {
        if self.is_outside(root) {
            self.outside[root.index()] = contents;
            return;
        }
        let Some((chunk, from, to)) = self.range(root) else { return };
        let ranges = self.chunks.entry(chunk).or_default();
        let gone: Vec<u64> =
            ranges.range(..to).rev().take_while(|(_, (end, _))| *end > from).map(|(at, _)| *at).collect();
        gone.iter().for_each(|at| {
            ranges.remove(at);
        });
        ranges.insert(from, (to, contents));
    }

    fn has_bytes(&self, root: ValueId) -> bool {
        self.plan.plan.usage.value(root).bytes > 0 && (self.is_outside(root) || self.range(root).is_some())
    }
}

/// See [`PlanWithin::check`].
pub(super) fn check(made: &PlanWithin, given: &Usage, facts: &StepFacts) -> Result<(), ReplayFlaw> {
    let usage = &made.plan.usage;
    let (steps, values) = (usage.step_count(), usage.values().len());
    let is_known = |origin: &ValueId| origin.index() < given.values().len();
    if made.steps.len() != steps || made.origins.len() != values || !made.origins.iter().all(is_known) {
        return Err(ReplayFlaw::Lists { steps, values });
    }
    let mut contents = Contents::default();
    let expected = Expected::of(given, facts, &mut contents);
    let mut memory = Memory { plan: made, chunks: BTreeMap::new(), outside: vec![UNSET; values] };
    for (index, begins) in begins(usage).into_iter().enumerate() {
        let id = ValueId::new(index);
        if begins && usage.value(id).root == id {
            memory.write(id, contents.initial(made.origins[index]));
        }
    }
    let mut times = vec![0; given.step_count()];
    for (at, what) in made.steps.iter().enumerate() {
        let step = usage.step(at);
        let wrong = |id: ValueId| ReplayFlaw::Contents { at, value: usage.name(id).to_owned() };
        match *what {
            FittedStep::Run(index) | FittedStep::Again(index) => {
                let Some(reads) = expected.reads.get(index) else {
                    return Err(ReplayFlaw::Lists { steps, values });
                };
                let origins = step.reads.iter().map(|id| made.origins[id.index()]);
                let results = step.writes.iter().map(|id| made.origins[id.index()]);
                if !origins.eq(given.step(index).reads.iter().copied())
                    || !results.eq(given.step(index).writes.iter().copied())
                {
                    return Err(ReplayFlaw::Lists { steps, values });
                }
                times[index] += u32::from(matches!(what, FittedStep::Run(_)));
                for (id, contents) in step.reads.iter().zip(reads) {
                    let root = usage.value(*id).root;
                    if *contents != UNSET && memory.has_bytes(root) && memory.read(root) != Some(*contents) {
                        return Err(wrong(*id));
                    }
                }
                for (slot, _) in changes(given, index, facts) {
                    let id = &step.writes[slot];
                    let root = usage.value(*id).root;
                    let old = (root != *id).then(|| memory.read(root).unwrap_or(UNSET));
                    memory.write(root, contents.result(index, slot, old, reads));
                }
            }
            FittedStep::Spill(_) | FittedStep::Restore(_) => {
                let (Some(from), Some(to)) = (step.reads.first().copied(), step.writes.first().copied())
                else {
                    return Err(ReplayFlaw::Lists { steps, values });
                };
                if made.origins[from.index()] != made.origins[to.index()] {
                    return Err(wrong(to));
                }
                if memory.has_bytes(from) {
                    let moved = memory.read(from).ok_or_else(|| wrong(from))?;
                    memory.write(to, moved);
                }
            }
        }
    }
    if let Some((step, times)) = times.into_iter().enumerate().find(|(_, times)| *times != 1) {
        return Err(ReplayFlaw::Runs { step, times });
    }
    let mut holders: HashMap<ValueId, Vec<ValueId>> = HashMap::new();
    for (index, origin) in made.origins.iter().enumerate() {
        holders.entry(*origin).or_default().push(ValueId::new(index));
    }
    for (index, value) in given.values().iter().enumerate() {
        let id = ValueId::new(index);
        let is_kept = value.root == id && (value.flags.external || expected.stays[index]);
        let last = expected.last[index];
        let holds = |holder: &ValueId| !memory.has_bytes(*holder) || memory.read(*holder) == Some(last);
        // A value of another engine that is written nowhere has no contents.
        let there = |holder: &&ValueId| memory.is_outside(**holder) == value.flags.external;
        if is_kept && last != UNSET && !holders.get(&id).into_iter().flatten().filter(there).any(holds) {
            return Err(ReplayFlaw::Result { value: given.name(id).to_owned() });
        }
    }
    Ok(())
}
