//! Products in F32, of weights of any type.

use std::ops::Range;

use orlop_graph::{DType, Op, TensorDesc};

use super::activation_rows::{ActivationRows, BroadcastRows, pieces, runs};
use super::{experts, zeros};
use crate::access::as_bytes;
use crate::repack::ROWS;
use crate::simd::product::{self, FEW_FLOAT_TILES, FEW_FLOATS, FLOAT_ROWS};
use crate::task::{Task, TaskInputs, Thread, float, row_at};

/// Rows of weights that threads take at least.
const TAKEN: u64 = 16;
/// Rows of weights that are multiplied as they are before their products are written: many, as nothing is read meanwhile.
const RUN: u64 = 16 * TAKEN;

/// Sixteen rows, and two panels made of such.
pub(super) fn scratch(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> u64 {
    operands[0].extents[0].saturating_mul(3 * ROWS as u64)
}

/// Activations as F32, unless they can be used as they lie.
pub(super) fn right_hand_rows(_: &Op, operands: &[TensorDesc], _: &TensorDesc) -> (u64, u64) {
    if as_it_lies(&operands[1]) { (0, 0) } else { (operands[1].rows(), operands[1].extents[0]) }
}

/// Activations that can be used in place need no first phase.
pub(super) fn phases(task: &TaskInputs<'_>) -> Range<usize> {
    if as_it_lies(&task.src[1].desc) && task.src[0].desc.extents[0] > 0 { 1..2 } else { 0..2 }
}

fn as_it_lies(right: &TensorDesc) -> bool {
    right.dtype == DType::F32 && right.rows_are_contiguous()
}

fn read_right_hand(task: &Task, thread: Thread) {
    let right = &task.src[1];
    if !as_it_lies(&right.desc) {
        for index in thread.part(right.desc.rows()) {
            task.shared.fill(index, |row| right.read_row(row_at(&right.desc, index), row));
        }
    }
}

pub(super) fn mul_mat(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [depth, m, a2, a3] = task.src[0].desc.extents;
    let [_, n, b2, b3] = task.src[1].desc.extents;
    if depth == 0 {
        return zeros(task, thread);
    }
    if thread.phase == 0 {
        return read_right_hand(task, thread);
    }
    let mut left = FloatWeights::new(task, scratch);
    let (matrices, count) = (a2 * a3, n * b2 * b3 / (a2 * a3));
    if left.direct() {
        let mut products = [[0.0; RUN as usize]; FEW_FLOATS];
        for (matrix, units) in runs(&task.work_shares, thread, matrices, m.div_ceil(TAKEN), RUN / TAKEN) {
            let right = BroadcastRows::of(&task.src[0].desc, [n, b2, b3], matrix);
            left.few(matrix, units, &right, &mut products);
        }
        return;
    }
    for piece in
        pieces(&task.work_shares, thread, matrices, m.div_ceil(2 * ROWS as u64), count, 4 * FLOAT_ROWS as u64)
    {
        let right = BroadcastRows::of(&task.src[0].desc, [n, b2, b3], piece.matrix);
        left.many(piece.matrix, piece.unit, &right, piece.right);
    }
}

/// Every thread has its rows of all matrices, whichever experts they belong to.
pub(super) fn mul_mat_id(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let [depth, m, ..] = task.src[0].desc.extents;
    let [_, each, tokens, _] = task.src[1].desc.extents;
    if depth == 0 {
        return zeros(task, thread);
    }
    if thread.phase == 0 {
        return read_right_hand(task, thread);
    }
    let mut left = FloatWeights::new(task, scratch);
    let mut products = [[0.0; RUN as usize]; FEW_FLOATS];
    let width = if left.direct() { TAKEN } else { 2 * ROWS as u64 };
    let own = thread.part(m.div_ceil(width));
    experts::clear_unchosen(task, own.start * width..m.min(own.end * width));
    experts::for_each(task, [each, tokens], |expert, chosen| {
        if left.direct() {
            for first in own.clone().step_by((RUN / TAKEN) as usize) {
                left.few(expert, first..own.end.min(first + RUN / TAKEN), chosen, &mut products);
            }
        } else {
            for unit in own.clone() {
                left.many(expert, unit, chosen, 0..chosen.count());
            }
        }
    });
}

/// The weights of a product, and memory for panels of them.
struct FloatWeights<'a> {
    task: &'a Task,
    depth: usize,
    rows: &'a mut [f32],
    panels: &'a mut [f32],
    /// The matrix and the unit in the panels.
    decoded: Option<(u64, u64)>,
}

impl<'a> FloatWeights<'a> {
    fn new(task: &'a Task, scratch: &'a mut [f32]) -> FloatWeights<'a> {
        let depth = task.src[0].desc.extents[0] as usize;
        let (rows, panels) = scratch[..3 * ROWS * depth].split_at_mut(ROWS * depth);
        FloatWeights { task, depth, rows, panels, decoded: None }
    }

    /// Whether weights are multiplied as they are. This must not depend on the number of rows of activations: panels add in
    /// another order.
    fn direct(&self) -> bool {
        let weights = &self.task.src[0].desc;
        float(weights.dtype) && weights.rows_are_contiguous()
    }

    fn activations(&self, row: u64) -> &'a [[u8; 4]] {
        let right = &self.task.src[1];
        match as_it_lies(&right.desc) {
            // Divisions are slow, and mostly not needed.
            true if row < right.desc.extents[1] => right.row([row, 0, 0]).as_chunks().0,
            true => right.row(row_at(&right.desc, row)).as_chunks().0,
            false => as_bytes(self.task.shared.row(row)).as_chunks().0,
        }
    }

    fn place(&self, matrix: u64) -> [u64; 2] {
        let n2 = self.task.src[0].desc.extents[2];
        [matrix % n2, matrix / n2]
    }

    /// Some rows, as they are stored, with few rows of activations.
    fn few(
        &mut self,
        matrix: u64,
        units: Range<u64>,
        right: &impl ActivationRows,
        products: &mut [[f32; RUN as usize]; FEW_FLOATS],
    ) {
        // What is read more than once has to stay near.
        let once = right.count() <= FEW_FLOATS as u64;
        let (step, ahead) = if once { (units.end - units.start, 4) } else { (2, 2 * TAKEN) };
        for unit in units.clone().step_by(step as usize) {
            let units = unit..units.end.min(unit + step);
            for first in (0..right.count()).step_by(FEW_FLOATS) {
                let ahead = if first == 0 { ahead } else { 0 };
                self.dots(matrix, units.clone(), right, first, ahead as usize, products);
            }
        }
    }

    /// Some rows with rows of activations from the first on, as many as there is room for; what lies `ahead` rows further
    /// will be read soon.
    fn dots(
        &mut self,
        matrix: u64,
        units: Range<u64>,
        right: &impl ActivationRows,
        first: u64,
        ahead: usize,
        products: &mut [[f32; RUN as usize]; FEW_FLOATS],
    ) {
        let weights = &self.task.src[0];
        let [i2, i3] = self.place(matrix);
        let rows = units.start * TAKEN..weights.desc.extents[1].min(units.end * TAKEN);
        let mut acts: [&[[u8; 4]]; FEW_FLOATS] = [&[]; FEW_FLOATS];
        let mut places = [[0; 3]; FEW_FLOATS];
        let mut used = 0;
        for ((act, place), index) in acts.iter_mut().zip(&mut places).zip(first..right.count()) {
            let (row, at) = right.get(index);
            (*act, *place) = (self.activations(row), at);
            used += 1;
        }
        let (isa, dtype, acts) = (self.task.isa, weights.desc.dtype, &acts[..used]);
        let bytes = weights.desc.row_bytes() as usize;
        match weights.rows([rows.start, i2, i3], rows.end - rows.start) {
            Some(rows) => product::dot_rows(isa, dtype, rows, bytes, acts, ahead, products),
            None => {
                for (number, i1) in rows.clone().enumerate() {
                    let mut out = [[0.0; 4]; FEW_FLOATS];
                    product::dot_rows(isa, dtype, weights.row([i1, i2, i3]), bytes, acts, 0, &mut out);
                    for (products, out) in products.iter_mut().zip(out) {
                        products[number] = out[0];
                    }
                }
            }
        }
        let count = (rows.end - rows.start) as usize;
        for (products, at) in products.iter().zip(&places[..used]) {
            self.task.dst.write_floats(rows.start, *at, &products[..count]);
        }
    }

    /// The tiles of two groups, if products can take them as they are; the first again where there is no second.
    fn tiles(&self, matrix: u64, unit: u64) -> Option<[&'a [u8]; 2]> {
        let weights = &self.task.src[0];
        let groups = weights.packed().filter(|_| product::has_tile_products(self.task.isa))?.groups();
        let (first, group) = (matrix as usize * groups, 2 * unit as usize);
        Some([group, (group + 1).min(groups - 1)].map(|group| weights.group(first + group)))
    }

    /// Two groups of rows, as tiles or as panels, with many rows of activations.
    fn many(&mut self, matrix: u64, unit: u64, right: &impl ActivationRows, range: Range<u64>) {
        let (isa, both) = (self.task.isa, 2 * ROWS as u64);
        let columns = unit * both..self.task.src[0].desc.extents[1].min((unit + 1) * both);
        let few =
            (range.end - range.start <= FEW_FLOAT_TILES as u64).then(|| self.tiles(matrix, unit)).flatten();
        if few.is_none() && self.decoded != Some((matrix, unit)) {
            self.decode(self.place(matrix), columns.clone());
            self.decoded = Some((matrix, unit));
        }
        let dtype = self.task.src[0].desc.dtype;
        let panels = self.panels.as_chunks::<ROWS>().0;
        let (first, second) = panels.split_at(self.depth);
        let count = (columns.end - columns.start) as usize;
        let panels = [first, if count <= ROWS { first } else { second }];
        let mut out = [[0.0; 2 * ROWS]; FLOAT_ROWS];
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + FLOAT_ROWS as u64);
            let mut acts: [&[[u8; 4]]; FLOAT_ROWS] = [&[]; FLOAT_ROWS];
            let mut places = [[0; 3]; FLOAT_ROWS];
            for ((act, place), index) in acts.iter_mut().zip(&mut places).zip(start..end) {
                let (row, at) = right.get(index);
                (*act, *place) = (self.activations(row), at);
                self.task.dst.prefetch(columns.start, at, count);
            }
            let used = (end - start) as usize;
            let (acts, products) = (&acts[..used], out.as_flattened_mut().as_chunks_mut().0);
            match few {
                Some(tiles) => product::dot_tiles_f32(isa, dtype, tiles, acts, products),
                None => product::panel_f32(isa, panels, acts, products),
            }
            if count == 2 * ROWS {
                self.task.dst.write_rows(columns.start, &places[..used], &out);
            } else {
                for (out, at) in out.iter().zip(&places[..used]) {
                    self.task.dst.write_floats(columns.start, *at, &out[..count]);
                }
            }
            start = end;
        }
    }

    /// Brings rows of a matrix into the panels.
    fn decode(&mut self, [i2, i3]: [u64; 2], columns: Range<u64>) {
        let panels = self.panels.as_chunks_mut::<ROWS>().0.chunks_exact_mut(self.depth);
        let weights = &self.task.src[0];
        if let Some(layout) = weights.packed() {
            let first = (i3 * weights.desc.extents[2] + i2) as usize * layout.groups();
            let groups = columns.step_by(ROWS).map(|column| first + column as usize / ROWS);
            for (group, panel) in groups.zip(panels) {
                product::decode(self.task.isa, weights.desc.dtype, weights.group(group), panel);
            }
            return;
        }
        for (first, panel) in columns.clone().step_by(ROWS).zip(panels) {
            let rows = first..columns.end.min(first + ROWS as u64);
            let floats = &mut self.rows[..(rows.end - rows.start) as usize * self.depth];
            for (row, i1) in floats.chunks_exact_mut(self.depth).zip(rows) {
                self.task.src[0].read(self.task.isa, 0, [i1, i2, i3], row);
            }
            product::transpose(self.task.isa, floats, self.depth, panel);
        }
    }
}
