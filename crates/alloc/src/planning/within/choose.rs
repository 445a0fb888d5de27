//! Which gaps are used, and how: a covering problem with costs. A greedy choice, pruned; for few gaps, a search of all
//! choices.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use super::profile::{Gap, Profile, Recipe};
use crate::ValueId;

/// How a gap is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The value is copied to other memory, unless it is there already, and back.
    Spill,
    /// The value is computed again.
    Again,
}

/// The gaps that are used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    /// Per gap of the profile.
    pub(super) uses: Vec<Option<Use>>,
    /// Per gap, the units at which the value is not in memory: copies are made while there is room for both.
    pub(super) spans: Vec<Range<usize>>,
    /// No cheaper choice brings every unit to the target.
    pub(super) is_cheapest: bool,
}

/// Gaps up to which all choices are searched.
const FEW_GAPS: usize = 24;
/// Limit on the work of looking at choices, in numbers copied.
const MAX_WORK: u64 = 1 << 27;
/// How long a value stays in memory for its copy, as a multiple of the copy's time.
const STAY: f64 = 2.0;
/// The least share of a copy that steps are expected to wait for, as copies wait for each other.
const LEAST_WAIT: f64 = 1.0 / 16.0;
/// Takes the place of a cost of zero.
const LEAST_SECONDS: f64 = 1e-12;

/// A cheap choice that brings the bytes in use to `target` at every unit; `None` if none was found.
pub(super) fn choose(profile: &Profile, target: u64) -> Option<Chosen> {
    let mut state = State::new(profile, target);
    let is_covered = state.cover();
    let greedy = is_covered.then(|| {
        state.prune();
        state.clone()
    });
    let relevant = State::new(profile, target).relevant();
    let mut is_cheapest = false;
    let mut best = greedy.map(|state| (state.seconds(), state.uses));
    if relevant.len() <= FEW_GAPS {
        let nodes = MAX_WORK / (profile.load.len() + 2 * profile.gaps.len()).max(1) as u64;
        let mut search = Search { relevant: &relevant, best, nodes };
        search.descend(&mut State::new(profile, target), 0);
        is_cheapest = search.nodes > 0;
        best = search.best;
    }
    let (_, uses) = best?;
    for (index, way) in uses.iter().enumerate() {
        if let Some(way) = way {
            state.reset(index, *way);
        }
    }
    (0..uses.len()).filter(|index| uses[*index].is_none()).for_each(|index| state.remove(index));
    let spans = state.spans();
    Some(Chosen { uses, spans, is_cheapest })
}

/// A partial choice.
#[derive(Clone)]
struct State<'a> {
    profile: &'a Profile,
    target: u64,
    uses: Vec<Option<Use>>,
    /// Bytes in use with the gaps chosen so far.
    load: Vec<u64>,
    /// Per value, the units before which a recipe needs it in memory, with a count.
    needed: BTreeMap<ValueId, BTreeMap<usize, u32>>,
    /// Per unit before which recipes run, the most bytes on the way.
    on_the_way: BTreeMap<usize, u64>,
    /// Per value, its gaps.
    of_value: BTreeMap<ValueId, Vec<usize>>,
    /// Per gap, the seconds of the units before and after those above the target, in which copies can be made.
    hidden: Vec<(f64, f64)>,
}

impl<'a> State<'a> {
    fn new(profile: &'a Profile, target: u64) -> State<'a> {
        let mut of_value: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (index, gap) in profile.gaps.iter().enumerate() {
            of_value.entry(gap.value).or_default().push(index);
        }
        let above = |unit: &usize| profile.load[*unit] > target;
        let hidden = |gap: &Gap| {
            let first = gap.units.clone().find(above).unwrap_or(gap.units.end);
            let last = gap.units.clone().rev().find(above).map_or(gap.units.start, |unit| unit + 1);
            (profile.seconds_of(gap.units.start..first), profile.seconds_of(last..gap.units.end))
        };
        State {
            profile,
            target,
            hidden: profile.gaps.iter().map(hidden).collect(),
            uses: vec![None; profile.gaps.len()],
            load: profile.load.clone(),
            needed: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            of_value,
        }
    }

    fn gap(&self, index: usize) -> &'a Gap {
        &self.profile.gaps[index]
    }

    /// Excess bytes that a gap saves, over its units.
    fn gain(&self, index: usize) -> u128 {
        let gap = self.gap(index);
        let saved = |unit: usize| u128::from(self.load[unit].saturating_sub(self.target).min(gap.bytes));
        gap.units.clone().map(saved).sum()
    }

    /// Seconds of a use of a gap, given the others.
    fn cost(&self, index: usize, way: Use) -> f64 {
        let gap = self.gap(index);
        match (way, &gap.recipe) {
            (Use::Again, Some(recipe)) => recipe.seconds,
            (Use::Again, None) => f64::INFINITY,
            (Use::Spill, _) => {
                let others = self.of_value.get(&gap.value).into_iter().flatten();
                let is_there = gap.is_constant
                    && others
                        .into_iter()
                        .any(|other| *other != index && self.uses[*other] == Some(Use::Spill));
                self.spill_seconds(index, is_there)
            }
        }
    }

    /// Estimated seconds that steps wait for a copy to other memory, unless it is there, and the one back.
    fn spill_seconds(&self, index: usize, is_there: bool) -> f64 {
        let (copy, (before, after)) = (self.gap(index).copy_seconds, self.hidden[index]);
        let wait = |hidden: f64| (copy - hidden).max(copy * LEAST_WAIT);
        wait(after) + if is_there { 0.0 } else { wait(before) }
    }

    /// Gaps that the cheapest choice may use: those at units above the target, those that make room for the recipe of
    /// another one, and those whose copy to other memory serves another one.
    fn relevant(&self) -> Vec<usize> {
        let gaps = &self.profile.gaps;
        let mut is_short: Vec<bool> = self.load.iter().map(|load| *load > self.target).collect();
        let mut is_relevant = vec![false; gaps.len()];
        loop {
            let is_new = |index: &usize| {
                let gap = &gaps[*index];
                let shares_copy = || self.of_value[&gap.value].iter().any(|other| is_relevant[*other]);
                !is_relevant[*index]
                    && (gap.units.clone().any(|unit| is_short[unit]) || (gap.is_constant && shares_copy()))
            };
            let new: Vec<usize> = (0..gaps.len()).filter(is_new).collect();
            if new.is_empty() {
                return (0..gaps.len()).filter(|index| is_relevant[*index]).collect();
            }
            for index in new {
                is_relevant[index] = true;
                let at = gaps[index].units.end;
                if let (Some(recipe), Some(is_short)) = (&gaps[index].recipe, is_short.get_mut(at)) {
                    *is_short |= !self.has_room(recipe.bytes, at);
                }
            }
        }
    }

    /// Whether a gap can be used that way, as the gaps used so far leave memory.
    fn is_open(&self, index: usize, way: Use) -> bool {
        let gap = self.gap(index);
        let has_room = match (way, &gap.recipe) {
            (Use::Again, Some(recipe)) => self.has_room(recipe.bytes, gap.units.end),
            _ => true,
        };
        has_room && self.is_allowed(index, way)
    }

    /// Whether a gap can be used that way, once there is room for the values on the way of its recipe.
    fn is_allowed(&self, index: usize, way: Use) -> bool {
        let gap = self.gap(index);
        if self.uses[index].is_some() {
            return false;
        }
        let is_needed =
            self.needed.get(&gap.value).is_some_and(|units| units.keys().any(|unit| is_idle(gap, *unit)));
        let has_operands = match (way, &gap.recipe) {
            (Use::Spill, _) => true,
            (Use::Again, None) => false,
            (Use::Again, Some(recipe)) => self.has_operands(recipe, gap.units.end),
        };
        !is_needed && has_operands
    }

    /// Whether a recipe's operands are in memory just before a unit.
    fn has_operands(&self, recipe: &Recipe, at: usize) -> bool {
        let is_gone = |value: &ValueId| {
            let gaps = self.of_value.get(value).into_iter().flatten();
            gaps.into_iter().any(|gap| self.uses[*gap].is_some() && is_idle(self.gap(*gap), at))
        };
        !recipe.needs.iter().any(is_gone)
    }

    fn has_room(&self, bytes: u64, at: usize) -> bool {
        let (Some(load), Some(fresh)) = (self.load.get(at), self.profile.fresh.get(at)) else {
            return bytes == 0;
        };
        load.saturating_sub(*fresh).saturating_add(bytes) <= self.target
    }

    fn add(&mut self, index: usize, way: Use) {
        let gap = self.gap(index);
        self.uses[index] = Some(way);
        self.load[gap.units.clone()].iter_mut().for_each(|load| *load -= gap.bytes);
        if let (Use::Again, Some(recipe)) = (way, &gap.recipe) {
            let at = gap.units.end;
            for value in &recipe.needs {
                *self.needed.entry(*value).or_default().entry(at).or_default() += 1;
            }
            let most = self.on_the_way.entry(at).or_default();
            *most = (*most).max(recipe.bytes);
        }
    }

    /// Undoes the use of a gap. Room for values on the way stays reserved.
    fn remove(&mut self, index: usize) {
        let gap = self.gap(index);
        let Some(way) = self.uses[index].take() else { return };
        self.load[gap.units.clone()].iter_mut().for_each(|load| *load += gap.bytes);
        if let (Use::Again, Some(recipe)) = (way, &gap.recipe) {
            for value in &recipe.needs {
                let Some(units) = self.needed.get_mut(value) else { continue };
                if let Some(count) = units.get_mut(&gap.units.end) {
                    *count -= 1;
                    if *count == 0 {
                        units.remove(&gap.units.end);
                    }
                }
            }
        }
    }

    /// Uses a gap in the given way.
    fn reset(&mut self, index: usize, way: Use) {
        if self.uses[index] != Some(way) {
            self.remove(index);
            self.add(index, way);
        }
    }

    /// Per gap, the units without its value. A value that is copied stays, and comes back early, where there is room, for
    /// about as long as the copies take.
    fn spans(mut self) -> Vec<Range<usize>> {
        let mut spans: Vec<Range<usize>> = self.profile.gaps.iter().map(|gap| gap.units.clone()).collect();
        for (index, span) in spans.iter_mut().enumerate() {
            if self.uses[index] != Some(Use::Spill) {
                continue;
            }
            let gap = self.gap(index);
            let mut seconds = 0.0;
            while seconds < STAY * gap.copy_seconds && span.len() > 1 && self.stay(span.start, gap.bytes) {
                seconds += self.profile.seconds_of(span.start..span.start + 1);
                span.start += 1;
            }
            seconds = 0.0;
            while seconds < STAY * gap.copy_seconds && span.len() > 1 && self.stay(span.end - 1, gap.bytes) {
                span.end -= 1;
                seconds += self.profile.seconds_of(span.end..span.end + 1);
            }
        }
        spans
    }

    /// Keeps bytes in memory at a unit, if there is room.
    fn stay(&mut self, unit: usize, bytes: u64) -> bool {
        let has_room = |state: &State<'_>| {
            let on_the_way = state.on_the_way.get(&unit).copied().unwrap_or(0);
            state.load[unit] <= state.target && (on_the_way == 0 || state.has_room(on_the_way, unit))
        };
        self.load[unit] += bytes;
        if has_room(self) {
            return true;
        }
        self.load[unit] -= bytes;
        false
    }

    fn is_covered(&self) -> bool {
        self.load.iter().all(|load| *load <= self.target)
            && self.on_the_way.iter().all(|(at, bytes)| self.has_room(*bytes, *at))
    }

    /// The cheaper way in which a gap can be used.
    fn way(&self, index: usize) -> Option<(f64, Use)> {
        let ways = [Use::Again, Use::Spill].into_iter().filter(|way| self.is_open(index, *way));
        ways.map(|way| (self.cost(index, way), way)).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Adds the gap that saves most per second, again and again. Gains only fall, so an entry of the queue that is still
    /// the largest after an update is the best.
    fn cover(&mut self) -> bool {
        let rate = |state: &State<'_>, index: usize| {
            let gain = state.gain(index);
            let (cost, way) = state.way(index).filter(|_| gain > 0)?;
            Some((gain as f64 / cost.max(LEAST_SECONDS), way))
        };
        let entries =
            (0..self.uses.len()).filter_map(|index| Some(Entry { rate: rate(self, index)?.0, index }));
        let mut queue: BinaryHeap<Entry> = entries.collect();
        while let Some(entry) = queue.pop() {
            let Some((now, way)) = rate(self, entry.index) else { continue };
            if now < entry.rate {
                queue.push(Entry { rate: now, ..entry });
                continue;
            }
            self.add(entry.index, way);
            if self.is_covered() {
                return true;
            }
        }
        self.is_covered()
    }

    /// Removes gaps that are not necessary, the most expensive first.
    fn prune(&mut self) {
        let cost = |index: &usize| self.uses[*index].map_or(0.0, |way| self.cost(*index, way));
        let mut used: Vec<usize> = (0..self.uses.len()).filter(|index| self.uses[*index].is_some()).collect();
        used.sort_by(|a, b| cost(b).total_cmp(&cost(a)).then(a.cmp(b)));
        for index in used {
            let Some(way) = self.uses[index] else { continue };
            self.remove(index);
            if !self.is_covered() {
                self.add(index, way);
            }
        }
    }

    fn seconds(&self) -> f64 {
        let mut total = 0.0;
        let mut copied: Vec<ValueId> = Vec::new();
        for (index, way) in self.uses.iter().enumerate() {
            let gap = self.gap(index);
            total += match (way, &gap.recipe) {
                (None, _) => 0.0,
                (Some(Use::Again), recipe) => recipe.as_ref().map_or(f64::INFINITY, |recipe| recipe.seconds),
                (Some(Use::Spill), _) if gap.is_constant && copied.contains(&gap.value) => {
                    self.spill_seconds(index, true)
                }
                (Some(Use::Spill), _) => {
                    copied.push(gap.value);
                    self.spill_seconds(index, false)
                }
            };
        }
        total
    }
}

/// Whether a gap's value is gone just before a unit.
fn is_idle(gap: &Gap, at: usize) -> bool {
    gap.units.start <= at && at < gap.units.end
}

/// A gap in the queue, by rate.
#[derive(Clone, Copy, PartialEq)]
struct Entry {
    rate: f64,
    index: usize,
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.rate.total_cmp(&other.rate).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Depth-first search of all choices, bounded by the cost of the best one.
struct Search<'a> {
    relevant: &'a [usize],
    best: Option<(f64, Vec<Option<Use>>)>,
    /// Choices that may still be looked at.
    nodes: u64,
}

impl Search<'_> {
    fn descend(&mut self, state: &mut State<'_>, depth: usize) {
        self.nodes = self.nodes.saturating_sub(1);
        let seconds = state.seconds();
        if self.nodes == 0 || self.best.as_ref().is_some_and(|(best, _)| seconds >= *best) {
            return;
        }
        if state.is_covered() {
            self.best = Some((seconds, state.uses.clone()));
            return;
        }
        let Some(&index) = self.relevant.get(depth) else { return };
        for way in [Use::Again, Use::Spill] {
            // Gaps that are chosen later may make room.
            if state.is_allowed(index, way) {
                let before = state.clone();
                state.add(index, way);
                self.descend(state, depth + 1);
                *state = before;
            }
        }
        self.descend(state, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a fixed sequence.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) % limit
        }
    }

    const UNITS: usize = 6;

    fn random_gap(numbers: &mut Numbers, value: usize, from: usize) -> Gap {
        let start = from + numbers.below((UNITS - from) as u64) as usize;
        let end = start + 1 + numbers.below((UNITS - start) as u64) as usize;
        let recipe = Recipe {
            steps: vec![],
            seconds: numbers.below(9) as f64,
            bytes: numbers.below(4),
            needs: (0..numbers.below(2)).map(|_| ValueId::new(numbers.below(4) as usize)).collect(),
        };
        let is_own = recipe.needs.contains(&ValueId::new(value));
        Gap {
            value: ValueId::new(value),
            bytes: 1 + numbers.below(4),
            units: start..end,
            copy_seconds: numbers.below(9) as f64,
            is_constant: numbers.below(2) == 0,
            recipe: Some(recipe).filter(|_| !is_own && end < UNITS),
        }
    }

    /// Up to two gaps of each of four values.
    fn random_profile(numbers: &mut Numbers) -> Profile {
        let mut gaps: Vec<Gap> = Vec::new();
        for value in 0..4 {
            let first = random_gap(numbers, value, 0);
            let from = first.units.end + 1;
            let is_constant = first.is_constant;
            gaps.push(first);
            if from < UNITS && numbers.below(2) == 0 {
                gaps.push(Gap { is_constant, ..random_gap(numbers, value, from) });
            }
        }
        let fresh: Vec<u64> = (0..UNITS).map(|_| numbers.below(3)).collect();
        let idle =
            |unit: usize| gaps.iter().filter(move |gap| gap.units.contains(&unit)).map(|gap| gap.bytes);
        let load = (0..UNITS).map(|unit| idle(unit).sum::<u64>() + fresh[unit]).collect();
        let until = (0..=UNITS).map(|unit| unit as f64).collect();
        Profile { units: (0..UNITS).map(|unit| unit..unit + 1).collect(), load, fresh, gaps, until }
    }

    /// The cost of a choice that meets the target, with every operand of what is computed again in memory.
    fn seconds_of(profile: &Profile, target: u64, uses: &[Option<Use>]) -> Option<f64> {
        let mut state = State::new(profile, target);
        let used = |index: &usize| uses[*index].map(|way| (*index, way));
        (0..uses.len()).filter_map(|index| used(&index)).for_each(|(index, way)| state.add(index, way));
        let is_there = |(index, way): (usize, Use)| match (way, &profile.gaps[index].recipe) {
            (Use::Spill, _) => true,
            (Use::Again, None) => false,
            (Use::Again, Some(recipe)) => state.has_operands(recipe, profile.gaps[index].units.end),
        };
        let is_right = (0..uses.len()).filter_map(|index| used(&index)).all(is_there);
        (is_right && state.is_covered()).then(|| state.seconds())
    }

    #[test]
    fn no_choice_is_cheaper_than_one_that_is_proven() {
        let mut numbers = Numbers(1);
        let (mut proven, mut changed) = (0, 0);
        for _ in 0..600 {
            let profile = random_profile(&mut numbers);
            let most = profile.load.iter().copied().max().unwrap_or(0);
            let target = most.saturating_sub(1 + numbers.below(4));
            let ways = [None, Some(Use::Spill), Some(Use::Again)];
            let count = 3usize.pow(profile.gaps.len() as u32);
            let nth = |mut number: usize| -> Vec<Option<Use>> {
                let digit = |_| {
                    let way = ways[number % 3];
                    number /= 3;
                    way
                };
                (0..profile.gaps.len()).map(digit).collect()
            };
            let least = (0..count)
                .filter_map(|number| seconds_of(&profile, target, &nth(number)))
                .min_by(f64::total_cmp);
            let chosen = choose(&profile, target);
            assert_eq!(chosen.is_some(), least.is_some(), "{:?}", profile.gaps);
            let (Some(chosen), Some(least)) = (chosen, least) else { continue };
            let seconds = seconds_of(&profile, target, &chosen.uses).expect("it meets the target");
            assert!(
                chosen.is_cheapest && (seconds - least).abs() < 1e-9,
                "{seconds} {least} {:?}",
                profile.gaps
            );
            proven += 1;
            changed += u32::from(chosen.uses.iter().any(Option::is_some));
        }
        assert!(proven > 200 && changed > 200, "{proven} {changed}");
    }
}
