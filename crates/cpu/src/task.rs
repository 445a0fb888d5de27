//! What kernels are given and what they promise: tasks, threads, phases, and how work is divided.

use std::ops::Range;

use orlop_backend::{DeviceError, Reason, Step};
use orlop_graph::{DType, Graph, Node, Op, TensorDesc, TensorId};

use crate::access::{Dst, RowIndex, Scratch, SharedRows, Src};
use crate::isa::Isa;
use crate::kernels::Rounding;
use crate::work_shares::WorkShares;

/// One step, ready to be run: everything a kernel gets.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The op of its first node; a custom one named after the kernel where there is no node.
    pub(crate) op: Op,
    /// The ops of its other nodes, in the step's order.
    pub(crate) more: Vec<Op>,
    /// Name of the result, for errors.
    pub(crate) name: String,
    /// What it reads, in the step's order.
    pub(crate) src: Vec<Src>,
    /// The first that it writes.
    pub(crate) dst: Dst,
    /// The others, in the step's order.
    pub(crate) also: Vec<Dst>,
    pub(crate) scratch: Scratch,
    pub(crate) shared: SharedRows,
    /// For kernels whose threads share work by work stealing.
    pub(crate) work_shares: WorkShares,
    pub(crate) isa: Isa,
}

impl Task {
    pub(crate) fn inputs(&self) -> TaskInputs<'_> {
        let Task { op, more, name, src, dst, .. } = self;
        TaskInputs { op, more, name, src, result: &dst.desc }
    }

    /// Whether a [`Check`] finds the same for another task: of operands, it looks at indices alone, and at sizes.
    pub(crate) fn checks_the_same(&self, other: &Task) -> bool {
        let same = |(a, b): (&Src, &Src)| a.desc == b.desc && (!a.holds_indices() || a.lies_at(b));
        self.op == other.op
            && self.more == other.more
            && self.dst.desc == other.dst.desc
            && self.src.len() == other.src.len()
            && self.src.iter().zip(&other.src).all(same)
    }
}

/// Which of how many threads a kernel runs on, and in which of its phases. These are threads as kernels see them: each is a
/// call, and a thread of the pool may make several, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread {
    pub(crate) index: usize,
    pub(crate) count: usize,
    pub(crate) phase: usize,
}

impl Thread {
    /// This thread's part of `items` pieces of work: neighbours, divided as evenly as possible.
    pub(crate) fn part(self, items: u64) -> Range<u64> {
        let (index, count) = (self.index as u64, self.count as u64);
        let (each, rest) = (items / count, items % count);
        let start = index * each + index.min(rest);
        start..start + each + u64::from(index < rest)
    }

    /// Whether this thread does the piece of work with this number, if threads take turns.
    pub(crate) fn has_turn(self, number: u64) -> bool {
        self.count == 1 || number % self.count as u64 == self.index as u64
    }

    /// Whether this is the thread for work that only one does.
    pub(crate) fn is_first(self) -> bool {
        self.index == 0
    }
}

/// What a step reads and computes, without access to what it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskInputs<'a> {
    pub(crate) op: &'a Op,
    pub(crate) more: &'a [Op],
    /// Name of the result, for errors.
    pub(crate) name: &'a str,
    pub(crate) src: &'a [Src],
    /// The first tensor that the step writes.
    pub(crate) result: &'a TensorDesc,
}

/// Checks integers among the operands before anything is written. One thread calls it, while no thread writes.
pub(crate) type Check = fn(&TaskInputs<'_>) -> Result<(), DeviceError>;

/// The phases of a step, by operands that it does not write; each begins when all threads have finished the one before.
pub(crate) type Phases = fn(&TaskInputs<'_>) -> Range<usize>;

/// Computes a thread's part of a phase.
pub(crate) type Run = fn(&Task, Thread, &mut [f32]);

/// A kernel's computation, which keeps the phase rule ([`KernelBody::new`]).
///
/// Results must not depend on the number of threads: work is divided by rows or other pieces, each of which one thread
/// computes in a fixed order.
#[derive(Clone, Copy)]
pub(crate) struct KernelBody {
    phases: Phases,
    run: Run,
    /// Whether threads have whole rows of the result.
    by_rows: bool,
}

impl KernelBody {
    /// A computation in one phase.
    ///
    /// # Safety
    /// `run` keeps the phase rule. Called once for each of `thread.count` threads, in a phase, in any order or at once:
    /// - each element of [`Task::dst`] and [`Task::also`], and each row of [`Task::shared`], is written by at most one
    ///   thread;
    /// - what one thread writes, no other thread reads. Where a result lies on an operand, as
    ///   [`orlop_backend::Step::may_overwrite`] allows, a thread reads only those of its elements that it writes itself;
    /// - bytes are not written while a slice of them is in use;
    /// - accessors and slices of them do not outlive the call.
    pub(crate) const unsafe fn new(run: Run) -> KernelBody {
        KernelBody { phases: one_phase, run, by_rows: false }
    }

    /// A computation in several phases.
    ///
    /// # Safety
    /// As [`KernelBody::new`], for each of the phases.
    pub(crate) const unsafe fn in_phases(phases: Phases, run: Run) -> KernelBody {
        KernelBody { phases, run, by_rows: false }
    }

    /// Says that threads have whole rows of the result: a single row is not worth other threads' attention.
    pub(crate) const fn by_rows(self) -> KernelBody {
        KernelBody { by_rows: true, ..self }
    }

    /// Whether all work of a task is one thread's.
    pub(crate) fn is_for_one(&self, task: &Task) -> bool {
        self.by_rows && task.dst.desc.rows() == 1
    }

    pub(crate) fn phases(&self, task: &Task) -> Range<usize> {
        (self.phases)(&task.inputs())
    }

    /// Computes a thread's part of a phase.
    ///
    /// # Safety
    /// The caller holds claims to all that the task touches. In a phase this is called at most once for each of
    /// `thread.count` threads, with scratch that no other call uses meanwhile; all calls of the phase before have returned, and
    /// what they wrote is visible; and no other step that runs meanwhile writes what this one touches, or touches what this
    /// one writes.
    pub(crate) unsafe fn run(&self, task: &Task, thread: Thread, scratch: &mut [f32]) {
        (self.run)(task, thread, scratch);
    }
}

/// How an op is computed.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// Whether these element types and strides can be computed.
    pub(crate) accepts: fn(&Op, &[TensorDesc], &TensorDesc) -> Result<(), Reason>,
    /// Floats of scratch that each thread needs.
    pub(crate) scratch: fn(&Op, &[TensorDesc], &TensorDesc) -> u64,
    /// Rows, and floats in each, that all threads share.
    pub(crate) shared: fn(&Op, &[TensorDesc], &TensorDesc) -> (u64, u64),
    pub(crate) check: Option<Check>,
    pub(crate) body: KernelBody,
}

impl Kernel {
    /// A kernel with scratch, and nothing shared or checked.
    pub(crate) const fn simple(
        accepts: fn(&Op, &[TensorDesc], &TensorDesc) -> Result<(), Reason>,
        scratch: fn(&Op, &[TensorDesc], &TensorDesc) -> u64,
        body: KernelBody,
    ) -> Kernel {
        Kernel { accepts, scratch, shared: nothing_shared, check: None, body }
    }
}

/// What a step computes, and on what, before anything has a place: what a kernel's needs follow from.
#[derive(Clone, Debug)]
pub(crate) struct StepShape<'a> {
    /// The ops of its nodes.
    pub(crate) ops: Vec<&'a Op>,
    /// What it reads, in the step's order.
    pub(crate) reads: Vec<TensorDesc>,
    /// What it writes, scratch left out.
    pub(crate) writes: Vec<TensorDesc>,
}

/// Memory that a step needs beside what it reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FloatScratch {
    /// Floats of scratch for each thread.
    pub(crate) scratch: u64,
    /// Rows, and floats in each, that all threads share.
    pub(crate) shared: (u64, u64),
}

/// What a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOperand {
    /// A tensor of the graph.
    Tensor(TensorId),
    /// A tensor rounded to integers, which is a temporary.
    Rounded(TensorId, Rounding),
}

/// What a step reads and writes, each in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepOperands {
    pub(crate) reads: Vec<StepOperand>,
    pub(crate) writes: Vec<StepOperand>,
}

/// How a step of some nodes is computed: like [`Kernel`], which is for steps of one node whose operands and result
/// are the node's.
#[derive(Clone, Copy)]
pub(crate) struct StepKernel {
    /// What such a step touches; `None` if the nodes are not what the kernel computes. Lowering makes steps by this,
    /// and compiling holds them to it.
    pub(crate) operands: fn(&Graph, &Step) -> Option<StepOperands>,
    pub(crate) needs: fn(&StepShape<'_>) -> FloatScratch,
    pub(crate) check: Option<Check>,
    pub(crate) body: KernelBody,
}

/// The nodes of a step, if there are `N`.
pub(crate) fn chain<'a, const N: usize>(graph: &'a Graph, step: &Step) -> Option<[&'a Node; N]> {
    let nodes: Option<Vec<&Node>> = step.nodes.iter().map(|node| graph.nodes().get(node.index())).collect();
    nodes?.try_into().ok()
}

/// One phase.
fn one_phase(_: &TaskInputs<'_>) -> Range<usize> {
    0..1
}

/// Two phases.
pub(crate) fn two_phases(_: &TaskInputs<'_>) -> Range<usize> {
    0..2
}

/// Nothing shared.
pub(crate) fn nothing_shared(_: &Op, _: &[TensorDesc], _: &TensorDesc) -> (u64, u64) {
    (0, 0)
}

/// No scratch.
pub(crate) fn no_scratch(_: &Op, _: &[TensorDesc], _: &TensorDesc) -> u64 {
    0
}

/// The position of row number `row` of a tensor, rows counted innermost first.
pub(crate) fn row_at(desc: &TensorDesc, row: u64) -> RowIndex {
    let [_, n1, n2, _] = desc.extents;
    // Divisions are slow and rarely needed.
    if row < n1 {
        return [row, 0, 0];
    }
    [row % n1, row / n1 % n2, row / n1 / n2]
}

/// The column and row of element number `index` of a tensor, elements counted innermost first.
pub(crate) fn element_at(desc: &TensorDesc, index: u64) -> (u64, RowIndex) {
    if index < desc.extents[0] {
        return (index, [0; 3]);
    }
    (index % desc.extents[0], row_at(desc, index / desc.extents[0]))
}

/// `at` inside a tensor that is repeated to cover it.
pub(crate) fn repeated(desc: &TensorDesc, [i1, i2, i3]: RowIndex) -> RowIndex {
    let [_, n1, n2, n3] = desc.extents;
    // Divisions are slow and rarely needed.
    let within = |i: u64, n: u64| {
        if i < n {
            i
        } else if n == 1 {
            0
        } else {
            i % n
        }
    };
    [within(i1, n1), within(i2, n2), within(i3, n3)]
}

/// Elements of a row that are worked on together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSpan {
    pub(crate) column: u64,
    pub(crate) at: RowIndex,
    pub(crate) length: usize,
}

/// The longest [`RowSpan`]: a whole number of blocks of every type, and short enough for buffers on the stack.
pub(crate) const SPAN: usize = 1024;

/// Elements that are worked on together at least: a whole number of blocks of every type, and of those that share a scale.
const UNIT: u64 = 256;

/// This thread's part of a tensor, divided by units of [`UNIT`] elements.
pub(crate) fn spans(desc: &TensorDesc, thread: Thread) -> impl Iterator<Item = RowSpan> + use<> {
    let (desc, units) = (*desc, desc.extents[0].div_ceil(UNIT));
    let mut all = thread.part(desc.rows().saturating_mul(units));
    std::iter::from_fn(move || {
        if all.is_empty() {
            return None;
        }
        let (row, first) = (all.start / units, all.start % units);
        let count = (all.end - all.start).min(units - first).min(SPAN as u64 / UNIT);
        all.start += count;
        let column = first * UNIT;
        let length = (desc.extents[0] - column).min(count * UNIT) as usize;
        Some(RowSpan { column, at: row_at(&desc, row), length })
    })
}

/// The same elements in the same order with rows as long as strides allow. Blocks stay neighbours.
pub(crate) fn merged(desc: &TensorDesc) -> TensorDesc {
    let (mut extents, mut strides, mut last) = ([desc.extents[0], 1, 1, 1], desc.strides, 0);
    let each = desc.dtype.block_elements();
    for dim in 1..desc.extents.len() {
        let blocks = if last == 0 { extents[0] / each } else { extents[last] };
        if desc.extents[dim] == 1 {
            continue;
        }
        if strides[last].checked_mul(blocks) == Some(desc.strides[dim]) {
            extents[last] *= desc.extents[dim];
        } else {
            // A single element has no stride of its own.
            last += usize::from(extents[last] != 1);
            (extents[last], strides[last]) = (desc.extents[dim], desc.strides[dim]);
        }
    }
    TensorDesc { dtype: desc.dtype, extents, strides }
}

/// Whether a type is one of the floating-point types that element-wise kernels take.
pub(crate) fn float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Refuses anything but F32, F16 and BF16, for all operands and the result.
pub(crate) fn all_floats(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        if !float(desc.dtype) {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    Ok(())
}
