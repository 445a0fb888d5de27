//! Panels of weights in 8 bits with many rows of activations, on AMX: 16 rows of activations times 16 rows of weights at a
//! time.
//!
//! The vectors of a panel lie as the tiles of weights do. Sums of integers are exact, and floats are added as on AVX-512, so
//! all bits are the same as there.

mod matrix_unit;

use std::arch::x86_64::*;

use matrix_unit::{Amx, MatrixUnit};

use super::activations::{Block, Tail, passes};
use super::avx512::{load_f32, store_f32};
use super::prefetch::Ahead;
use super::product::PanelKind;
use super::tile_loops::{GROUP_VECTORS, WEIGHT_VECTORS};

/// Rows of activations in a tile.
const ROWS: usize = 16;
/// Blocks of each row that meet one panel and then the other, while they are in the first cache: a whole number of runs.
const BLOCKS: usize = 16;

/// For each pass, the products of 16 rows of activations with 16 rows of weights.
#[repr(C, align(64))]
struct Products<const PASSES: usize>([[[i32; 16]; ROWS]; PASSES]);

/// Up to 16 rows of activations of one length, the same distance apart in memory: tiles are loaded from them as they lie.
#[derive(Clone, Copy)]
struct SpacedRows<'a, const B: usize> {
    rows: &'a [&'a [Block<B>]],
    /// Bytes from a row to the next.
    distance: usize,
}

impl<'a, const B: usize> SpacedRows<'a, B> {
    /// `None` for rows that do not lie like this.
    fn of(rows: &'a [&'a [Block<B>]]) -> Option<SpacedRows<'a, B>> {
        let at = |row: usize| rows[row].as_ptr().addr();
        let distance = if rows.len() < 2 { 0 } else { at(1).wrapping_sub(at(0)) };
        let follows =
            |row: usize| at(row) == at(row - 1).wrapping_add(distance) && rows[row].len() == rows[0].len();
        let fits = (1..=ROWS).contains(&rows.len()) && (1..rows.len()).all(follows);
        fits.then_some(SpacedRows { rows, distance })
    }
}

/// Whether [`panel`] takes these rows.
pub(super) fn loads<const B: usize>(acts: &[&[Block<B>]]) -> bool {
    acts.chunks(ROWS).all(|rows| SpacedRows::of(rows).is_some())
}

/// The products of two panels, of 16 rows each, with rows of activations that it [`loads`]: for each of these, 16 products
/// with the first panel and 16 with the second. Meanwhile, `ahead` is fetched.
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
    let part = ahead.len().div_ceil(acts.len().div_ceil(ROWS).max(1)).max(1);
    let mut ahead = ahead.chunks(part);
    for (acts, out) in acts.chunks(ROWS).zip(out.chunks_mut(2 * ROWS)) {
        let rows = SpacedRows::of(acts).expect("rows that it loads");
        // SAFETY: the caller answers for the instructions.
        let unit = unsafe { Amx::new(kind.group, acts.len()) };
        with_passes(&unit, kind, panels, rows, ahead.next().unwrap_or_default(), out);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn with_passes<const B: usize>(
    unit: &impl MatrixUnit,
    kind: PanelKind,
    panels: [&[f32]; 2],
    rows: SpacedRows<'_, B>,
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    match (passes(B), kind.min) {
        (1, false) => multiply::<B, 1, false>(unit, kind, panels, rows, ahead, out),
        (1, true) => multiply::<B, 1, true>(unit, kind, panels, rows, ahead, out),
        (_, false) => multiply::<B, 2, false>(unit, kind, panels, rows, ahead, out),
        (_, true) => multiply::<B, 2, true>(unit, kind, panels, rows, ahead, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply<const B: usize, const PASSES: usize, const MIN: bool>(
    unit: &impl MatrixUnit,
    kind: PanelKind,
    panels: [&[f32]; 2],
    rows: SpacedRows<'_, B>,
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    let vectors = WEIGHT_VECTORS + GROUP_VECTORS * (32 / kind.group);
    let panels = panels.map(|panel| panel.as_chunks::<16>().0);
    let count = panels[0].len() / vectors;
    let mut ahead = Ahead::new(ahead, count);
    let mut sums = [[[0.0; 16]; ROWS]; 2];
    for first in (0..count).step_by(BLOCKS) {
        let blocks = first..count.min(first + BLOCKS);
        blocks.clone().for_each(|_| ahead.fetch());
        for (panel, sums) in panels.iter().zip(&mut sums) {
            let weights = &panel[vectors * blocks.start..vectors * blocks.end];
            add_products::<B, PASSES, MIN>(unit, kind, weights, rows, blocks.start, sums);
        }
    }
    for (row, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        *out = [sums[0][row], sums[1][row]];
    }
}

/// Adds the products of a part of a panel with blocks from number `first` on. The unit multiplies one group of elements while
/// the products of the group before are added.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add_products<const B: usize, const PASSES: usize, const MIN: bool>(
    unit: &impl MatrixUnit,
    kind: PanelKind,
    weights: &[[f32; 16]],
    rows: SpacedRows<'_, B>,
    first: usize,
    sums: &mut [[f32; 16]; ROWS],
) {
    let groups = 32 / kind.group;
    let vectors = WEIGHT_VECTORS + GROUP_VECTORS * groups;
    let blocks = weights.len() / vectors;
    let multiply = |place: Place, products: &mut Products<PASSES>| {
        let at = vectors * place.block + WEIGHT_VECTORS / groups * place.group;
        let weights = &weights[at..][..WEIGHT_VECTORS / groups];
        unit.multiply(rows, first + place.block, place.group * kind.group, weights, products);
    };
    let mut products = [const { Products([[[0; 16]; ROWS]; PASSES]) }; 2];
    multiply(Place::of(0, kind, blocks), &mut products[0]);
    let mut totals = [_mm512_setzero_ps(); ROWS];
    for (total, sum) in totals.iter_mut().zip(&*sums) {
        *total = load_f32(sum);
    }
    for step in 0..blocks * groups {
        if step + 1 < blocks * groups {
            multiply(Place::of(step + 1, kind, blocks), &mut products[(step + 1) % 2]);
        }
        let (place, products) = (Place::of(step, kind, blocks), &products[step % 2]);
        let tail = vectors * place.block + WEIGHT_VECTORS + GROUP_VECTORS * place.group;
        let (scales, mins) = (load_f32(&weights[tail]), load_f32(&weights[tail + 1]));
        for (row, (total, act)) in totals.iter_mut().zip(rows.rows).enumerate() {
            let mut product = load_i32(&products.0[0][row]);
            if PASSES == 2 {
                let lower = load_i32(&products.0[PASSES - 1][row]);
                product = _mm512_add_epi32(_mm512_slli_epi32::<8>(product), lower);
            }
            let tail = Tail::of(&act[first + place.block]);
            let scale = _mm512_set1_ps(tail.scale);
            *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(product), _mm512_mul_ps(scales, scale), *total);
            if MIN {
                let all = _mm512_set1_ps(tail.scaled_sum(place.group, groups));
                *total = _mm512_fmadd_ps(mins, all, *total);
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
