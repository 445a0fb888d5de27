//! Usages under construction.

use std::collections::HashMap;

use orlop_backend::{BufferType, Overwrite, StepValue, Steps};
use orlop_graph::{Graph, TensorId};

use super::steps::check_steps;
use crate::{
    ArenaId, ArenaInfo, Error, Flags, Layouts, OverwritePair, StepView, Unread, Usage, ValueId, ValueInfo,
};

/// Usages of one graph under construction: one for each memory that is planned by itself. Values are added first, roots
/// before their views; then steps, in the order of execution.
#[derive(Debug)]
pub struct UsageBuilder<'a> {
    graph: &'a Graph,
    usages: Vec<Usage>,
    layouts: Layouts,
}

/// Where a tensor's root lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Which of the usages.
    pub usage: usize,
    /// Which of its arenas.
    pub arena: ArenaId,
    /// Bytes that the root takes there, before rounding up.
    pub bytes: u64,
    /// The root's flags.
    pub flags: Flags,
    /// Whether the root is in memory before the first step.
    pub leaf: bool,
}

/// Values that are read from outside while steps run, and must keep their memory meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// Read until the first step begins: by other devices.
    pub to_first: &'a [ValueId],
    /// Read when the last step has ended: by an observer. In another order of steps, the one that writes such a value
    /// may come earlier.
    pub to_last: &'a [ValueId],
}

impl ArenaInfo {
    /// An arena of a buffer type.
    pub fn of(buffer_type: &dyn BufferType) -> ArenaInfo {
        ArenaInfo {
            name: buffer_type.name().to_owned(),
            alignment: buffer_type.alignment(),
            max_chunk: buffer_type.max_bytes(),
        }
    }
}

impl<'a> UsageBuilder<'a> {
    /// Usages with these arenas, without values and steps yet.
    pub fn new(graph: &'a Graph, arenas: impl IntoIterator<Item = Vec<ArenaInfo>>) -> UsageBuilder<'a> {
        let usages = arenas.into_iter().map(|arenas| Usage::new(arenas, Unread::Dies)).collect();
        UsageBuilder { graph, usages, layouts: Layouts::default() }
    }

    /// Makes room for all of the graph's tensors in one of the usages.
    pub(crate) fn reserve_tensors(&mut self, usage: usize) {
        self.usages[usage].reserve(self.graph.tensors().len(), 0);
    }

    /// The usages.
    pub fn finish(self) -> Vec<Usage> {
        self.usages
    }

    /// Adds a tensor: a root at home, or a view of `root`, which was added before.
    pub fn add_tensor(&mut self, id: TensorId, home: &Home, root: Option<ValueId>) -> ValueId {
        let tensor = self.graph.tensor(id);
        let usage = &mut self.usages[home.usage];
        let own = ValueId::new(usage.values().len());
        let (bytes, flags) = match root {
            None => (home.bytes, home.flags),
            Some(_) => (tensor.desc.bytes(), Flags { external: home.flags.external, ..Flags::default() }),
        };
        let (layout, offset) = (self.layouts.key(&tensor.desc), tensor.storage.offset);
        let info = ValueInfo { bytes, root: root.unwrap_or(own), offset, layout, flags };
        usage.push_value(tensor.name.clone(), info);
        if root.is_none() && home.leaf {
            usage.leaves.push((own, home.arena));
        }
        own
    }

    /// Adds another root like one that was added, in memory of its own.
    pub fn add_sibling(&mut self, home: &Home, of: ValueId) -> ValueId {
        let usage = &mut self.usages[home.usage];
        let own = ValueId::new(usage.values().len());
        usage.push_value(usage.name(of).to_owned(), ValueInfo { root: own, ..*usage.value(of) });
        if home.leaf {
            usage.leaves.push((own, home.arena));
        }
        own
    }

    /// Adds memory that is not a tensor of the graph: a copy, a temporary. Its layout is its own.
    pub fn add_memory(&mut self, usage: usize, name: &str, bytes: u64) -> ValueId {
        let usage = &mut self.usages[usage];
        let root = ValueId::new(usage.values().len());
        let layout = u32::MAX - root.index() as u32;
        usage.push_value(name, ValueInfo { bytes, root, offset: 0, layout, flags: Flags::default() })
    }

    /// Adds a step that only writes one value: a copy from elsewhere. `held` values keep their memory until then.
    pub fn add_copy(&mut self, usage: usize, arena: ArenaId, writes: ValueId, held: &[ValueId]) {
        let usage = &mut self.usages[usage];
        let group = usage.step_count() as u32;
        usage.push_step(StepView { arena, group, reads: held, writes: &[writes], overwrites: &[] });
    }

    /// Adds the steps that a device made of nodes of the graph, and memory for their temporaries; returns the first of
    /// these, which follow each other. `at` says the arena and the group of each step; none for one arena and a group
    /// for each step. `tensor` says which value a tensor is, none for what lies elsewhere.
    ///
    /// # Errors
    /// [`Error::BadLowering`] if the steps refer to something that is not there.
    pub fn add_steps(
        &mut self,
        usage: usize,
        steps: &Steps,
        at: Option<&[(ArenaId, u32)]>,
        held: Held<'_>,
        tensor: impl Fn(TensorId) -> Option<ValueId>,
    ) -> Result<ValueId, Error> {
        check_steps(self.graph, steps)?;
        let first = self.usages[usage].values().len();
        for temporary in &steps.temporaries {
            self.add_memory(usage, &temporary.name, temporary.bytes);
        }
        let usage = &mut self.usages[usage];
        usage.reserve(0, steps.steps.len());
        let before = usage.step_count();
        let id = |value: StepValue| match value {
            StepValue::Tensor(id) => tensor(id),
            StepValue::Temporary(number) => Some(ValueId::new(first + number)),
        };
        let lives = TemporaryLives::of(steps);
        let (mut reads, mut writes) = (Mapped::default(), Mapped::default());
        let mut overwrites: Vec<OverwritePair> = Vec::new();
        for (index, step) in steps.steps.iter().enumerate() {
            let (arena, group) = match at {
                Some(at) => at[index],
                None => (ArenaId::new(0), (before + index) as u32),
            };
            reads.fill(&step.reads, lives.ends(index), id);
            writes.fill(&step.writes, lives.begins(index), id);
            if index == 0 {
                reads.ids.extend_from_slice(held.to_first);
            }
            if index + 1 == steps.steps.len() {
                // What the last step writes stays to its end without being read.
                let written = |root: ValueId| writes.ids.iter().any(|id| usage.value(*id).root == root);
                reads.ids.extend(held.to_last.iter().filter(|id| !written(usage.value(**id).root)));
            }
            let pair = |overwrite: &Overwrite| {
                Some(OverwritePair { write: writes.at[overwrite.write]?, read: reads.at[overwrite.read]? })
            };
            overwrites.clear();
            overwrites.extend(step.may_overwrite.iter().filter_map(pair));
            let (reads, writes, overwrites) = (&reads.ids, &writes.ids, &overwrites);
            usage.push_step(StepView { arena, group, reads, writes, overwrites });
        }
        Ok(ValueId::new(first))
    }
}

/// The temporaries that begin and end with each step: each is there from the first step that uses it to the last, whether
/// they read or write it.
struct TemporaryLives {
    begins: HashMap<usize, Vec<StepValue>>,
    ends: HashMap<usize, Vec<StepValue>>,
}

impl TemporaryLives {
    fn of(steps: &Steps) -> TemporaryLives {
        let mut lives = TemporaryLives { begins: HashMap::new(), ends: HashMap::new() };
        for (number, temporary) in steps.temporaries.iter().enumerate() {
            lives.begins.entry(temporary.first).or_default().push(StepValue::Temporary(number));
            lives.ends.entry(temporary.last).or_default().push(StepValue::Temporary(number));
        }
        lives
    }

    fn begins(&self, step: usize) -> &[StepValue] {
        self.begins.get(&step).map_or(&[], Vec::as_slice)
    }

    fn ends(&self, step: usize) -> &[StepValue] {
        self.ends.get(&step).map_or(&[], Vec::as_slice)
    }
}

/// A step's values that lie here, and where each of its list went.
#[derive(Default)]
struct Mapped {
    ids: Vec<ValueId>,
    at: Vec<Option<u32>>,
}

impl Mapped {
    /// All of `values`, and those of `more` that are not among them.
    fn fill(&mut self, values: &[StepValue], more: &[StepValue], id: impl Fn(StepValue) -> Option<ValueId>) {
        self.ids.clear();
        self.at.clear();
        for value in values {
            let id = id(*value);
            self.at.push(id.map(|_| self.ids.len() as u32));
            self.ids.extend(id);
        }
        self.ids.extend(more.iter().filter(|value| !values.contains(value)).filter_map(|value| id(*value)));
    }
}
