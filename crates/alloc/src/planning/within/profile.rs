//! Bytes in use at every unit, and the gaps in which values are idle.

use std::ops::Range;

use super::{Floor, StepFacts, units};
use crate::planning::trace::{Rules, walk};
use crate::{ArenaId, Sharing, Unread, Usage, ValueId};

/// What can be saved at which units.
pub(super) struct Profile {
    /// The usage's groups.
    pub(super) units: Vec<Range<usize>>,
    /// Per unit, the bytes in use.
    pub(super) load: Vec<u64>,
    /// Per unit, the bytes of what begins there.
    pub(super) fresh: Vec<u64>,
    pub(super) gaps: Vec<Gap>,
    /// Per unit, the seconds of all units before it; one more at the end.
    pub(super) until: Vec<f64>,
}

/// Units between two touches of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Gap {
    pub(super) value: ValueId,
    pub(super) bytes: u64,
    /// The units of the gap; the touches are just outside, or the gap is at the beginning or the end.
    pub(super) units: Range<usize>,
    /// Seconds of one copy.
    pub(super) copy_seconds: f64,
    /// The value never changes after it is first written: one copy to other memory serves all of its gaps.
    pub(super) is_constant: bool,
    /// How to compute it again, if that can be done.
    pub(super) recipe: Option<Recipe>,
}

/// Steps that compute a value again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Recipe {
    /// In the order of execution; the last one computes the value.
    pub(super) steps: Vec<usize>,
    pub(super) seconds: f64,
    /// Bytes of values on the way.
    pub(super) bytes: u64,
    /// Values that must be in memory when the recipe runs.
    pub(super) needs: Vec<ValueId>,
}

/// Most steps of a recipe.
const MAX_STEPS: usize = 6;

/// What a step writes; a marker only stands for its operands.
fn written<'a>(usage: &'a Usage, writes: &'a [ValueId]) -> impl Iterator<Item = &'a ValueId> {
    writes.iter().filter(|id| usage.value(**id).root == **id || !usage.value(**id).flags.marker)
}

/// How each root is touched.
struct Touches {
    /// Per root, the units that touch it, ascending.
    units: Vec<Vec<u32>>,
    /// Per root, the steps that write it.
    writers: Vec<Vec<u32>>,
    /// Set before the first step.
    begins: Vec<bool>,
    /// Kept after the last.
    stays: Vec<bool>,
    /// Per root, the units in which its views are made, with the first unit that reads the view itself.
    views: Vec<Vec<(u32, u32)>>,
}

impl Touches {
    fn of(usage: &Usage, units: &[Range<usize>], facts: &StepFacts) -> Touches {
        let count = usage.values().len();
        let mut touches = Touches {
            units: vec![vec![]; count],
            writers: vec![vec![]; count],
            begins: vec![false; count],
            stays: usage.values().iter().map(|value| value.flags.output).collect(),
            views: vec![vec![]; count],
        };
        let mut made = Vec::new();
        let mut first_read = vec![u32::MAX; count];
        // A leaf that is a view takes no memory.
        for (value, _) in usage.leaves.iter().filter(|(value, _)| usage.value(*value).root == *value) {
            touches.begins[value.index()] = true;
        }
        for (unit, steps) in units.iter().enumerate() {
            for index in steps.clone() {
                let step = usage.step(index);
                for id in step.reads {
                    first_read[id.index()] = first_read[id.index()].min(unit as u32);
                }
                for id in step.reads.iter().chain(written(usage, step.writes)) {
                    let list = &mut touches.units[usage.value(*id).root.index()];
                    if list.last() != Some(&(unit as u32)) {
                        list.push(unit as u32);
                    }
                }
                for id in step.writes {
                    let root = usage.value(*id).root;
                    if !facts.is_only_view(index) && !usage.value(*id).flags.marker {
                        touches.writers[root.index()].push(index as u32);
                    }
                    if root != *id {
                        made.push((unit as u32, *id));
                    }
                }
            }
        }
        // An input that no step touches is not placed.
        for (root, value) in usage.values().iter().enumerate() {
            touches.begins[root] |= value.flags.input && !touches.units[root].is_empty();
        }
        for (unit, id) in made {
            touches.views[usage.value(id).root.index()].push((unit, first_read[id.index()]));
        }
        touches
    }

    /// Written once, or only set before the first step.
    fn is_constant(&self, value: usize) -> bool {
        self.writers[value].len() + usize::from(self.begins[value]) <= 1
    }

    /// Where unread results live on, a view that is made before a gap and first read after it keeps its root alive.
    fn lives_on(&self, usage: &Usage, value: ValueId, gap: &Range<usize>) -> bool {
        let keeps = |(made, read): &(u32, u32)| (*made as usize) < gap.start && (*read as usize) >= gap.start;
        usage.unread == Unread::LivesOn && self.views[value.index()].iter().any(keeps)
    }
}

impl Profile {
    pub(super) fn of(usage: &Usage, sharing: Sharing, facts: &StepFacts) -> Profile {
        let units = units(usage);
        let trace = walk(usage, Rules { sharing, across_arenas: false });
        let mut unit_of = vec![0; usage.step_count() + 1];
        for (unit, steps) in units.iter().enumerate() {
            unit_of[steps.clone()].fill(unit);
        }
        unit_of[usage.step_count()] = units.len();
        let touches = Touches::of(usage, &units, facts);
        let mut profile = Profile {
            load: vec![0; units.len()],
            fresh: vec![0; units.len()],
            gaps: vec![],
            until: vec![0.0],
            units,
        };
        for steps in &profile.units {
            let seconds: f64 = facts.seconds[steps.clone()].iter().sum();
            profile.until.push(profile.until[profile.until.len() - 1] + seconds);
        }
        for piece in &trace.pieces {
            // Without steps, lifetimes end at 1.
            let live = unit_of[piece.live.start]..unit_of[piece.live.end.min(usage.step_count())];
            if piece.bytes == 0 || live.is_empty() {
                continue;
            }
            profile.load[live.clone()].iter_mut().for_each(|load| *load = load.saturating_add(piece.bytes));
            let mut held: Vec<(usize, ValueId)> = Vec::new();
            for value in &piece.values {
                held.extend(touches.units[value.index()].iter().map(|unit| (*unit as usize, *value)));
            }
            held.sort_by_key(|(unit, _)| *unit);
            let Some((first, value)) = held.first().copied() else { continue };
            let sooner = first > live.start;
            if !sooner {
                profile.fresh[first] = profile.fresh[first].saturating_add(piece.bytes);
            }
            let before = sooner.then_some((None, value));
            let touched = before.into_iter().chain(held.into_iter().map(|(unit, value)| (Some(unit), value)));
            let mut touched = touched.peekable();
            while let Some((after, value)) = touched.next() {
                let from = after.map_or(live.start, |unit| unit + 1);
                let to = touched.peek().and_then(|(unit, _)| *unit).unwrap_or(live.end);
                if from < to {
                    profile.gaps.push(Gap {
                        value,
                        bytes: piece.bytes,
                        units: from..to,
                        copy_seconds: usage.value(value).bytes as f64 / facts.copy_bytes_per_second,
                        is_constant: touches.is_constant(value.index()),
                        recipe: after.filter(|_| !touches.lives_on(usage, value, &(from..to))).and_then(
                            |_| {
                                let mut recipe = Recipe::default();
                                cook(usage, &touches, &unit_of, facts, value, to, &mut recipe)?;
                                recipe.bytes -= piece_bytes(usage, value).min(recipe.bytes);
                                Some(recipe)
                            },
                        ),
                    });
                }
            }
        }
        profile
    }
}

impl Profile {
    /// Seconds of some units.
    pub(super) fn seconds_of(&self, units: Range<usize>) -> f64 {
        self.until[units.end] - self.until[units.start]
    }
}

fn piece_bytes(usage: &Usage, value: ValueId) -> u64 {
    usage.rounded_bytes(value, ArenaId::new(0))
}

/// Adds the steps that compute `value` again just before unit `at`; `None` if an operand is gone by then and cannot be
/// computed again itself.
fn cook(
    usage: &Usage,
    touches: &Touches,
    unit_of: &[usize],
    facts: &StepFacts,
    value: ValueId,
    at: usize,
    recipe: &mut Recipe,
) -> Option<()> {
    let &[step] = touches.writers[value.index()].as_slice() else { return None };
    let index = step as usize;
    let whole = usage.step(index);
    let is_alone =
        (index == 0 || unit_of[index - 1] != unit_of[index]) && unit_of[index + 1] != unit_of[index];
    if !is_alone
        || whole.writes != [value]
        || !touches.is_constant(value.index())
        || recipe.steps.len() >= MAX_STEPS
    {
        return None;
    }
    for read in whole.reads {
        let root = usage.value(*read).root;
        let r = root.index();
        if root == value {
            return None;
        }
        if usage.value(root).flags.external {
            if !touches.writers[r].is_empty() {
                return None;
            }
            continue;
        }
        let is_there = touches.stays[r] || touches.units[r].last().is_some_and(|last| *last as usize >= at);
        if is_there && touches.is_constant(r) {
            recipe.needs.push(root);
        } else if !recipe.steps.iter().any(|known| usage.step(*known).writes == [root]) {
            cook(usage, touches, unit_of, facts, root, at, recipe)?;
        }
    }
    if recipe.steps.len() >= MAX_STEPS {
        return None;
    }
    recipe.steps.push(index);
    recipe.seconds += facts.seconds[index];
    recipe.bytes = recipe.bytes.saturating_add(piece_bytes(usage, value));
    Some(())
}

/// See [`super::floor`].
pub(super) fn floor(usage: &Usage) -> Floor {
    let units = units(usage);
    let none = StepFacts { seconds: vec![], only_views: vec![], copy_bytes_per_second: 1.0 };
    let touches = Touches::of(usage, &units, &none);
    let mut arena = vec![ArenaId::new(0); usage.values().len()];
    let mut is_known = vec![false; usage.values().len()];
    let mut set = |value: ValueId, at: ArenaId| {
        if !std::mem::replace(&mut is_known[value.index()], true) {
            arena[value.index()] = at;
        }
    };
    usage
        .leaves
        .iter()
        .filter(|(value, _)| usage.value(*value).root == *value)
        .for_each(|(value, at)| set(*value, *at));
    for step in usage.steps() {
        step.reads
            .iter()
            .chain(written(usage, step.writes))
            .for_each(|value| set(usage.value(*value).root, step.arena));
    }
    // A result that moves in place into another arena may be smaller there.
    let bytes = |root: usize| match usage.values()[root].flags.external {
        true => 0,
        false if usage.arenas.is_empty() => 0,
        false => usage.rounded_bytes(ValueId::new(root), arena[root]),
    };
    let is_placed = |root: &usize| touches.begins[*root] || !touches.units[*root].is_empty();
    let sum = |flagged: &[bool]| {
        let roots = (0..flagged.len()).filter(|root| flagged[*root]).filter(is_placed);
        roots
            .filter(|root| usage.values()[*root].root.index() == *root)
            .fold(0u64, |sum, root| sum.saturating_add(bytes(root)))
    };
    // Leaves that no step reads may be given back at once.
    let begins: Vec<bool> = usage.values().iter().map(|value| value.flags.input).collect();
    let ends = sum(&begins).max(sum(&touches.stays));
    let mut floor = Floor { bytes: ends, step: None };
    let mut seen = vec![u32::MAX; usage.values().len()];
    for (unit, steps) in units.iter().enumerate() {
        let (mut all, mut shared) = (0u64, 0u64);
        for index in steps.clone() {
            let step = usage.step(index);
            for id in step.reads.iter().chain(written(usage, step.writes)) {
                let root = usage.value(*id).root.index();
                if std::mem::replace(&mut seen[root], unit as u32) != unit as u32 {
                    all = all.saturating_add(bytes(root));
                }
            }
            for (write, id) in step.writes.iter().enumerate() {
                let operands = step.overwrites.iter().filter(|pair| pair.write as usize == write);
                let operands = operands.map(|pair| usage.value(step.reads[pair.read as usize]).root);
                // A smaller result gives the rest of its operand's memory back.
                let most = operands
                    .filter(|root| !usage.value(*root).flags.external)
                    .map(|root| bytes(root.index()))
                    .max();
                if let Some(most) = most.filter(|_| usage.value(*id).root == *id) {
                    shared = shared.saturating_add(most.max(bytes(id.index())));
                }
            }
        }
        if all - shared.min(all) > floor.bytes {
            floor = Floor { bytes: all - shared.min(all), step: Some(steps.start) };
        }
    }
    floor
}
