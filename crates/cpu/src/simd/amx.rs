//! Panels of weights in 8 bits with many rows of activations, on AMX: 16 rows of activations times 16 rows of weights at a
//! time.
//!
//! The vectors of a panel lie as the tiles of weights do. Sums of integers are exact, and floats are added as on AVX-512, so
//! all bits are the same as there.

mod matrix_unit;

use std::arch::x86_64::*;

use matrix_unit::{Amx, MatrixUnit};

use super::activations::{Block, passes, scale, scaled_signed_sum};
use super::avx512::{load_f32, store_f32};
use super::prefetch::Ahead;
use super::product::PanelKind;
use super::tile_loops::{GROUP_VECTORS, WEIGHT_VECTORS};

/// Rows of activations in a tile.
const ROWS: usize = 16;
/// Blocks of each row that are brought into the layout of tiles at a time: a whole number of runs.
const BLOCKS: usize = 16;

/// The numbers of a block of 16 rows, in rows of 64 bytes: the upper bytes, and the lower ones.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Numbers([[u8; 64]; ROWS]);

/// For each pass, the products of 16 rows of activations with 16 rows of weights.
#[repr(C, align(64))]
struct Products<const PASSES: usize>([[[i32; 16]; ROWS]; PASSES]);

/// A block of 16 rows of activations.
#[derive(Clone, Copy)]
struct BlockOfRows {
    numbers: Numbers,
    scales: [f32; ROWS],
    /// Sums of both halves, or of the whole block in the first place, times the scales.
    sums: [[f32; ROWS]; 2],
}

const EMPTY: BlockOfRows =
    BlockOfRows { numbers: Numbers([[0; 64]; ROWS]), scales: [0.0; ROWS], sums: [[0.0; ROWS]; 2] };

/// The products of two panels, of 16 rows each, with rows of signed activations: for each of these, 16 products with the
/// first panel and 16 with the second. Meanwhile, `ahead` is fetched.
///
/// # Safety
/// The processor has AVX-512 with VNNI and AMX's 8-bit tiles, and the process may use them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn panel<const B: usize>(
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block<B>]],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    // SAFETY: the caller answers for the instructions.
    let unit = unsafe { Amx::new(kind.group) };
    with_passes(&unit, kind, panels, acts, ahead, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn with_passes<const B: usize>(
    unit: &impl MatrixUnit,
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block<B>]],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    match (passes(B), kind.min) {
        (1, false) => multiply::<B, 1, false>(unit, kind, panels, acts, ahead, out),
        (1, true) => multiply::<B, 1, true>(unit, kind, panels, acts, ahead, out),
        (_, false) => multiply::<B, 2, false>(unit, kind, panels, acts, ahead, out),
        (_, true) => multiply::<B, 2, true>(unit, kind, panels, acts, ahead, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply<const B: usize, const PASSES: usize, const MIN: bool>(
    unit: &impl MatrixUnit,
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block<B>]],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let vectors = WEIGHT_VECTORS + GROUP_VECTORS * (32 / kind.group);
    let panels = panels.map(|panel| panel.as_chunks::<16>().0);
    let count = panels[0].len() / vectors;
    let mut ahead = Ahead::new(ahead, count * acts.len().div_ceil(ROWS));
    let mut blocks = [EMPTY; BLOCKS];
    for (acts, out) in acts.chunks(ROWS).zip(out.chunks_mut(2 * ROWS)) {
        let mut sums = [[[0.0; 16]; ROWS]; 2];
        for first in (0..count).step_by(BLOCKS) {
            let blocks = &mut blocks[..BLOCKS.min(count - first)];
            for (number, block) in blocks.iter_mut().enumerate() {
                ahead.fetch();
                gather::<B, MIN>(kind, acts, first + number, block);
            }
            for (panel, sums) in panels.iter().zip(&mut sums) {
                let weights = &panel[vectors * first..][..vectors * blocks.len()];
                add_products::<PASSES, MIN>(unit, kind, weights, blocks, sums);
            }
        }
        for (row, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *out = [sums[0][row], sums[1][row]];
        }
    }
}

/// Brings a block of each row together. Rows that are not there keep what they had, and nothing reads their products.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn gather<const B: usize, const MIN: bool>(
    kind: PanelKind,
    acts: &[&[Block<B>]],
    number: usize,
    block: &mut BlockOfRows,
) {
    for (row, act) in acts.iter().enumerate() {
        let act = &act[number];
        let bytes = 32 * passes(B);
        block.numbers.0[row][..bytes].copy_from_slice(&act[..bytes]);
        block.scales[row] = scale(act);
        if MIN {
            for group in 0..32 / kind.group {
                block.sums[group][row] = scaled_signed_sum(act, group, 32 / kind.group);
            }
        }
    }
}

/// Adds the products of a part of a panel. The unit multiplies one block while the products of the block before are added.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_products<const PASSES: usize, const MIN: bool>(
    unit: &impl MatrixUnit,
    kind: PanelKind,
    weights: &[[f32; 16]],
    blocks: &[BlockOfRows],
    sums: &mut [[f32; 16]; ROWS],
) {
    let groups = 32 / kind.group;
    let vectors = weights.len() / blocks.len();
    let start = |place: Place| {
        let steps = &weights[vectors * place.block + WEIGHT_VECTORS / groups * place.group..];
        (&blocks[place.block].numbers, place.group * kind.group, &steps[..WEIGHT_VECTORS / groups])
    };
    let steps = blocks.len() * groups;
    let mut products = [const { Products([[[0; 16]; ROWS]; PASSES]) }; 2];
    let (numbers, column, steps_of) = start(Place::of(0, kind, blocks.len()));
    unit.multiply(numbers, column, steps_of, &mut products[0]);
    let mut totals = [_mm512_setzero_ps(); ROWS];
    for (total, sum) in totals.iter_mut().zip(&*sums) {
        *total = load_f32(sum);
    }
    for step in 0..steps {
        if step + 1 < steps {
            let (numbers, column, steps_of) = start(Place::of(step + 1, kind, blocks.len()));
            unit.multiply(numbers, column, steps_of, &mut products[(step + 1) % 2]);
        }
        let place = Place::of(step, kind, blocks.len());
        let (block, products) = (&blocks[place.block], &products[step % 2]);
        let tail = vectors * place.block + WEIGHT_VECTORS + GROUP_VECTORS * place.group;
        let (scales, mins) = (load_f32(&weights[tail + 1]), load_f32(&weights[tail + 2]));
        for (row, total) in totals.iter_mut().enumerate() {
            let mut product = load_i32(&products.0[0][row]);
            if PASSES == 2 {
                product =
                    _mm512_add_epi32(_mm512_slli_epi32::<8>(product), load_i32(&products.0[PASSES - 1][row]));
            }
            let scale = _mm512_mul_ps(scales, _mm512_set1_ps(block.scales[row]));
            *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), scale, *total);
            if MIN {
                *total = _mm512_fmadd_ps(mins, _mm512_set1_ps(block.sums[place.group][row]), *total);
            }
        }
    }
    for (total, sum) in totals.into_iter().zip(sums) {
        store_f32(sum, total);
    }
}

/// A group of a block.
#[derive(Clone, Copy)]
struct Place {
    block: usize,
    group: usize,
}

impl Place {
    /// The group that comes at a step, of `blocks` blocks: see [`PanelKind::run`].
    #[inline(always)]
    fn of(step: usize, kind: PanelKind, blocks: usize) -> Place {
        if kind.group == 32 {
            return Place { block: step, group: 0 };
        }
        let first = step / (2 * kind.run) * kind.run;
        let (run, step) = (kind.run.min(blocks - first), step % (2 * kind.run));
        Place { block: first + step % run, group: step / run }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_i32(from: &[i32; 16]) -> __m512i {
    // SAFETY: `loadu` asks for 64 readable bytes, which the array is.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[cfg(test)]
mod tests;
