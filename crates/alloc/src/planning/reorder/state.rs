//! The memory in use between two steps of a block, for a set of steps that are done.

use std::collections::BTreeSet;

use super::block::{Block, Root};

/// What a step needs while it runs and leaves behind, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) during: u64,
    pub(super) after: u64,
}

/// How far an order of a block has come. Steps are done and undone; which memory is in use follows from how many
/// of its touches are still to come, so it depends on what was done and not on the order. Sums beyond 64 bits stay
/// there: no plan holds them, and which order is best matters no more.
pub(super) struct State<'a> {
    block: &'a Block,
    /// Touches to come of each root.
    to_come: Vec<u32>,
    /// Predecessors to come of each step.
    waits_for: Vec<u32>,
    /// Steps that could be next, by number.
    pub(super) ready: BTreeSet<u32>,
    /// Steps done, in order.
    pub(super) done: Vec<u32>,
    /// Bytes in use.
    pub(super) live: u64,
    /// Equal for equal sets of steps done, and hardly ever otherwise.
    pub(super) mark: u64,
}

impl<'a> State<'a> {
    pub(super) fn new(block: &'a Block) -> State<'a> {
        let waits_for: Vec<u32> = block.before.iter().map(|before| before.len() as u32).collect();
        let ready = waits_for.iter().zip(0..).filter(|(waits, _)| **waits == 0).map(|(_, step)| step);
        let begins = block.roots.iter().filter(|root| root.begins);
        State {
            block,
            to_come: block.roots.iter().map(|root| root.touches).collect(),
            ready: ready.collect(),
            waits_for,
            done: Vec::with_capacity(block.len()),
            live: begins.fold(block.base, |sum, root| sum.saturating_add(root.bytes)),
            mark: 0,
        }
    }

    fn is_alive(root: &Root, to_come: u32) -> bool {
        (root.begins || to_come < root.touches) && (root.stays || to_come > 0)
    }

    /// What a step that is ready would need.
    pub(super) fn cost(&self, step: u32) -> Cost {
        let block = self.block;
        let (mut during, mut freed) = (self.live, 0u64);
        for number in &block.touches[step as usize] {
            let (root, to_come) = (&block.roots[*number as usize], self.to_come[*number as usize]);
            if !Self::is_alive(root, to_come) {
                during = during.saturating_add(root.bytes);
            }
            if to_come == 1 && !root.stays {
                freed = freed.saturating_add(root.bytes);
            }
        }
        let after = during.saturating_sub(freed);
        // Each result takes the memory of one operand at most, and each operand's is taken once.
        let pairs = &block.pairs[step as usize];
        for (at, pair) in pairs.iter().enumerate() {
            let shares = |pair: &super::block::Pair| self.hands_over(pair.operand);
            let free = |earlier: &super::block::Pair| {
                !shares(earlier) || (earlier.result != pair.result && earlier.operand != pair.operand)
            };
            if shares(pair) && pairs[..at].iter().all(free) {
                during = during.saturating_sub(block.roots[pair.result as usize].bytes);
            }
        }
        Cost { during, after }
    }

    /// Whether no step on the far side of the one that is asked for touches an operand.
    fn hands_over(&self, operand: u32) -> bool {
        let root = &self.block.roots[operand as usize];
        let to_come = self.to_come[operand as usize];
        if self.block.backwards {
            !root.begins && to_come == root.touches
        } else {
            !root.stays && to_come == 1
        }
    }

    /// Does a step that is ready.
    pub(super) fn advance(&mut self, step: u32) {
        self.live = self.cost(step).after;
        for number in &self.block.touches[step as usize] {
            self.to_come[*number as usize] -= 1;
        }
        self.ready.remove(&step);
        for later in &self.block.after[step as usize] {
            self.waits_for[*later as usize] -= 1;
            if self.waits_for[*later as usize] == 0 {
                self.ready.insert(*later);
            }
        }
        self.done.push(step);
        self.mark ^= scrambled(u64::from(step));
    }

    /// Undoes steps until `length` are left.
    pub(super) fn retreat(&mut self, length: usize) {
        while self.done.len() > length {
            let Some(step) = self.done.pop() else { return };
            self.mark ^= scrambled(u64::from(step));
            for later in &self.block.after[step as usize] {
                if self.waits_for[*later as usize] == 0 {
                    self.ready.remove(later);
                }
                self.waits_for[*later as usize] += 1;
            }
            self.ready.insert(step);
            for number in &self.block.touches[step as usize] {
                let root = &self.block.roots[*number as usize];
                let to_come = &mut self.to_come[*number as usize];
                let alive = Self::is_alive(root, *to_come);
                *to_come += 1;
                match (alive, Self::is_alive(root, *to_come)) {
                    (true, false) => self.live = self.live.saturating_sub(root.bytes),
                    (false, true) => self.live = self.live.saturating_add(root.bytes),
                    _ => {}
                }
            }
        }
    }

    /// Most bytes in use over an order of all steps.
    pub(super) fn peak_of(mut self, order: impl IntoIterator<Item = u32>) -> u64 {
        let mut peak = self.live;
        for step in order {
            peak = peak.max(self.cost(step).during);
            self.advance(step);
        }
        peak
    }
}

/// A number that looks like no other's.
pub(super) fn scrambled(number: u64) -> u64 {
    let mut bits = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
