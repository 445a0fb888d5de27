//! Random usages as foreign engines give them: view nodes, markers, flags, odd lists.

use orlop_alloc::{ArenaId, Flags, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo};
use orlop_testkit::Choices;

use crate::support::arena;

struct Parts {
    usage: Usage,
    /// Values that steps may read.
    there: Vec<ValueId>,
    group: u32,
}

impl Parts {
    fn arena(&self, choices: &mut Choices) -> ArenaId {
        ArenaId::new(choices.below(self.usage.arenas.len()))
    }

    fn root(&mut self, choices: &mut Choices) -> ValueId {
        let flags = Flags {
            input: choices.once_in(9),
            output: choices.once_in(9),
            external: choices.once_in(9),
            marker: false,
        };
        let root = ValueId::new(self.usage.values().len());
        let (bytes, layout) = (choices.pick(&[32, 16, 40, 64, 100, 0]), choices.below(3) as u32);
        self.usage
            .push_value(format!("v{}", root.index()), ValueInfo { bytes, root, offset: 0, layout, flags })
    }

    fn view(&mut self, choices: &mut Choices, of: ValueId, marker: bool) -> ValueId {
        let root = self.usage.value(of).root;
        let whole = self.usage.value(root).bytes;
        let offset = if choices.once_in(3) { choices.below(whole as usize + 1) as u64 } else { 0 };
        let bytes = if choices.once_in(3) { (whole - offset) / 2 } else { whole - offset };
        let flags = Flags { marker, ..Flags::default() };
        let layout = choices.below(3) as u32;
        let name = format!("v{}", self.usage.values().len());
        self.usage.push_value(name, ValueInfo { bytes, root, offset, layout, flags })
    }

    fn leaf(&mut self, choices: &mut Choices) {
        let id = self.root(choices);
        let at = self.arena(choices);
        self.usage.leaves.push((id, at));
        if choices.once_in(5) {
            self.usage.leaves.push((id, at));
        }
        self.there.push(id);
        if choices.once_in(4) {
            let view = self.view(choices, id, false);
            self.usage.leaves.push((view, at));
            self.there.push(view);
        }
    }

    fn step(&mut self, choices: &mut Choices) {
        let mut reads: Vec<ValueId> = Vec::new();
        if !self.there.is_empty() {
            for _ in 0..choices.below(4) {
                reads.push(choices.pick(&self.there));
            }
        }
        let mut writes = Vec::new();
        match (choices.below(8), reads.first().copied()) {
            (0, Some(first)) => writes.push(self.view(choices, first, false)),
            (1, Some(first)) => {
                reads.truncate(1);
                writes.push(self.view(choices, first, true));
            }
            // A leaf or an earlier result is written again, or written as a node of its own.
            (2, Some(_)) => writes.push(choices.pick(&self.there)),
            // A step that writes nothing.
            (3, _) => {}
            // Several results.
            (4, _) => writes.extend([self.root(choices), self.root(choices)]),
            // A cast lists its own result as a source.
            (5, _) => {
                let own = self.root(choices);
                reads.push(own);
                writes.push(own);
            }
            _ => writes.push(self.root(choices)),
        }
        let mut overwrites = Vec::new();
        for write in 0..writes.len() as u32 {
            for read in 0..reads.len() as u32 {
                if !choices.once_in(4) {
                    overwrites.push(OverwritePair { write, read });
                }
            }
        }
        if !choices.once_in(3) {
            self.group += 1;
        }
        let arena = self.arena(choices);
        let (group, there) = (self.group, writes.clone());
        self.usage.push_step(StepView {
            arena,
            group,
            reads: &reads,
            writes: &writes,
            overwrites: &overwrites,
        });
        self.there.extend(there);
    }
}

pub(crate) fn random_usage(choices: &mut Choices) -> Usage {
    let arenas = 1 + choices.below(3);
    random_usage_of(choices, arenas)
}

/// A usage of `count` arenas.
pub(crate) fn random_usage_of(choices: &mut Choices, count: usize) -> Usage {
    let mut arenas = Vec::new();
    for index in 0..count {
        let max = choices.pick(&[u64::MAX, 64, 100, 200]);
        arenas.push(arena(&format!("arena{index}"), choices.pick(&[8, 1, 16, 32, 64]), max));
    }
    let unread = choices.pick(&[Unread::LivesOn, Unread::Dies]);
    let mut parts = Parts { usage: Usage::new(arenas, unread), there: vec![], group: 0 };
    for _ in 0..choices.below(4) {
        parts.leaf(choices);
    }
    while !choices.is_empty() {
        if choices.once_in(8) {
            parts.leaf(choices);
        } else {
            parts.step(choices);
        }
    }
    parts.usage
}
