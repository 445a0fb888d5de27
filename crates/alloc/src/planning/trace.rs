//! One walk over a usage: lifetimes, in-place decisions with their reasons, and the sequence of requests.

use std::ops::Range;

use crate::{ArenaId, StepView, Unread, Usage, ValueId};

/// How freely results take the place of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Sharing {
    /// Never.
    None,
    /// The first operand that is a root, has the same layout, and is read nowhere else.
    Direct,
    /// Also through views at offset 0, and where all last reads are this step's; only memory of the same size.
    Tight,
    /// As [`Sharing::Tight`], also memory that is larger than needed.
    Full,
}

/// How a usage is walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) sharing: Sharing,
    /// Results may move into another arena with their operand, as ggml lets them.
    pub(crate) across_arenas: bool,
}

/// Memory of one piece: the values that take it over from each other, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) arena: ArenaId,
    /// Bytes of its first value, rounded up.
    pub(crate) bytes: u64,
    /// Steps at which it is in use.
    pub(crate) live: Range<usize>,
    pub(crate) values: Vec<ValueId>,
}

/// What happens to memory, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceEvent {
    Allocate {
        piece: usize,
        value: ValueId,
        step: usize,
    },
    /// A value takes over a piece and needs less of it.
    Shrink {
        piece: usize,
        from: u64,
        to: u64,
    },
    Release {
        piece: usize,
        step: usize,
    },
}

/// Whether a write took the place of a read, and if not, why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Decision {
    /// The step.
    pub step: usize,
    /// What is written.
    pub value: ValueId,
    /// The operand whose place was looked at.
    pub operand: ValueId,
    /// What came of it.
    pub verdict: Verdict,
}

/// See [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Verdict {
    /// It took it.
    Taken,
    /// It took the root's that the operand is a view of.
    TakenThroughView,
    /// Sharing is off.
    Off,
    /// The operand lies in external memory, or another result took its memory.
    NotOwned,
    /// The operand is an output.
    Output,
    /// Element type, extents or strides differ.
    Layout,
    /// The operand is used elsewhere or later.
    ReadElsewhere,
    /// The operand is a view, and not at its root's beginning, or views are not looked through.
    View,
    /// The operand lies in another arena.
    OtherArena,
    /// The operand's memory has another size.
    Size,
}

impl Verdict {
    /// Whether the operand's place was taken.
    pub fn is_taken(self) -> bool {
        matches!(self, Verdict::Taken | Verdict::TakenThroughView)
    }
}

/// A usage walked once: who needs memory from when to when, and who hands it on. Online allocation replays the
/// events; offline planning takes the pieces. Both see the same lifetimes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) events: Vec<TraceEvent>,
    pub(crate) decisions: Vec<Decision>,
    /// The last piece that each value lay in.
    pub(crate) homes: Vec<Option<usize>>,
}

impl Trace {
    fn with_room_for(usage: &Usage) -> Trace {
        let is_placed = |id: usize| {
            let value = usage.values()[id];
            value.root.index() == id && !value.flags.external
        };
        let placed = (0..usage.values().len()).filter(|id| is_placed(*id)).count();
        Trace {
            pieces: Vec::with_capacity(placed),
            events: Vec::with_capacity(2 * placed),
            decisions: Vec::new(),
            homes: vec![None; usage.values().len()],
        }
    }
}

/// Walks a valid usage.
pub(crate) fn walk(usage: &Usage, rules: Rules) -> Trace {
    let touches = Touches::of(usage);
    let mut walk = Walk {
        usage,
        rules,
        pending: touches.reads,
        pending_writes: touches.writes,
        read: touches.read,
        owned: vec![None; usage.values().len()],
        sizes: vec![0; usage.values().len()],
        trace: Trace::with_room_for(usage),
    };
    for (value, arena) in &usage.leaves {
        if walk.needs_memory(*value) {
            walk.allocate(*value, *arena, 0);
        }
    }
    for step in usage.steps() {
        for list in [step.writes, step.reads] {
            for value in list {
                let root = usage.value(*value).root;
                if usage.value(root).flags.input && walk.needs_memory(root) {
                    walk.allocate(root, step.arena, 0);
                }
            }
        }
    }
    let mut first = true;
    for group in usage.groups() {
        let last = group.end - 1;
        for index in group.clone() {
            walk.place_step(index);
        }
        if std::mem::take(&mut first) {
            walk.release_unread_leaves(last);
        }
        for index in group {
            walk.release_step(index, last);
        }
    }
    walk.trace
}

struct Walk<'a> {
    usage: &'a Usage,
    rules: Rules,
    /// Reads to come of each root, through itself and through views.
    pending: Vec<u32>,
    /// Writes to come of each root, through itself and through views: it lives to the last of them, too.
    pending_writes: Vec<u32>,
    /// Whether any step reads a root, through itself or through views.
    read: Vec<bool>,
    /// The piece that each root has now.
    owned: Vec<Option<usize>>,
    /// Bytes of its piece that each root has now.
    sizes: Vec<u64>,
    trace: Trace,
}

/// How often steps touch each root, through itself and through views.
struct Touches {
    /// A view that is written, and that no step reads, counts as a read that never comes where such values
    /// live on.
    reads: Vec<u32>,
    writes: Vec<u32>,
    read: Vec<bool>,
}

impl Touches {
    fn of(usage: &Usage) -> Touches {
        let values = usage.values().len();
        let mut touches =
            Touches { reads: vec![0; values], writes: vec![0; values], read: vec![false; values] };
        let mut read_itself = vec![false; values];
        for value in usage.reads() {
            let root = usage.value(*value).root.index();
            touches.reads[root] += 1;
            touches.read[root] = true;
            read_itself[value.index()] = true;
        }
        for id in usage.writes().iter().filter(|id| writes_bytes(usage, **id)) {
            let root = usage.value(*id).root;
            touches.writes[root.index()] += 1;
            if usage.unread == Unread::LivesOn && root != *id && !read_itself[id.index()] {
                touches.reads[root.index()] += 1;
            }
        }
        touches
    }
}

/// Whether a written value has contents: a marker only stands for its operands.
fn writes_bytes(usage: &Usage, id: ValueId) -> bool {
    let value = usage.value(id);
    value.root == id || !value.flags.marker
}

impl Walk<'_> {
    fn place_step(&mut self, index: usize) {
        let step = self.usage.step(index);
        for value in step.reads {
            let root = self.usage.value(*value).root;
            if self.needs_memory(root) {
                self.allocate(root, step.arena, index);
            }
        }
        for (write, value) in step.writes.iter().enumerate() {
            let root = self.usage.value(*value).root;
            if !writes_bytes(self.usage, *value) {
                continue;
            }
            if self.needs_memory(root) && (root != *value || !self.take_over(index, &step, write as u32)) {
                self.allocate(root, step.arena, index);
            }
        }
        for value in step.writes.iter().filter(|id| writes_bytes(self.usage, **id)) {
            self.pending_writes[self.usage.value(*value).root.index()] -= 1;
        }
    }

    fn release_step(&mut self, index: usize, last: usize) {
        let step = self.usage.step(index);
        for value in step.reads {
            let root = self.usage.value(*value).root;
            self.pending[root.index()] -= 1;
            self.release_if_done(root, last);
        }
        for value in step.writes {
            let root = self.usage.value(*value).root;
            if self.usage.unread == Unread::Dies || self.read[root.index()] {
                self.release_if_done(root, last);
            }
        }
    }

    fn release_unread_leaves(&mut self, last: usize) {
        if self.usage.unread == Unread::Dies {
            for (value, _) in &self.usage.leaves {
                self.release_if_done(*value, last);
            }
        }
    }

    fn release_if_done(&mut self, root: ValueId, last: usize) {
        if self.pending[root.index()] == 0 && self.pending_writes[root.index()] == 0 {
            self.release(root, last);
        }
    }

    fn needs_memory(&self, id: ValueId) -> bool {
        let value = self.usage.value(id);
        value.root == id && !value.flags.external && self.owned[id.index()].is_none()
    }

    /// A piece for a value that needs memory.
    fn allocate(&mut self, id: ValueId, arena: ArenaId, step: usize) {
        let piece = self.trace.pieces.len();
        let bytes = self.usage.rounded_bytes(id, arena);
        let end = self.usage.step_count().max(1);
        self.trace.pieces.push(Piece { arena, bytes, live: step..end, values: vec![id] });
        self.trace.events.push(TraceEvent::Allocate { piece, value: id, step });
        self.own(id, piece, bytes);
    }

    fn own(&mut self, id: ValueId, piece: usize, bytes: u64) {
        self.owned[id.index()] = Some(piece);
        self.sizes[id.index()] = bytes;
        self.trace.homes[id.index()] = Some(piece);
    }

    fn release(&mut self, root: ValueId, last: usize) {
        if self.usage.value(root).flags.output {
            return;
        }
        if let Some(piece) = self.owned[root.index()].take() {
            self.trace.pieces[piece].live.end = last + 1;
            self.trace.events.push(TraceEvent::Release { piece, step: last });
        }
    }

    /// Tries the operands that a write may overwrite, in order; whether it took one's memory.
    fn take_over(&mut self, index: usize, step: &StepView<'_>, write: u32) -> bool {
        let value = step.writes[write as usize];
        for pair in step.overwrites.iter().filter(|pair| pair.write == write) {
            let operand = step.reads[pair.read as usize];
            let verdict = self.judge(step, write, value, operand);
            self.trace.decisions.push(Decision { step: index, value, operand, verdict });
            if !verdict.is_taken() {
                continue;
            }
            let root = self.usage.value(operand).root;
            let Some(piece) = self.owned[root.index()].take() else { continue };
            let arena = self.trace.pieces[piece].arena;
            let (from, to) = (self.sizes[root.index()], self.usage.rounded_bytes(value, arena));
            if self.rules.sharing == Sharing::Direct && to < from {
                self.trace.events.push(TraceEvent::Shrink { piece, from, to });
                self.own(value, piece, to);
            } else {
                self.own(value, piece, from);
            }
            self.trace.pieces[piece].values.push(value);
            return true;
        }
        false
    }

    fn judge(&self, step: &StepView<'_>, write: u32, value: ValueId, operand: ValueId) -> Verdict {
        let (new, old) = (self.usage.value(value), self.usage.value(operand));
        let root = self.usage.value(old.root);
        let is_view = old.root != operand;
        let through_views = matches!(self.rules.sharing, Sharing::Tight | Sharing::Full);
        if self.rules.sharing == Sharing::None {
            return Verdict::Off;
        }
        if is_view && (!through_views || old.offset != 0) {
            return Verdict::View;
        }
        let Some(piece) = self.owned[old.root.index()] else { return Verdict::NotOwned };
        if root.flags.output {
            return Verdict::Output;
        }
        if new.layout != old.layout {
            return Verdict::Layout;
        }
        let arena = self.trace.pieces[piece].arena;
        if arena != step.arena && !self.rules.across_arenas {
            return Verdict::OtherArena;
        }
        let reads_here =
            step.reads.iter().enumerate().filter(|(_, read)| self.usage.value(**read).root == old.root);
        let only_here = if through_views {
            // Every read of this memory is this step's, and each of them lies exactly under the result.
            let overwritable = |(slot, read): (usize, &ValueId)| {
                let read = self.usage.value(*read);
                let pair = |pair: &crate::OverwritePair| pair.write == write && pair.read as usize == slot;
                read.offset == 0 && read.layout == new.layout && step.overwrites.iter().any(pair)
            };
            reads_here.clone().count() as u32 == self.pending[old.root.index()]
                && reads_here.clone().all(overwritable)
        } else {
            self.pending[old.root.index()] == 1
        };
        if !only_here || self.pending_writes[old.root.index()] > 0 {
            return Verdict::ReadElsewhere;
        }
        let (has, needs) = (self.sizes[old.root.index()], self.usage.rounded_bytes(value, arena));
        let size_fits = match self.rules.sharing {
            Sharing::Tight => has == needs,
            _ => has >= needs,
        };
        match (size_fits, is_view) {
            (false, _) => Verdict::Size,
            (true, false) => Verdict::Taken,
            (true, true) => Verdict::TakenThroughView,
        }
    }
}
