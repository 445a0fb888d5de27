//! Who uses which memory when, in flat arrays: the input of planning.

use std::fmt;
use std::ops::Range;

use orlop_graph::{Access, AccessKind, Edge, dependencies};

use crate::Error;

/// Who uses which memory when: the only thing an allocator needs to know.
///
/// Values are tensors and temporaries; a view names its root, which is never a view. Steps run in one linear
/// order. Graphs and lowered steps become a usage, and so does whatever another engine planned. Everything is
/// in flat arrays, so two usages compare quickly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// Where memory comes from.
    pub arenas: Vec<ArenaInfo>,
    /// Values that lie in memory before the first step, in the order in which they are placed, and where.
    pub leaves: Vec<(ValueId, ArenaId)>,
    /// What becomes of results and leaves that no step reads.
    pub unread: Unread,
    values: Vec<ValueInfo>,
    names: Vec<String>,
    steps: Vec<StepInfo>,
    reads: Vec<ValueId>,
    writes: Vec<ValueId>,
    overwrites: Vec<OverwritePair>,
}

/// A value of one usage; prints as `v17`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ValueId(u32);

/// An arena of one usage; prints as `a0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaId(u32);

impl ValueId {
    /// The value at a position; [`Usage`] checks it when it is used.
    pub fn new(index: usize) -> ValueId {
        ValueId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Index for side tables with one entry a value.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ArenaId {
    /// The arena at a position; [`Usage`] checks it when it is used.
    pub fn new(index: usize) -> ArenaId {
        ArenaId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// Index for side tables with one entry an arena.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for ValueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Debug for ArenaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a{}", self.0)
    }
}

/// One kind of memory that values are placed in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ArenaInfo {
    /// A name for people.
    pub name: String,
    /// A power of two that sizes are rounded up to and places are multiples of.
    pub alignment: u64,
    /// Most bytes of one chunk; `u64::MAX` for no limit.
    pub max_chunk: u64,
}

/// What an allocator knows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ValueInfo {
    /// Bytes it needs, before rounding up; for a view, bytes of the root that it spans.
    pub bytes: u64,
    /// The value whose memory it is; itself unless it is a view.
    pub root: ValueId,
    /// Bytes from the root's beginning.
    pub offset: u64,
    /// Values of one layout (element type, extents, strides) have equal keys.
    pub layout: u32,
    /// What else matters.
    pub flags: Flags,
}

/// What else matters of a value. Flags count on roots only: to keep a view's contents, flag its
/// root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Flags {
    /// Set from outside: in memory from the beginning.
    pub input: bool,
    /// Read from outside: in memory to the end, and never overwritten in place.
    pub output: bool,
    /// In the caller's memory: never placed.
    pub external: bool,
    /// Written by a step that only keeps its operands alive: does not count as a view of its root.
    pub marker: bool,
}

/// What becomes of leaves and results that no step reads, and of roots of such views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Unread {
    /// They are not needed: their memory is free again after the step that made them.
    #[default]
    Dies,
    /// They may be read from outside: they live to the end.
    LivesOn,
}

/// A step's arena, its group, and its parts of the flat lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct StepInfo {
    arena: ArenaId,
    group: u32,
    reads_end: u32,
    writes_end: u32,
    overwrites_end: u32,
}

impl StepInfo {
    /// The ends of its parts: reads, writes, overwrites.
    fn ends(&self) -> [usize; 3] {
        [self.reads_end, self.writes_end, self.overwrites_end].map(|end| end as usize)
    }
}

/// A write of a step that may take the place of one of its reads, as positions in the step's own lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OverwritePair {
    /// The write.
    pub write: u32,
    /// The read.
    pub read: u32,
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// Where its writes are placed.
    pub arena: ArenaId,
    /// Memory read for the last time in a group is given back at the group's end. Steps of one group are
    /// neighbours.
    pub group: u32,
    /// What it reads, in slot order, with repeats.
    pub reads: &'a [ValueId],
    /// What it writes.
    pub writes: &'a [ValueId],
    /// Which write may take the place of which read.
    pub overwrites: &'a [OverwritePair],
}

impl Usage {
    /// No values and no steps yet.
    pub fn new(arenas: Vec<ArenaInfo>, unread: Unread) -> Usage {
        Usage { arenas, unread, ..Usage::default() }
    }

    /// Makes room for values and steps that are to be added.
    pub fn reserve(&mut self, values: usize, steps: usize) {
        self.values.reserve(values);
        self.names.reserve(values);
        self.steps.reserve(steps);
        self.writes.reserve(steps);
        // Most ops have two operands.
        self.reads.reserve(2 * steps);
        self.overwrites.reserve(2 * steps);
    }

    /// Adds a value; its root must be itself or one added before or later, checked by [`Usage::validate`].
    pub fn push_value(&mut self, name: impl Into<String>, info: ValueInfo) -> ValueId {
        self.values.push(info);
        self.names.push(name.into());
        ValueId::new(self.values.len() - 1)
    }

    /// Adds a step after those there are.
    pub fn push_step(&mut self, step: StepView<'_>) {
        self.reads.extend_from_slice(step.reads);
        self.writes.extend_from_slice(step.writes);
        self.overwrites.extend_from_slice(step.overwrites);
        self.steps.push(StepInfo {
            arena: step.arena,
            group: step.group,
            reads_end: self.reads.len() as u32,
            writes_end: self.writes.len() as u32,
            overwrites_end: self.overwrites.len() as u32,
        });
    }

    /// Whether a value is read from outside.
    pub(crate) fn set_output(&mut self, id: ValueId, output: bool) {
        self.values[id.index()].flags.output = output;
    }

    /// The same usage with its steps in another order: at each position, the step of that number. Groups are of
    /// positions, so steps of one group should stay there.
    pub fn in_order(&self, order: &[usize]) -> Usage {
        let mut usage = Usage {
            arenas: self.arenas.clone(),
            leaves: self.leaves.clone(),
            unread: self.unread,
            values: self.values.clone(),
            names: self.names.clone(),
            ..Usage::default()
        };
        for (position, index) in order.iter().enumerate() {
            usage.push_step(StepView { group: self.steps[position].group, ..self.step(*index) });
        }
        usage
    }

    /// All values.
    pub fn values(&self) -> &[ValueInfo] {
        &self.values
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &ValueInfo {
        &self.values[id.index()]
    }

    /// A value's name.
    pub fn name(&self, id: ValueId) -> &str {
        &self.names[id.index()]
    }

    /// What all steps read, one after the other.
    pub(crate) fn reads(&self) -> &[ValueId] {
        &self.reads
    }

    /// What all steps write, one after the other.
    pub(crate) fn writes(&self) -> &[ValueId] {
        &self.writes
    }

    /// Where the writes of a step are placed.
    pub(crate) fn arena_of_step(&self, index: usize) -> ArenaId {
        self.steps[index].arena
    }

    /// How many steps there are.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// A step.
    pub fn step(&self, index: usize) -> StepView<'_> {
        let step = &self.steps[index];
        let [reads, writes, overwrites] = match index {
            0 => [0; 3],
            _ => self.steps[index - 1].ends(),
        };
        StepView {
            arena: step.arena,
            group: step.group,
            reads: &self.reads[reads..step.reads_end as usize],
            writes: &self.writes[writes..step.writes_end as usize],
            overwrites: &self.overwrites[overwrites..step.overwrites_end as usize],
        }
    }

    /// All steps.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = StepView<'_>> {
        (0..self.steps.len()).map(|index| self.step(index))
    }

    /// The groups, as ranges of steps.
    pub fn groups(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at;
            let group = self.steps.get(start)?.group;
            while self.steps.get(at).is_some_and(|step| step.group == group) {
                at += 1;
            }
            Some(start..at)
        })
    }

    /// Bytes that a value takes in an arena, rounded up to its alignment; `u64::MAX` if 64 bits do not hold
    /// that, which no planner accepts.
    pub fn rounded_bytes(&self, id: ValueId, arena: ArenaId) -> u64 {
        let alignment = self.arenas[arena.index()].alignment;
        self.value(id).bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
    }

    /// Only a usage that was read from a file can have lists that do not belong together.
    fn check_lists(&self) -> Result<(), Error> {
        let lengths = [self.reads.len(), self.writes.len(), self.overwrites.len()];
        let mut ends = [0; 3];
        for (step, info) in self.steps.iter().enumerate() {
            let next = info.ends();
            if (0..3).any(|list| next[list] < ends[list] || next[list] > lengths[list]) {
                return Err(Error::BadLists { what: format!("step {step}") });
            }
            ends = next;
        }
        if ends != lengths {
            return Err(Error::BadLists { what: "the last step".to_owned() });
        }
        if self.names.len() != self.values.len() {
            return Err(Error::BadLists { what: "the names".to_owned() });
        }
        Ok(())
    }

    /// Which steps must come before which, from the bytes that they touch; roots are numbered as values.
    pub fn dependencies(&self) -> Vec<Edge> {
        let mut accesses = Vec::new();
        for (index, step) in self.steps().enumerate() {
            let touch = |id: &ValueId, kind| {
                let value = self.value(*id);
                let range = value.offset..value.offset.saturating_add(value.bytes);
                Access { step: index as u32, root: value.root.0, range, kind }
            };
            accesses.extend(step.reads.iter().map(|id| touch(id, AccessKind::Read)));
            accesses.extend(step.writes.iter().map(|id| touch(id, AccessKind::Write)));
        }
        dependencies(&accesses)
    }

    /// Checks that every id is one of this usage's, roots are no views, views lie inside them, and alignments
    /// are powers of two.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn validate(&self) -> Result<(), Error> {
        self.check_lists()?;
        for arena in &self.arenas {
            if !arena.alignment.is_power_of_two() {
                return Err(Error::BadAlignment { arena: arena.name.clone(), alignment: arena.alignment });
            }
        }
        let known = |id: ValueId, user: &dyn Fn() -> String| {
            if id.index() < self.values.len() {
                Ok(())
            } else {
                Err(Error::UnknownValue { value: id.index(), values: self.values.len(), user: user() })
            }
        };
        let arena = |id: ArenaId, user: &dyn Fn() -> String| {
            if id.index() < self.arenas.len() {
                Ok(())
            } else {
                Err(Error::BadBufferId { id: id.index(), buffers: self.arenas.len(), user: user() })
            }
        };
        for (index, value) in self.values.iter().enumerate() {
            known(value.root, &|| format!("`{}`", self.names[index]))?;
            let root = self.value(value.root);
            if root.root != value.root {
                let (view, of) = (self.names[index].clone(), self.name(value.root).to_owned());
                return Err(Error::ViewOfView { view, of });
            }
            let end = value.offset.checked_add(value.bytes);
            // A root that does not begin at its own beginning fails this, too.
            if end.is_none_or(|end| end > root.bytes) {
                return Err(Error::ViewOutside {
                    view: self.names[index].clone(),
                    end: end.unwrap_or(u64::MAX),
                    root: self.name(value.root).to_owned(),
                    bytes: root.bytes,
                });
            }
        }
        for (id, at) in &self.leaves {
            known(*id, &|| "the list of leaves".to_owned())?;
            arena(*at, &|| format!("leaf `{}`", self.name(*id)))?;
        }
        let mut written = vec![false; self.values.len()];
        for (id, _) in &self.leaves {
            written[self.value(*id).root.index()] = true;
        }
        for (index, step) in self.steps().enumerate() {
            let user = || format!("step {index}");
            arena(step.arena, &user)?;
            for list in [step.reads, step.writes] {
                for id in list {
                    known(*id, &user)?;
                }
            }
            // Graphs of other engines may read a value before any step writes it.
            if self.unread == Unread::Dies {
                step.writes.iter().for_each(|id| written[self.value(*id).root.index()] = true);
                let unwritten = |id: &&ValueId| {
                    let root = self.value(**id).root;
                    let flags = self.value(root).flags;
                    !written[root.index()] && !flags.external && !flags.input
                };
                if let Some(id) = step.reads.iter().find(unwritten) {
                    return Err(Error::NeverWritten { value: self.name(*id).to_owned(), step: index });
                }
            }
            for pair in step.overwrites {
                if pair.write as usize >= step.writes.len() || pair.read as usize >= step.reads.len() {
                    return Err(Error::BadOverwrite { step: index });
                }
            }
        }
        Ok(())
    }
}
