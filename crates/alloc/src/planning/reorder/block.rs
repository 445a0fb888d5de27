//! A block: a range of steps that every order runs as a whole, with what its memory begins and ends with.

use std::ops::Range;

use crate::{ArenaId, Unread, Usage, ValueId};

use super::state::State;

/// What ordering needs to know of the memory of a usage.
pub(super) struct Roots {
    /// For each root the steps that touch it, in order; none for external memory.
    touches: Vec<Vec<u32>>,
    /// In memory before the first step.
    begins: Vec<bool>,
    /// In memory after the last step.
    stays: Vec<bool>,
    arena: Vec<ArenaId>,
    bytes: Vec<u64>,
}

impl Roots {
    pub(super) fn of(usage: &Usage) -> Roots {
        let count = usage.values().len();
        let mut roots = Roots {
            touches: vec![Vec::new(); count],
            begins: vec![false; count],
            stays: vec![false; count],
            arena: vec![ArenaId::new(0); count],
            bytes: vec![0; count],
        };
        let mut read = vec![false; count];
        for (value, arena) in &usage.leaves {
            let root = usage.value(*value).root.index();
            roots.begins[root] = true;
            roots.arena[root] = *arena;
        }
        for id in usage.steps().flat_map(|step| step.reads) {
            read[id.index()] = true;
            read[usage.value(*id).root.index()] = true;
        }
        for (index, step) in usage.steps().enumerate() {
            for id in step.reads.iter().chain(contents(usage, step.writes)) {
                let value = usage.value(*id);
                let root = value.root.index();
                if usage.value(value.root).flags.external {
                    continue;
                }
                roots.stays[root] |= usage.unread == Unread::LivesOn && !read[id.index()];
                if roots.touches[root].is_empty() && !roots.begins[root] {
                    roots.arena[root] = step.arena;
                }
                if roots.touches[root].last() != Some(&(index as u32)) {
                    roots.touches[root].push(index as u32);
                }
            }
        }
        for (index, value) in usage.values().iter().enumerate() {
            roots.begins[index] |= value.flags.input;
            roots.stays[index] |= value.flags.output;
            roots.bytes[index] = usage.rounded_bytes(ValueId::new(index), roots.arena[index]);
        }
        roots
    }
}

impl Roots {
    /// Bytes in use at each step of the given order, of that step's arena.
    pub(super) fn needs(&self, usage: &Usage) -> Vec<u64> {
        let steps = usage.step_count();
        let mut needs = vec![0; steps];
        for arena in 0..usage.arenas.len() {
            let mut changes = vec![0i128; steps + 1];
            for root in (0..self.bytes.len()).filter(|root| self.arena[*root].index() == arena) {
                let (Some(first), Some(last)) = (self.touches[root].first(), self.touches[root].last())
                else {
                    continue;
                };
                let first = if self.begins[root] { 0 } else { *first as usize };
                let end = if self.stays[root] { steps } else { *last as usize + 1 };
                changes[first] += i128::from(self.bytes[root]);
                changes[end] -= i128::from(self.bytes[root]);
            }
            let mut now = 0;
            for (step, change) in changes[..steps].iter().enumerate() {
                now += change;
                if usage.step(step).arena.index() == arena {
                    let saved = self.saved_in_place(usage, step);
                    needs[step] = u64::try_from(now).unwrap_or(u64::MAX).saturating_sub(saved);
                }
            }
        }
        needs
    }

    /// Bytes that a step of the given order saves by working in place: each result takes the memory of one operand at
    /// most, and each operand's is taken once.
    fn saved_in_place(&self, usage: &Usage, step: usize) -> u64 {
        let mut taken: Vec<(ValueId, ValueId)> = Vec::new();
        for pair in pairs(usage, self, step) {
            let ends_here = self.touches[pair.0.index()].last() == Some(&(step as u32));
            if ends_here && taken.iter().all(|other| other.0 != pair.0 && other.1 != pair.1) {
                taken.push(pair);
            }
        }
        taken.iter().map(|(_, result)| self.bytes[result.index()]).fold(0, u64::saturating_add)
    }
}

/// What a step writes; a marker has no contents.
fn contents<'a>(usage: &'a Usage, writes: &'a [ValueId]) -> impl Iterator<Item = &'a ValueId> {
    writes.iter().filter(|id| usage.value(**id).root == **id || !usage.value(**id).flags.marker)
}

/// Memory as a block sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    pub(super) bytes: u64,
    /// In use before the block.
    pub(super) begins: bool,
    /// In use after the block.
    pub(super) stays: bool,
    /// Steps of the block that touch it.
    pub(super) touches: u32,
}

/// A result that can take an operand's memory if no later step needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) operand: u32,
    pub(super) result: u32,
}

/// Steps between two points that every order passes through, numbered from 0.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Where its steps stand in the usage.
    pub(super) range: Range<usize>,
    pub(super) roots: Vec<Root>,
    /// Roots that each step touches.
    pub(super) touches: Vec<Vec<u32>>,
    /// What each step may do in place.
    pub(super) pairs: Vec<Vec<Pair>>,
    pub(super) before: Vec<Vec<u32>>,
    pub(super) after: Vec<Vec<u32>>,
    /// Bytes in use throughout that no step of the block touches.
    pub(super) base: u64,
    /// Most bytes in use at one step of the given order.
    pub(super) peak: u64,
    /// Time runs backwards: [`Block::mirrored`].
    pub(super) backwards: bool,
}

impl Block {
    /// The steps of a range, which all use one arena.
    pub(super) fn new(usage: &Usage, roots: &Roots, range: Range<usize>, all: &[Vec<u32>]) -> Block {
        let arena = usage.step(range.start).arena;
        let length = range.len();
        let mut block = Block {
            range: range.clone(),
            roots: Vec::new(),
            touches: vec![Vec::new(); length],
            pairs: vec![Vec::new(); length],
            before: vec![Vec::new(); length],
            after: vec![Vec::new(); length],
            base: 0,
            peak: 0,
            backwards: false,
        };
        let mut numbers = std::collections::HashMap::new();
        for (here, step) in range.clone().enumerate() {
            for earlier in all[step].iter().map(|earlier| *earlier as usize).filter(|at| *at >= range.start) {
                block.before[here].push((earlier - range.start) as u32);
                block.after[earlier - range.start].push(here as u32);
            }
            let view = usage.step(step);
            for id in view.reads.iter().chain(contents(usage, view.writes)) {
                let root = usage.value(*id).root;
                let is_here = roots.arena[root.index()] == arena && roots.bytes[root.index()] > 0;
                let touches = &roots.touches[root.index()];
                let (Some(first), Some(last), true) = (touches.first(), touches.last(), is_here) else {
                    continue;
                };
                let number = *numbers.entry(root).or_insert_with(|| {
                    block.roots.push(Root {
                        bytes: roots.bytes[root.index()],
                        begins: roots.begins[root.index()] || (*first as usize) < range.start,
                        stays: roots.stays[root.index()] || *last as usize >= range.end,
                        touches: 0,
                    });
                    (block.roots.len() - 1) as u32
                });
                if !block.touches[here].contains(&number) {
                    block.touches[here].push(number);
                    block.roots[number as usize].touches += 1;
                }
            }
            let pairs = pairs(usage, roots, step);
            let known = pairs.into_iter().filter_map(|(operand, result)| {
                Some(Pair { operand: *numbers.get(&operand)?, result: *numbers.get(&result)? })
            });
            block.pairs[here] = known.collect();
        }
        let through = (0..roots.bytes.len()).filter(|root| {
            let touched = &roots.touches[*root];
            let at = touched.partition_point(|step| (*step as usize) < range.start);
            let untouched = touched.get(at).is_none_or(|step| *step as usize >= range.end);
            let begins = roots.begins[*root] || at > 0;
            let stays = roots.stays[*root] || at < touched.len();
            roots.arena[*root] == arena && !touched.is_empty() && untouched && begins && stays
        });
        block.base = through.fold(0, |sum: u64, root| sum.saturating_add(roots.bytes[root]));
        block.peak = State::new(&block).peak_of(0..length as u32);
        block
    }

    /// How many steps there are.
    pub(super) fn len(&self) -> usize {
        self.touches.len()
    }

    /// The same block with time running backwards: its orders are this one's from the last step to the first, and
    /// need as many bytes.
    pub(super) fn mirrored(&self) -> Block {
        let last = self.len().saturating_sub(1) as u32;
        let turn = |lists: &[Vec<u32>]| -> Vec<Vec<u32>> {
            let turned = |list: &Vec<u32>| list.iter().rev().map(|step| last - step).collect();
            lists.iter().rev().map(turned).collect()
        };
        let swap = |root: &Root| Root { begins: root.stays, stays: root.begins, ..*root };
        Block {
            range: self.range.clone(),
            roots: self.roots.iter().map(swap).collect(),
            touches: self.touches.iter().rev().cloned().collect(),
            pairs: self.pairs.iter().rev().cloned().collect(),
            before: turn(&self.after),
            after: turn(&self.before),
            backwards: !self.backwards,
            ..*self
        }
    }
}

/// Operands, as roots, whose memory the results of a step may take if no later step needs it.
fn pairs(usage: &Usage, roots: &Roots, step: usize) -> Vec<(ValueId, ValueId)> {
    let view = usage.step(step);
    let mut pairs = Vec::new();
    for (write, result) in view.writes.iter().enumerate() {
        let new = usage.value(*result);
        if new.root != *result
            || roots.begins[result.index()]
            || roots.touches[result.index()].first() != Some(&(step as u32))
        {
            continue;
        }
        let offered = |slot: usize| {
            view.overwrites.iter().any(|pair| pair.write as usize == write && pair.read as usize == slot)
        };
        for pair in view.overwrites.iter().filter(|pair| pair.write as usize == write) {
            let operand = usage.value(view.reads[pair.read as usize]).root;
            let index = operand.index();
            let lies_under = view.reads.iter().enumerate().all(|(slot, read)| {
                let read = usage.value(*read);
                read.root != operand || (offered(slot) && read.offset == 0 && read.layout == new.layout)
            });
            let written = contents(usage, view.writes).any(|id| usage.value(*id).root == operand);
            let kept =
                roots.stays[index] || usage.value(operand).flags.external || roots.arena[index] != view.arena;
            if lies_under && !written && !kept && roots.bytes[index] >= roots.bytes[result.index()] {
                pairs.push((operand, *result));
            }
        }
    }
    pairs
}
