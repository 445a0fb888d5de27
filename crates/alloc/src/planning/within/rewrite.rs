//! The usage with added steps.

use std::collections::{BTreeMap, HashMap};

use super::choose::{Chosen, Use};
use super::profile::{Gap, Profile};
use super::{AddedCost, FittedStep, StepFacts};
use crate::{ArenaId, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};

/// A usage with added steps.
pub(super) struct Rewritten {
    pub(super) usage: Usage,
    pub(super) steps: Vec<FittedStep>,
    pub(super) origins: Vec<ValueId>,
    pub(super) cost: AddedCost,
}

/// Adds the steps of the chosen gaps.
pub(super) fn rewrite(usage: &Usage, profile: &Profile, chosen: &Chosen, facts: &StepFacts) -> Rewritten {
    let mut writer = Writer::new(usage, facts);
    writer.rewritten.cost.is_cheapest = chosen.is_cheapest;
    let mut starts: BTreeMap<usize, Vec<&Gap>> = BTreeMap::new();
    let mut ends: BTreeMap<usize, Vec<(Use, &Gap)>> = BTreeMap::new();
    for ((gap, way), span) in profile.gaps.iter().zip(&chosen.uses).zip(&chosen.spans) {
        let Some(way) = way else { continue };
        if *way == Use::Spill {
            starts.entry(span.start).or_default().push(gap);
        }
        ends.entry(span.end).or_default().push((*way, gap));
    }
    for unit in 0..=profile.units.len() {
        starts.remove(&unit).into_iter().flatten().for_each(|gap| writer.spill(gap));
        let mut back = ends.remove(&unit).unwrap_or_default();
        // What is copied back first may be an operand of what is computed again, and so may an earlier result.
        back.sort_by_key(|(way, gap)| {
            (*way == Use::Again, gap.recipe.as_ref().and_then(|r| r.steps.last().copied()))
        });
        for (way, gap) in back {
            match (way, &gap.recipe) {
                (Use::Again, Some(recipe)) => {
                    recipe.steps.iter().for_each(|step| writer.again(*step));
                }
                _ => writer.restore(gap),
            }
        }
        for step in profile.units.get(unit).cloned().into_iter().flatten() {
            writer.run(step);
        }
        writer.group += 1;
    }
    writer.finish()
}

struct Writer<'a> {
    given: &'a Usage,
    rewritten: Rewritten,
    group: u32,
    /// Per root of the given usage, the value that holds its contents now.
    now: Vec<ValueId>,
    /// Views of values that replaced a root, by the given view and the new root.
    views: HashMap<(ValueId, ValueId), ValueId>,
    /// Per root, its copy in other memory, as long as the root does not change.
    copies: HashMap<ValueId, ValueId>,
    /// Bytes in other memory.
    other_bytes: u64,
    /// Per root, its views that were results so far.
    made: HashMap<ValueId, Vec<ValueId>>,
    /// Values that are read from outside after the last step: the latest holder gets the flag.
    outputs: Vec<ValueId>,
    clock: Clock<'a>,
}

/// Roots that are read from outside after the last step, or may be: what no step reads lives on in graphs of other engines.
fn kept(given: &Usage) -> Vec<ValueId> {
    let mut is_read = vec![false; given.values().len()];
    for id in given.steps().flat_map(|step| step.reads) {
        is_read[id.index()] = true;
        is_read[given.value(*id).root.index()] = true;
    }
    let mut kept: Vec<bool> = given.values().iter().map(|value| value.flags.output).collect();
    for id in given.steps().flat_map(|step| step.writes).filter(|id| !is_read[id.index()]) {
        kept[given.value(*id).root.index()] |= given.unread == Unread::LivesOn;
    }
    (0..kept.len()).filter(|index| kept[*index]).map(ValueId::new).collect()
}

/// The estimated times of steps and copies.
struct Clock<'a> {
    facts: &'a StepFacts,
    now: f64,
    /// Seconds of the given steps so far.
    given: f64,
    /// When the next copy to other memory, and back, can start.
    out_free: f64,
    back_free: f64,
    /// Per root, when the last step that touches it ends, and when its copy back is there.
    touched: Vec<f64>,
    ready: Vec<f64>,
}

impl<'a> Writer<'a> {
    fn new(given: &'a Usage, facts: &'a StepFacts) -> Writer<'a> {
        let mut usage = Usage::new(given.arenas.clone(), given.unread);
        usage.leaves.clone_from(&given.leaves);
        for (index, value) in given.values().iter().enumerate() {
            usage.push_value(given.name(ValueId::new(index)), *value);
        }
        let all: Vec<ValueId> = (0..given.values().len()).map(ValueId::new).collect();
        let outputs = kept(given);
        Writer {
            given,
            rewritten: Rewritten { usage, steps: vec![], origins: all.clone(), cost: AddedCost::default() },
            group: 0,
            now: all,
            views: HashMap::new(),
            copies: HashMap::new(),
            other_bytes: 0,
            made: HashMap::new(),
            outputs,
            clock: Clock {
                facts,
                now: 0.0,
                given: 0.0,
                out_free: 0.0,
                back_free: 0.0,
                touched: vec![0.0; given.values().len()],
                ready: vec![0.0; given.values().len()],
            },
        }
    }

    fn finish(mut self) -> Rewritten {
        let cost = &mut self.rewritten.cost;
        cost.wait_seconds = (self.clock.now - self.clock.given - cost.again_seconds).max(0.0);
        for id in self.outputs {
            let holder = self.now[id.index()];
            if holder != id && self.given.value(id).root == id {
                self.rewritten.usage.set_output(id, false);
                self.rewritten.usage.set_output(holder, true);
            }
        }
        self.rewritten
    }

    /// The value that stands for a given one now.
    fn current(&mut self, id: ValueId) -> ValueId {
        let value = *self.given.value(id);
        let root = self.now[value.root.index()];
        if value.root == id || root == value.root {
            return if value.root == id { root } else { id };
        }
        if let Some(view) = self.views.get(&(id, root)) {
            return *view;
        }
        let view = self.push(id, ValueInfo { root, ..value });
        self.views.insert((id, root), view);
        view
    }

    fn push(&mut self, origin: ValueId, info: ValueInfo) -> ValueId {
        self.rewritten.origins.push(origin);
        self.rewritten.usage.push_value(self.given.name(origin), info)
    }

    /// A new value in the place of a root.
    fn renew(&mut self, root: ValueId) -> ValueId {
        let value = *self.given.value(root);
        let fresh = ValueId::new(self.rewritten.usage.values().len());
        let flags = Flags { input: false, output: false, ..value.flags };
        self.push(root, ValueInfo { root: fresh, flags, ..value });
        self.now[root.index()] = fresh;
        fresh
    }

    fn step(&mut self, what: FittedStep, view: StepView<'_>) {
        self.rewritten.steps.push(what);
        self.rewritten.usage.push_step(StepView { group: self.group, ..view });
    }

    fn run(&mut self, index: usize) {
        let step = self.given.step(index);
        let reads: Vec<ValueId> = step.reads.iter().map(|id| self.current(*id)).collect();
        let writes: Vec<ValueId> = step.writes.iter().map(|id| self.current(*id)).collect();
        for id in step.writes {
            let root = self.given.value(*id).root;
            if root != *id {
                self.made.entry(root).or_default().push(*id);
            }
        }
        self.pass(index);
        self.clock.given += self.clock.facts.seconds[index];
        self.step(FittedStep::Run(index), StepView { reads: &reads, writes: &writes, ..step });
    }

    fn again(&mut self, index: usize) {
        self.group += 1;
        let step = self.given.step(index);
        let reads: Vec<ValueId> = step.reads.iter().map(|id| self.current(*id)).collect();
        let writes: Vec<ValueId> = step.writes.iter().map(|id| self.renew(*id)).collect();
        // Operands on the way may be overwritten, others live longer and are not.
        let overwrites: Vec<OverwritePair> = step.overwrites.to_vec();
        let view = StepView { reads: &reads, writes: &writes, overwrites: &overwrites, ..step };
        self.step(FittedStep::Again(index), view);
        self.pass(index);
        self.rewritten.cost.again_seconds += self.clock.facts.seconds[index];
        self.rewritten.cost.again += 1;
        self.group += 1;
    }

    /// A step waits for its operands and takes its time.
    fn pass(&mut self, index: usize) {
        let (step, clock) = (self.given.step(index), &mut self.clock);
        let roots = || step.reads.iter().chain(step.writes).map(|id| self.given.value(*id).root.index());
        clock.now = roots().fold(clock.now, |now, root| now.max(clock.ready[root]));
        clock.now += clock.facts.seconds[index];
        roots().for_each(|root| clock.touched[root] = clock.now);
    }

    fn spill(&mut self, gap: &Gap) {
        if gap.is_constant && self.copies.contains_key(&gap.value) {
            return;
        }
        self.group += 1;
        let held = self.now[gap.value.index()];
        let value = *self.given.value(gap.value);
        let copy = ValueId::new(self.rewritten.usage.values().len());
        let flags = Flags { external: true, ..Flags::default() };
        self.push(gap.value, ValueInfo { root: copy, flags, ..value });
        // Reading its views ends the lives of those that are only read from the restored value.
        let mut reads = vec![held];
        for view in self.made.get(&gap.value).cloned().unwrap_or_default() {
            reads.push(self.current(view));
        }
        let view =
            StepView { arena: ArenaId::new(0), group: 0, reads: &reads, writes: &[copy], overwrites: &[] };
        self.step(FittedStep::Spill(held), view);
        // The copy starts after the last step that touches the value, and the memory is free when it is made.
        let clock = &mut self.clock;
        clock.out_free = clock.out_free.max(clock.touched[gap.value.index()]) + gap.copy_seconds;
        clock.now = clock.now.max(clock.out_free);
        self.copies.insert(gap.value, copy);
        self.other_bytes += value.bytes;
        self.rewritten.cost.other_bytes = self.rewritten.cost.other_bytes.max(self.other_bytes);
        self.pay_copy(gap);
        self.group += 1;
    }

    fn restore(&mut self, gap: &Gap) {
        let Some(copy) = self.copies.get(&gap.value).copied() else { return };
        self.group += 1;
        let clock = &mut self.clock;
        clock.back_free = clock.back_free.max(clock.now) + gap.copy_seconds;
        clock.ready[gap.value.index()] = clock.back_free;
        let fresh = self.renew(gap.value);
        let view =
            StepView { arena: ArenaId::new(0), group: 0, reads: &[copy], writes: &[fresh], overwrites: &[] };
        self.step(FittedStep::Restore(fresh), view);
        self.pay_copy(gap);
        if !gap.is_constant {
            self.copies.remove(&gap.value);
            self.other_bytes -= self.given.value(gap.value).bytes;
        }
        self.group += 1;
    }

    fn pay_copy(&mut self, gap: &Gap) {
        let cost = &mut self.rewritten.cost;
        cost.copies += 1;
        cost.copied_bytes += self.given.value(gap.value).bytes;
    }
}
