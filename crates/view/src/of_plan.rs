//! Pictures of memory plans.

use std::collections::HashMap;

use orlop_alloc::{Decision, MemoryPlan, PlannedStorage, Usage, ValueId, Verdict};

use crate::picture::{Block, Kind, Picture, Region, RegionKind};

/// Names and kinds that a memory plan does not contain.
pub struct Labels<'a> {
    /// The kind of a value.
    pub kind: &'a dyn Fn(ValueId) -> Kind,
    /// The name of a step.
    pub step: &'a dyn Fn(usize) -> String,
    /// Why a value is on its device, if there was a choice.
    pub device: &'a dyn Fn(ValueId) -> Option<String>,
    /// The name of an arena.
    pub arena: &'a dyn Fn(usize) -> String,
    /// The position of each step on the picture's time axis; empty for the identity.
    pub at: &'a [u64],
}

/// The steps that write and read each root.
struct Accesses {
    written: Vec<Option<usize>>,
    read: Vec<Vec<u64>>,
}

impl Accesses {
    fn of(usage: &Usage, at: &dyn Fn(usize) -> u64) -> Accesses {
        let mut written = vec![None; usage.values().len()];
        let mut read: Vec<Vec<u64>> = vec![Vec::new(); usage.values().len()];
        for (index, step) in usage.steps().enumerate() {
            for value in step.writes {
                written[value.index()].get_or_insert(index);
            }
            for value in step.reads {
                let list = &mut read[usage.value(*value).root.index()];
                if list.last() != Some(&at(index)) {
                    list.push(at(index));
                }
            }
        }
        Accesses { written, read }
    }
}

impl Picture {
    /// The picture of a plan.
    pub fn of_plan(title: &str, plan: &MemoryPlan, labels: &Labels<'_>) -> Picture {
        let strategies: Vec<&str> = plan.arenas.iter().map(|arena| arena.strategy.name()).collect();
        let mut picture = Picture {
            title: title.to_owned(),
            note: format!("planned by {}", distinct(&strategies).join(", ")),
            steps: plan.usage.step_count().max(1) as u64,
            step_names: (0..plan.usage.step_count()).map(labels.step).collect(),
            ..Picture::default()
        };
        picture.add_plan(plan, labels);
        picture
    }

    /// Adds the arenas and storages of a plan. `steps` of the picture must be set.
    pub fn add_plan(&mut self, plan: &MemoryPlan, labels: &Labels<'_>) {
        let first_region = self.regions.len();
        for (index, arena) in plan.arenas.iter().enumerate() {
            self.regions.push(Region {
                device: (labels.arena)(index),
                kind: RegionKind::Arena,
                chunks: arena.chunks.clone(),
                bound: Some(arena.bound),
            });
        }
        let steps = self.steps;
        let at = |step: usize| match labels.at {
            [] => step as u64,
            list => list.get(step).copied().unwrap_or(steps),
        };
        let accesses = Accesses::of(&plan.usage, &at);
        let mut decisions: HashMap<ValueId, Vec<&Decision>> = HashMap::new();
        for decision in &plan.decisions {
            decisions.entry(decision.value).or_default().push(decision);
        }
        let plan_blocks =
            PlanBlocks { plan, labels, first_region, accesses: &accesses, decisions: &decisions, at: &at };
        for storage in plan.storages.iter().filter(|storage| storage.bytes > 0) {
            plan_blocks.push_storage(&mut self.blocks, storage);
        }
        self.stack();
    }
}

struct PlanBlocks<'a> {
    plan: &'a MemoryPlan,
    labels: &'a Labels<'a>,
    first_region: usize,
    accesses: &'a Accesses,
    decisions: &'a HashMap<ValueId, Vec<&'a Decision>>,
    at: &'a dyn Fn(usize) -> u64,
}

impl PlanBlocks<'_> {
    /// Adds a block for each value of a storage, in order.
    fn push_storage(&self, blocks: &mut Vec<Block>, storage: &PlannedStorage) {
        let taken = |value: &ValueId| {
            let list = self.decisions.get(value).map_or(&[][..], Vec::as_slice);
            list.iter().find(|decision| decision.verdict.is_taken())
        };
        let count = self.plan.usage.step_count();
        let begins: Vec<usize> = storage
            .values
            .iter()
            .enumerate()
            .map(|(index, value)| match index {
                0 => storage.live.start,
                _ => taken(value).map_or(storage.live.start, |decision| decision.step),
            })
            .collect();
        let mut before = None;
        for (index, value) in storage.values.iter().enumerate() {
            let begin = begins[index];
            let end = begins.get(index + 1).copied().unwrap_or(storage.live.end);
            // A value that is overwritten in place at its first step has no block.
            if end <= begin {
                continue;
            }
            let end = if end >= count { (self.at)(count).max((self.at)(begin) + 1) } else { (self.at)(end) };
            let root = self.plan.usage.value(*value).root;
            blocks.push(Block {
                name: self.plan.usage.name(*value).to_owned(),
                kind: (self.labels.kind)(*value),
                region: self.first_region + storage.place.arena.index(),
                chunk: storage.place.chunk as usize,
                offset: storage.place.offset,
                bytes: storage.bytes,
                live: (self.at)(begin)..end,
                producer: self.accesses.written[value.index()].map(self.at),
                consumers: self.accesses.read[root.index()].clone(),
                reason: self.reason(*value, index > 0, storage),
                replaces: before,
                above: None,
            });
            before = Some(blocks.len() - 1);
        }
    }

    fn reason(&self, value: ValueId, took_over: bool, storage: &PlannedStorage) -> String {
        let list = self.decisions.get(&value).map_or(&[][..], Vec::as_slice);
        let arena = &self.plan.arenas[storage.place.arena.index()];
        let mut reason = if took_over {
            match list.iter().any(|decision| decision.verdict == Verdict::TakenThroughView) {
                true => "in place of an operand, through a view of it".to_owned(),
                false => "in place of an operand that is no longer needed".to_owned(),
            }
        } else if self.accesses.written[value.index()].is_none() {
            "set before the first step".to_owned()
        } else {
            match list.iter().find_map(|decision| not_in_place(decision.verdict)) {
                Some(why) => format!("not in place: {why}"),
                None => "own memory: no operand may be overwritten".to_owned(),
            }
        };
        if !took_over {
            reason.push_str(&format!("; offset found by {}", arena.strategy.name()));
        }
        if let Some(device) = (self.labels.device)(value) {
            reason.push_str(&format!("; {device}"));
        }
        reason
    }
}

fn not_in_place(verdict: Verdict) -> Option<&'static str> {
    Some(match verdict {
        Verdict::Taken | Verdict::TakenThroughView => return None,
        Verdict::Off => "sharing is off",
        Verdict::NotOwned => "the operand is in external memory",
        Verdict::Output => "the operand is a result",
        Verdict::Layout => "the operand has another layout",
        Verdict::ReadElsewhere => "the operand is read again later",
        Verdict::View => "the operand is a view",
        Verdict::OtherArena => "the operand is in another arena",
        Verdict::Size => "the operand has another size",
    })
}

fn distinct<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for name in names {
        if !seen.contains(name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::{
        ArenaId, ArenaInfo, Flags, OverwritePair, PlanOptions, StepView, Unread, ValueInfo, plan_memory,
    };
    use std::sync::Arc;

    /// x is read by y = f(x), which z = g(y) may overwrite; w = h(x, z).
    fn plan() -> MemoryPlan {
        let arena = ArenaInfo { name: "host".to_owned(), alignment: 64, max_chunk: u64::MAX };
        let mut usage = Usage::new(vec![arena], Unread::Dies);
        for name in ["x", "y", "z", "w"] {
            let root = ValueId::new(usage.values().len());
            let flags = Flags { output: name == "w", ..Flags::default() };
            usage.push_value(name, ValueInfo { bytes: 64, root, offset: 0, layout: 0, flags });
        }
        let [x, y, z, w] = [0, 1, 2, 3].map(ValueId::new);
        usage.leaves.push((x, ArenaId::new(0)));
        let pair = [OverwritePair { write: 0, read: 0 }];
        let steps: [(&[ValueId], ValueId, &[OverwritePair]); 3] =
            [(&[x], y, &[]), (&[y], z, &pair), (&[x, z], w, &[])];
        for (group, (reads, write, overwrites)) in steps.into_iter().enumerate() {
            let (arena, group) = (ArenaId::new(0), group as u32);
            usage.push_step(StepView { arena, group, reads, writes: &[write], overwrites });
        }
        plan_memory(&Arc::new(usage), &PlanOptions::default()).unwrap()
    }

    fn drawn(at: &[u64], steps: u64) -> Picture {
        let plan = plan();
        let labels = Labels {
            kind: &|value| if value.index() == 0 { Kind::Input } else { Kind::Activation },
            step: &|step| format!("s{step}"),
            device: &|value| (value.index() == 3).then(|| "on host: only choice".to_owned()),
            arena: &|_| "host".to_owned(),
            at,
        };
        let mut picture = Picture { steps, ..Picture::default() };
        picture.add_plan(&plan, &labels);
        picture
    }

    fn block<'a>(picture: &'a Picture, name: &str) -> &'a Block {
        picture.blocks.iter().find(|block| block.name == name).unwrap()
    }

    #[test]
    fn values_that_share_a_storage_are_blocks_one_after_the_other() {
        let picture = drawn(&[], 3);
        let (x, y, z, w) =
            (block(&picture, "x"), block(&picture, "y"), block(&picture, "z"), block(&picture, "w"));
        assert_eq!([&x.live, &y.live, &z.live, &w.live], [&(0..3), &(0..1), &(1..3), &(2..3)]);
        assert_eq!((z.offset, z.chunk), (y.offset, y.chunk));
        assert_eq!(z.replaces.map(|index| picture.blocks[index].name.as_str()), Some("y"));
        assert_eq!(z.reason, "in place of an operand that is no longer needed");
        assert_eq!((x.producer, z.producer), (None, Some(1)));
        assert_eq!((&x.consumers[..], &z.consumers[..]), (&[0, 2][..], &[2][..]));
        assert!(w.reason.ends_with("; on host: only choice"), "{}", w.reason);
        assert_eq!(picture.peak(0), (2, 192));
    }

    #[test]
    fn what_lies_on_what_is_found() {
        let picture = drawn(&[], 3);
        for block in &picture.blocks {
            let below = block.above.map(|index| &picture.blocks[index]);
            assert_eq!(below.is_none(), block.offset == 0, "{block:?}");
            if let Some(below) = below {
                assert_eq!(below.offset + below.bytes, block.offset);
                assert!(below.live.start < block.live.end && block.live.start < below.live.end);
            }
        }
    }

    #[test]
    fn steps_stand_where_the_axis_of_all_devices_has_them() {
        let picture = drawn(&[2, 5, 6], 10);
        assert_eq!(block(&picture, "y").live, 2..5);
        assert_eq!(block(&picture, "z").live, 5..10);
        assert_eq!(block(&picture, "x").consumers, [2, 6]);
    }
}
