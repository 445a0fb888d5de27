//! Products of quantized weights with activations that are rounded to integers.

use std::iter;
use std::ops::Range;

use orlop_backend::Step;
use orlop_graph::{DType, Graph, Op, TensorDesc};

use super::activation_rows::{ActivationRows, BroadcastRows, at_once, pieces, runs};
use super::experts;
use super::rounding::Rounding;
use crate::access::{Dst, RowIndex, Scratch, Src};
use crate::isa::Isa;
use crate::repack::{PackedLayout, ROWS};
use crate::simd::product::{self, BYTES_8, BYTES_16, Block, FEW, FewProducts, MANY};
use crate::task::{FloatScratch, StepOperand, StepOperands, StepShape, Task, Thread};

/// Whether a product takes rounded activations.
pub(crate) fn takes_rounded(weights: &TensorDesc, result: &TensorDesc) -> bool {
    !weights.is_empty() && !result.is_empty() && PackedLayout::of(weights).is_some()
}

pub(super) fn product_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let [node] = step.nodes[..] else { return None };
    let node = graph.nodes().get(node.index())?;
    let mut reads: Vec<StepOperand> = node.inputs.iter().copied().map(StepOperand::Tensor).collect();
    *reads.get_mut(1)? = StepOperand::Rounded(node.inputs[1], Rounding::of_kernel(&step.kernel)?);
    Some(StepOperands { reads, writes: vec![StepOperand::Tensor(node.output)] })
}

/// Two panels, and a group of rows in tiles for weights that are not repacked.
pub(super) fn product_needs(shape: &StepShape<'_>) -> FloatScratch {
    FloatScratch { scratch: needed(&shape.reads[0]), shared: (0, 0) }
}

fn needed(weights: &TensorDesc) -> u64 {
    let panels = (weights.extents[0] / 32).saturating_mul(2 * product::panel_floats(weights.dtype) as u64);
    let tiles = PackedLayout::of(weights).map_or(0, |layout| layout.group_bytes() as u64 / 4);
    panels.saturating_add(tiles)
}

/// Whether a product can be computed together with others of the same activations.
pub(crate) fn joins(weights: &TensorDesc, activations: &TensorDesc) -> bool {
    weights.extents[2..] == [1, 1] && activations.rows() <= FEW as u64
}

/// Reads: the weights of the first, the activations, the weights of the others.
pub(super) fn products_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let nodes: Vec<_> =
        step.nodes.iter().map(|node| graph.nodes().get(node.index())).collect::<Option<_>>()?;
    let x = *nodes.first()?.inputs.get(1)?;
    let mut operands = StepOperands::default();
    for node in nodes {
        let [weights, right] = node.inputs[..] else { return None };
        let desc = |id| &graph.tensor(id).desc;
        if node.op != Op::MulMat || right != x || !joins(desc(weights), desc(x)) {
            return None;
        }
        operands.reads.push(StepOperand::Tensor(weights));
        operands.writes.push(StepOperand::Tensor(node.output));
    }
    operands.reads.insert(1, StepOperand::Rounded(x, Rounding::of_kernel(&step.kernel)?));
    Some(operands)
}

/// What the one of them needs that needs most.
pub(super) fn products_needs(shape: &StepShape<'_>) -> FloatScratch {
    let weights = shape.reads.iter().take(1).chain(shape.reads.iter().skip(2));
    let scratch = weights.map(needed).max().unwrap_or(0);
    FloatScratch { scratch, shared: (0, 0) }
}

/// Reads: what the product reads, then what is added to it.
pub(super) fn sums_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let (first, sums) = step.nodes.split_first()?;
    let product = graph.nodes().get(first.index())?;
    let desc = |id| &graph.tensor(id).desc;
    let [weights, x] = product.inputs[..] else { return None };
    if product.op != Op::MulMat || desc(product.output).dtype != DType::F32 || !(1..=2).contains(&sums.len())
    {
        return None;
    }
    let x = StepOperand::Rounded(x, Rounding::of_kernel(&step.kernel)?);
    let (mut reads, mut last) = (vec![StepOperand::Tensor(weights), x], product.output);
    for sum in sums {
        let sum = graph.nodes().get(sum.index())?;
        let [a, b] = sum.inputs[..] else { return None };
        let added = if a == last { b } else { a };
        let fits = [a, b].contains(&last)
            && desc(sum.output).extents == desc(last).extents
            && desc(added).extents[0] == desc(last).extents[0]
            && desc(sum.output).dtype == DType::F32;
        if sum.op != Op::Add || !fits {
            return None;
        }
        reads.push(StepOperand::Tensor(added));
        last = sum.output;
    }
    Some(StepOperands { reads, writes: vec![StepOperand::Tensor(last)] })
}

/// Calls a function with the length of the blocks that activations have.
macro_rules! with_blocks {
    ($function:ident($task:expr, $($argument:expr),*)) => {
        match Rounding::of(&$task.src[1].desc) {
            Some(Rounding::Int8) => $function::<BYTES_8>($task, $($argument),*),
            Some(Rounding::Int16) => $function::<BYTES_16>($task, $($argument),*),
            None => unreachable!("activations are rounded"),
        }
    };
}

pub(super) fn mul_mat(task: &Task, thread: Thread, scratch: &mut [f32]) {
    with_blocks!(multiply(task, thread, scratch, &[]));
}

pub(super) fn mul_mat_and_sums(task: &Task, thread: Thread, scratch: &mut [f32]) {
    with_blocks!(multiply(task, thread, scratch, &task.src[2..]));
}

pub(super) fn mul_mats(task: &Task, thread: Thread, scratch: &mut [f32]) {
    with_blocks!(multiply_jointly(task, thread, scratch));
}

pub(super) fn mul_mat_id(task: &Task, thread: Thread, scratch: &mut [f32]) {
    with_blocks!(multiply_chosen(task, thread, scratch));
}

fn multiply<const B: usize>(task: &Task, thread: Thread, scratch: &mut [f32], added: &[Src]) {
    let mut left =
        RoundedProduct::<B> { added, ..RoundedProduct::new(task, &task.src[0], &task.dst, scratch) };
    let [_, n, b2, b3] = task.dst.desc.extents;
    let matrices = task.src[0].desc.extents[2] * task.src[0].desc.extents[3];
    let count = n * b2 * b3 / matrices;
    if left.direct(count) {
        let mut out = FewProducts::new(count as usize);
        let most = out.groups() as u64;
        for (matrix, groups) in runs(&task.work_shares, thread, matrices, left.groups(), most) {
            let right = BroadcastRows::of(&task.src[0].desc, [n, b2, b3], matrix);
            left.few(matrix, groups, &right, &mut out);
        }
        return;
    }
    let (units, most) = (left.groups().div_ceil(2), product::many(task.isa) as u64);
    for piece in pieces(&task.work_shares, thread, matrices, units, count, most) {
        let right = BroadcastRows::of(&task.src[0].desc, [n, b2, b3], piece.matrix);
        left.many(piece.matrix, 2 * piece.unit..left.groups().min(2 * piece.unit + 2), &right, piece.right);
    }
}

/// The groups of all products are one row of work, as their weights mostly are one piece of memory.
fn multiply_jointly<const B: usize>(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let products = || task.src[..1].iter().chain(&task.src[2..]).zip(iter::once(&task.dst).chain(&task.also));
    let [_, n, b2, b3] = task.dst.desc.extents;
    let right = BroadcastRows::of(&task.src[0].desc, [n, b2, b3], 0);
    if !product::has_tile_products(task.isa) {
        for (weights, dst) in products() {
            let mut left = RoundedProduct::<B>::new(task, weights, dst, scratch);
            left.all_of(0, thread.part(left.groups()), &right);
        }
        return;
    }
    let groups = |weights: &Src| weights.desc.extents[1].div_ceil(ROWS as u64);
    let all = products().map(|(weights, _)| groups(weights)).sum();
    let mut out = FewProducts::new(right.count() as usize);
    for piece in task.work_shares.pieces(thread, all, at_once(thread, all)) {
        let mut before = 0;
        for (weights, dst) in products() {
            let count = groups(weights);
            let part = piece.start.saturating_sub(before)..count.min(piece.end.saturating_sub(before));
            before += count;
            if part.start < part.end {
                let mut left = RoundedProduct::<B>::new(task, weights, dst, scratch);
                left.few(0, part, &right, &mut out);
            }
        }
    }
}

/// Every thread has its rows of all matrices, whichever experts they belong to. How an expert's are multiplied depends on the
/// number of rows of activations that have chosen it.
fn multiply_chosen<const B: usize>(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [_, each, tokens, _] = task.src[1].desc.extents;
    // AMX wants rows of activations that follow each other.
    let isa = task.isa.vectors();
    let mut left = RoundedProduct::<B> { isa, ..RoundedProduct::new(task, &task.src[0], &task.dst, scratch) };
    let (groups, columns) = (thread.part(left.groups()), task.src[0].desc.extents[1]);
    let width = ROWS as u64;
    experts::clear_unchosen(task, columns.min(groups.start * width)..columns.min(groups.end * width));
    experts::for_each(task, [each, tokens], |expert, chosen| {
        if left.direct(chosen.count()) {
            let mut out = FewProducts::new(chosen.count() as usize);
            left.few(expert, groups.clone(), chosen, &mut out);
        } else {
            left.all_of(expert, groups.clone(), chosen);
        }
    });
}

/// The weights of a product, and memory to bring them into the form that inner loops take.
struct RoundedProduct<'a, const B: usize> {
    isa: Isa,
    weights: &'a Src,
    /// Where the products go.
    dst: &'a Dst,
    layout: PackedLayout,
    panels: &'a mut [f32],
    tiles: &'a mut [u8],
    /// The groups in the panels, and their matrix.
    expanded: Option<(u64, Range<u64>)>,
    /// What is added to the product, one after the other.
    added: &'a [Src],
    /// The rows of activations, one after the other.
    blocks: &'a [Block<B>],
}

impl<'a, const B: usize> RoundedProduct<'a, B> {
    fn new(task: &'a Task, weights: &'a Src, dst: &'a Dst, scratch: &'a mut [f32]) -> RoundedProduct<'a, B> {
        let desc = &weights.desc;
        let packed = weights.packed().copied();
        let layout = packed.or_else(|| PackedLayout::of(desc)).expect("a type that is repacked");
        let panels = 2 * (desc.extents[0] / 32) as usize * product::panel_floats(desc.dtype);
        let (panels, tiles) = scratch.split_at_mut(panels);
        let tiles = &mut Scratch::bytes(tiles)[..layout.group_bytes()];
        let blocks = task.src[1].all_rows().as_chunks().0;
        let isa = task.isa;
        RoundedProduct { isa, weights, dst, layout, panels, tiles, expanded: None, added: &[], blocks }
    }

    fn groups(&self) -> u64 {
        self.layout.groups() as u64
    }

    /// Whether tiles are multiplied as they are, with this many rows of activations.
    fn direct(&self, rows: u64) -> bool {
        product::has_tile_products(self.isa) && rows <= FEW as u64
    }

    /// The rows of a group of a matrix, on which this many rows follow.
    fn rows(&self, group: u64) -> Range<u64> {
        let rows = self.weights.desc.extents[1];
        group * ROWS as u64..rows.min((group + 1) * ROWS as u64)
    }

    fn blocks(&self, row: u64) -> &'a [Block<B>] {
        let each = (self.weights.desc.extents[0] / 32) as usize;
        &self.blocks[row as usize * each..][..each]
    }

    /// Groups that follow each other, as they are stored, with few rows of activations.
    fn few(&mut self, matrix: u64, groups: Range<u64>, right: &impl ActivationRows, out: &mut FewProducts) {
        for first in (0..right.count()).step_by(out.rows()) {
            let mut acts: [&[Block<B>]; FEW] = [&[]; FEW];
            let mut places = [[0; 3]; FEW];
            let used = out.rows().min((right.count() - first) as usize);
            for ((act, place), index) in acts.iter_mut().zip(&mut places).zip(first..first + used as u64) {
                let (row, at) = right.get(index);
                (*act, *place) = (self.blocks(row), at);
            }
            for start in groups.clone().step_by(out.groups()) {
                let groups = start..groups.end.min(start + out.groups() as u64);
                self.few_rows(matrix, groups, &acts[..used], &places[..used], out);
            }
        }
    }

    /// As many groups as `out` has room for, with rows of activations whose products have these places.
    fn few_rows(
        &mut self,
        matrix: u64,
        groups: Range<u64>,
        acts: &[&[Block<B>]],
        places: &[RowIndex],
        out: &mut FewProducts,
    ) {
        let (isa, dtype) = (self.isa, self.weights.desc.dtype);
        let columns = self.rows(groups.start).start..self.rows(groups.end - 1).end;
        if self.weights.packed().is_some() {
            let first = (matrix * self.groups() + groups.start) as usize;
            let tiles = self.weights.groups(first..first + (groups.end - groups.start) as usize);
            product::dot_tiles(isa, dtype, tiles, acts, 0, out);
        } else {
            for (number, group) in groups.enumerate() {
                product::dot_tiles(isa, dtype, self.tiles(matrix, group), acts, number, out);
            }
        }
        let count = (columns.end - columns.start) as usize;
        for (row, at) in places.iter().enumerate() {
            self.store(columns.start, *at, &mut out.row(row)[..count]);
        }
    }

    /// Writes a part of a row of the result.
    fn store(&self, column: u64, at: RowIndex, values: &mut [f32]) {
        for added in self.added {
            added.add_run(self.isa, column, at, values);
        }
        self.dst.write_floats(column, at, values);
    }

    /// The tiles of a group.
    fn tiles(&mut self, matrix: u64, group: u64) -> &[u8] {
        let weights = self.weights;
        if weights.packed().is_some() {
            return weights.group((matrix * self.groups() + group) as usize);
        }
        let (rows, n2) = (self.rows(group), weights.desc.extents[2]);
        if rows.end - rows.start < ROWS as u64 {
            self.tiles.fill(0);
        }
        let at = |i1: u64| [i1, matrix % n2, matrix / n2];
        match weights.rows(at(rows.start), rows.end - rows.start) {
            Some(rows) => self.layout.pack_rows(self.isa, rows, 0, self.tiles),
            None => self.layout.pack(rows.map(|i1| weights.row(at(i1))), 0, self.tiles),
        }
        self.tiles
    }

    /// Groups that follow each other, two at a time, with all rows of activations.
    fn all_of(&mut self, matrix: u64, groups: Range<u64>, right: &impl ActivationRows) {
        for first in groups.clone().step_by(2) {
            self.many(matrix, first..groups.end.min(first + 2), right, 0..right.count());
        }
    }

    /// One or two groups, taken apart, with many rows of activations.
    fn many(&mut self, matrix: u64, groups: Range<u64>, right: &impl ActivationRows, range: Range<u64>) {
        let (isa, dtype) = (self.isa, self.weights.desc.dtype);
        let kind = product::panel_kind(dtype).expect("a type that is repacked");
        if self.expanded != Some((matrix, groups.clone())) {
            for (number, group) in groups.clone().enumerate() {
                let length = self.panels.len() / 2;
                let panels = std::mem::take(&mut self.panels);
                let panel = &mut panels[number * length..][..length];
                product::expand(isa, dtype, self.tiles(matrix, group), panel);
                self.panels = panels;
            }
            self.expanded = Some((matrix, groups.clone()));
        }
        let (first, second) = self.panels.split_at(self.panels.len() / 2);
        let alone = groups.end - groups.start == 1;
        let panels = [first, if alone { first } else { second }];
        let columns = self.rows(groups.start).start..self.rows(groups.end - 1).end;
        let count = (columns.end - columns.start) as usize;
        let mut next = self.stored(matrix, groups.end);
        // Rows that are multiplied before any result is written.
        let many = product::many(isa) as u64;
        let mut out = [[0.0; 2 * ROWS]; MANY];
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + many);
            let (now, later) = next.split_at(next.len() / (range.end - start).div_ceil(many) as usize);
            next = later;
            let mut acts: [&[Block<B>]; MANY] = [&[]; MANY];
            let mut places = [[0; 3]; MANY];
            for ((act, place), index) in acts.iter_mut().zip(&mut places).zip(start..end) {
                let (row, at) = right.get(index);
                (*act, *place) = (self.blocks(row), at);
                self.dst.prefetch(columns.start, at, count);
            }
            let used = (end - start) as usize;
            product::panel(isa, kind, panels, &acts[..used], now, out.as_flattened_mut().as_chunks_mut().0);
            let (out, places) = (&mut out[..used], &places[..used]);
            if count == 2 * ROWS {
                for added in self.added {
                    added.add_to(isa, columns.start, places, out);
                }
                self.dst.write_rows(columns.start, places, out);
            } else {
                for (out, at) in out.iter_mut().zip(places) {
                    self.store(columns.start, *at, &mut out[..count]);
                }
            }
            start = end;
        }
    }

    /// The tiles of up to two groups where they lie; none if there are none, or weights are not repacked.
    fn stored(&self, matrix: u64, first: u64) -> &'a [u8] {
        let groups = self.groups();
        let last = groups.min(first + 2);
        if self.weights.packed().is_none() || first >= last {
            return &[];
        }
        self.weights.groups((matrix * groups + first) as usize..(matrix * groups + last) as usize)
    }
}
