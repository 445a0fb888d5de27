//! Inner loops of matrix products: which code runs for which instructions.
//!
//! Weights come in groups of 16 rows, in one of three forms. *Tiles* are as they are stored (`repack`). A *panel* is a
//! group taken apart, for products with many rows of activations: for each 32 elements, eight vectors of four weights of
//! each row, signed bytes or plus 128, as instructions want them; and then, for each group of elements with a scale of its
//! own, scales and minima. A *panel of floats* has 16 floats, one a row, for each element.
//!
//! With one kind of instructions, all loops compute the same bits: sums of integers are exact, and floats are added in one
//! order. So a product does not depend on the rows that are multiplied beside it.

use orlop_graph::DType;

use super::activations::passes;
pub(crate) use super::activations::{BYTES_8, BYTES_16, Block, quantize};
use super::prefetch::prefetch;
use super::tile_codecs::with_codec;
use super::tile_floats::{Decode, DotFloats};
use super::tile_loops::{Dot, Expand, GROUP_VECTORS, WEIGHT_VECTORS};
use super::{scalar, tile_spec};
use crate::isa::Isa;

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{amx, avx2, avx512};

/// Rows of activations that [`panel_f32`] takes at most.
pub(crate) const FLOAT_ROWS: usize = 8;
/// Rows of activations that [`dot_tiles_f32`] takes at most.
pub(crate) const FEW_FLOAT_TILES: usize = 4;
/// Rows of activations that [`dot_tiles`] takes at most. With more, taking weights apart once pays off.
pub(crate) const FEW: usize = 16;
/// Rows of activations that [`dot_rows`] takes at most.
pub(crate) const FEW_FLOATS: usize = 6;

/// What panels of a type are like.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // some tell AVX2 which sums fit 16 bits
pub(crate) struct PanelKind {
    /// Whether groups have minima.
    pub(crate) min: bool,
    /// Elements of a group.
    pub(crate) group: usize,
    /// Bias of the codes that weights were made of.
    pub(crate) bias: i32,
    /// The largest of these codes.
    pub(crate) largest_code: i32,
    /// See [`TileSpec::run_of_blocks`](crate::repack::TileSpec::run_of_blocks).
    pub(crate) run: usize,
}

/// What panels of a type are like; `None` for types that are not repacked.
pub(crate) fn panel_kind(dtype: DType) -> Option<PanelKind> {
    let tile = tile_spec(dtype)?;
    let (min, group) = (tile.has_min(), tile.group());
    let (bias, largest_code) = (tile.bias(), tile.largest_code());
    Some(PanelKind { min, group, bias, largest_code, run: tile.run_of_blocks() })
}

impl PanelKind {
    /// Floats for 32 elements.
    fn floats(&self) -> usize {
        16 * (WEIGHT_VECTORS + GROUP_VECTORS * (32 / self.group))
    }
}

/// Floats of a panel for 32 elements of a type; 0 for types that are not repacked.
pub(crate) fn panel_floats(dtype: DType) -> usize {
    panel_kind(dtype).map_or(0, |kind| kind.floats())
}

/// Whether [`dot_tiles`] is faster than panels for few rows of activations.
pub(crate) fn has_tile_products(isa: Isa) -> bool {
    isa != Isa::Scalar
}

/// Most rows of activations that [`panel`] is given at a time.
pub(crate) const MANY: usize = 48;

/// Rows of activations that [`panel`] is best given at a time: few enough that their results stay in the first cache.
pub(crate) fn many(isa: Isa) -> usize {
    if isa == Isa::Amx { MANY } else { 12 }
}

/// Takes the tiles of a group apart into a panel.
pub(crate) fn expand(isa: Isa, dtype: DType, tiles: &[u8], panel: &mut [f32]) {
    with_codec(dtype, Expand { isa, tiles, panel })
        .unwrap_or_else(|| unreachable!("{dtype} is not repacked"));
}

/// Makes a panel of floats of the tiles of a group.
pub(crate) fn decode(isa: Isa, dtype: DType, tiles: &[u8], panel: &mut [[f32; 16]]) {
    with_codec(dtype, Decode { isa, tiles, panel })
        .unwrap_or_else(|| unreachable!("{dtype} is not repacked"));
}

/// Products of groups of tiles that there is room for.
const PRODUCTS: usize = 96;

/// Room for the products of groups of tiles with few rows of activations, before any result is written.
pub(crate) struct FewProducts {
    products: [[f32; 16]; PRODUCTS],
    rows: usize,
}

impl FewProducts {
    pub(crate) fn new(rows: usize) -> FewProducts {
        FewProducts { products: [[0.0; 16]; PRODUCTS], rows: rows.clamp(1, FEW) }
    }

    /// Rows of activations that there is room for.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Groups that there is room for.
    pub(crate) fn groups(&self) -> usize {
        (self.products.len() / self.rows).min(48)
    }

    /// The products of all groups with a row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        let groups = self.groups();
        self.products[row * groups..][..groups].as_flattened_mut()
    }
}

/// The products of groups in tiles, one after the other, with up to [`FEW`] rows of activations, from group number
/// `first` of `out` on. Not for [`Isa::Scalar`]: see [`has_tile_products`].
pub(crate) fn dot_tiles<const B: usize>(
    isa: Isa,
    dtype: DType,
    tiles: &[u8],
    acts: &[&[Block<B>]],
    first: usize,
    out: &mut FewProducts,
) {
    let between = out.groups();
    let most = rows_of_tiles(isa, dtype, B);
    if acts.len() <= most {
        return dot_groups(isa, dtype, tiles, acts, true, &mut out.products[first..], between);
    }
    let spec = tile_spec(dtype).unwrap_or_else(|| unreachable!("{dtype} is not repacked"));
    let bytes = acts[0].len() * 32 / spec.elements * spec.bytes;
    let most = acts.len().div_ceil(acts.len().div_ceil(most));
    for (number, tiles) in tiles.chunks_exact(bytes.max(1)).enumerate() {
        for (chunk, acts) in acts.chunks(most).enumerate() {
            let out = &mut out.products[chunk * most * between + first + number..];
            dot_groups(isa, dtype, tiles, acts, chunk == 0, out, between);
        }
    }
}

/// Rows of activations that are multiplied at a time: with more, sums and addresses would not stay in registers.
fn rows_of_tiles(isa: Isa, dtype: DType, block_bytes: usize) -> usize {
    let slots = tile_spec(dtype).map_or(0, |tile| tile.slots);
    match (isa.vectors(), slots, passes(block_bytes)) {
        (Isa::Avx512, 1, 2) => 6,
        (Isa::Avx512, 4, 2) => 3,
        (Isa::Avx512, 1 | 2, _) => 8,
        _ => 4,
    }
}

fn dot_groups<const B: usize>(
    isa: Isa,
    dtype: DType,
    tiles: &[u8],
    acts: &[&[Block<B>]],
    fetch: bool,
    out: &mut [[f32; 16]],
    between: usize,
) {
    macro_rules! dot {
        ($($act:ident)*) => { with_codec(dtype, Dot { isa, tiles, acts: [$($act),*], fetch, out, between }) };
    }
    let done = match *acts {
        [a] => dot!(a),
        [a, b] => dot!(a b),
        [a, b, c] => dot!(a b c),
        [a, b, c, d] => dot!(a b c d),
        [a, b, c, d, e] => dot!(a b c d e),
        [a, b, c, d, e, f] => dot!(a b c d e f),
        [a, b, c, d, e, f, g] => dot!(a b c d e f g),
        [a, b, c, d, e, f, g, h] => dot!(a b c d e f g h),
        _ => return debug_assert!(acts.is_empty(), "too many rows"),
    };
    done.unwrap_or_else(|| unreachable!("{dtype} is not repacked"));
}

/// The products of two panels with rows of activations: for each row, 16 with the first panel and 16 with the second. `ahead`
/// is what will be read soon.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn panel<const B: usize>(
    isa: Isa,
    kind: PanelKind,
    panels: [&[f32]; 2],
    acts: &[&[Block<B>]],
    ahead: &[u8],
    out: &mut [[f32; 16]],
) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Amx && amx::loads(acts) {
        // SAFETY: `panel` asks for AVX-512 and AMX; devices only have an `Isa` that the machine has.
        return unsafe { amx::panel(kind, panels, acts, ahead, out) };
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 {
        // SAFETY: `panel` asks for AVX-512 with VNNI; devices only have an `Isa` that the machine has.
        return unsafe { avx512::panel(kind, panels, acts, ahead, out) };
    }
    prefetch(ahead);
    #[cfg(target_arch = "x86_64")]
    if isa != Isa::Scalar {
        // SAFETY: `panel` asks for AVX2 and FMA; as above.
        return unsafe { avx2::panel(kind, panels, acts, out) };
    }
    #[cfg(target_arch = "aarch64")]
    if isa == Isa::Neon {
        // SAFETY: `panel` asks for NEON and dot products; as above.
        return unsafe { neon::panel(kind, panels, acts, out) };
    }
    for (act, out) in acts.iter().zip(out.as_chunks_mut::<2>().0) {
        *out = panels.map(|panel| scalar::panel(kind, panel, act));
    }
}

/// The products of two panels of floats with up to [`FLOAT_ROWS`] rows of activations: for each row, 16 with the first
/// panel and 16 with the second.
pub(crate) fn panel_f32(isa: Isa, panels: [&[[f32; 16]]; 2], acts: &[&[[u8; 4]]], out: &mut [[f32; 16]]) {
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512 {
        return match *acts {
            // SAFETY: `panel_f32` asks for AVX-512; devices only have an `Isa` that the machine has.
            [a] => unsafe { avx512::panel_f32(panels, [a], out) },
            // SAFETY: as above.
            [a, b] => unsafe { avx512::panel_f32(panels, [a, b], out) },
            // SAFETY: as above.
            [a, b, c] => unsafe { avx512::panel_f32(panels, [a, b, c], out) },
            // SAFETY: as above.
            [a, b, c, d] => unsafe { avx512::panel_f32(panels, [a, b, c, d], out) },
            // SAFETY: as above.
            [a, b, c, d, e] => unsafe { avx512::panel_f32(panels, [a, b, c, d, e], out) },
            // SAFETY: as above.
            [a, b, c, d, e, f] => unsafe { avx512::panel_f32(panels, [a, b, c, d, e, f], out) },
            // SAFETY: as above.
            [a, b, c, d, e, f, g] => unsafe { avx512::panel_f32(panels, [a, b, c, d, e, f, g], out) },
            // SAFETY: as above.
            [a, b, c, d, e, f, g, h] => unsafe { avx512::panel_f32(panels, [a, b, c, d, e, f, g, h], out) },
            _ => debug_assert!(acts.is_empty(), "too many rows"),
        };
    }
    for (number, panel) in panels.into_iter().enumerate() {
        let out = &mut out[number..];
        match isa {
            // SAFETY: `panel_f32` asks for AVX2 and FMA; as above.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::panel_f32(panel, acts, out) },
            // SAFETY: `panel_f32` asks for NEON; as above.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => unsafe { neon::panel_f32(panel, acts, out) },
            _ => {
                for (act, out) in acts.iter().zip(out.iter_mut().step_by(2)) {
                    *out = panel_f32_scalar(panel, act);
                }
            }
        }
    }
}

/// The same products of two groups in tiles, with up to [`FEW_FLOAT_TILES`] rows of activations. Not for [`Isa::Scalar`]: see
/// [`has_tile_products`].
pub(crate) fn dot_tiles_f32(
    isa: Isa,
    dtype: DType,
    tiles: [&[u8]; 2],
    acts: &[&[[u8; 4]]],
    out: &mut [[f32; 16]],
) {
    let done = match *acts {
        [a] => with_codec(dtype, DotFloats { isa, tiles, acts: [a], out }),
        [a, b] => with_codec(dtype, DotFloats { isa, tiles, acts: [a, b], out }),
        [a, b, c] => with_codec(dtype, DotFloats { isa, tiles, acts: [a, b, c], out }),
        [a, b, c, d] => with_codec(dtype, DotFloats { isa, tiles, acts: [a, b, c, d], out }),
        _ => return debug_assert!(acts.is_empty(), "too many rows"),
    };
    done.unwrap_or_else(|| unreachable!("{dtype} is not repacked"));
}

fn panel_f32_scalar(panel: &[[f32; 16]], act: &[[u8; 4]]) -> [f32; 16] {
    let mut sums = [0.0; 16];
    for (weights, act) in panel.iter().zip(act) {
        let act = f32::from_le_bytes(*act);
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum += weight * act;
        }
    }
    sums
}

/// The products of rows of weights (F32, F16 or BF16), `bytes` long and one after the other, with up to [`FEW_FLOATS`]
/// rows of activations: `out` has a row for each of these, of a length that is a multiple of four. What lies `ahead` rows
/// further will be read soon, if that is not 0.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn dot_rows<const N: usize>(
    isa: Isa,
    dtype: DType,
    rows: &[u8],
    bytes: usize,
    acts: &[&[[u8; 4]]],
    ahead: usize,
    out: &mut [[f32; N]],
) {
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512 {
        match *acts {
            // SAFETY: `dot_rows` asks for AVX-512; devices only have an `Isa` that the machine has.
            [a] => unsafe { avx512::dot_rows(dtype, rows, bytes, [a], ahead, out) },
            // SAFETY: as above.
            [a, b] => unsafe { avx512::dot_rows(dtype, rows, bytes, [a, b], ahead, out) },
            // SAFETY: as above.
            [a, b, c] => unsafe { avx512::dot_rows(dtype, rows, bytes, [a, b, c], ahead, out) },
            // SAFETY: as above.
            [a, b, c, d] => unsafe { avx512::dot_rows(dtype, rows, bytes, [a, b, c, d], ahead, out) },
            // SAFETY: as above.
            [a, b, c, d, e] => unsafe { avx512::dot_rows(dtype, rows, bytes, [a, b, c, d, e], ahead, out) },
            // SAFETY: as above.
            [a, b, c, d, e, f] => unsafe {
                avx512::dot_rows(dtype, rows, bytes, [a, b, c, d, e, f], ahead, out)
            },
            _ => debug_assert!(acts.is_empty(), "too many rows"),
        }
        let size = dtype.block_bytes() as usize;
        let whole = bytes / (16 * size) * (16 * size);
        for (number, row) in rows.chunks_exact(bytes).enumerate().filter(|_| whole < bytes) {
            for (act, out) in acts.iter().zip(&mut *out) {
                out[number] += dot_row_scalar(dtype, &row[whole..], &act[whole / size..]);
            }
        }
        return;
    }
    match isa {
        // SAFETY: `dot_rows` asks for AVX2, FMA and F16C; as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::dot_rows(dtype, rows, bytes, acts, out) },
        // SAFETY: `dot_rows` asks for NEON; as above.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => unsafe { neon::dot_rows(dtype, rows, bytes, acts, out) },
        _ => {
            for (number, row) in rows.chunks_exact(bytes).enumerate() {
                for (act, out) in acts.iter().zip(&mut *out) {
                    out[number] = dot_row_scalar(dtype, row, act);
                }
            }
        }
    }
}

/// The sum of products of a row and activations, in eight lanes.
pub(super) fn dot_row_scalar(dtype: DType, row: &[u8], act: &[[u8; 4]]) -> f32 {
    match dtype {
        DType::F16 => lanes(row.as_chunks().0, act, |bytes| half::f16::from_le_bytes(bytes).to_f32()),
        DType::BF16 => lanes(row.as_chunks().0, act, |bytes| half::bf16::from_le_bytes(bytes).to_f32()),
        _ => lanes(row.as_chunks().0, act, f32::from_le_bytes),
    }
}

fn lanes<const SIZE: usize>(row: &[[u8; SIZE]], act: &[[u8; 4]], decode: impl Fn([u8; SIZE]) -> f32) -> f32 {
    let mut sums = [0.0; 8];
    for (row, act) in row.chunks(8).zip(act.chunks(8)) {
        for ((sum, weight), act) in sums.iter_mut().zip(row).zip(act) {
            *sum += decode(*weight) * f32::from_le_bytes(*act);
        }
    }
    sums.iter().sum()
}

/// Sixteen rows of floats become a panel: `panel[k][row]` is element `k` of a row. Rows are `length` floats long and
/// lie one after the other; there may be fewer than sixteen, and then the rest of the panel is 0.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
pub(crate) fn transpose(isa: Isa, rows: &[f32], length: usize, panel: &mut [[f32; 16]]) {
    let mut done = 0;
    #[cfg(target_arch = "x86_64")]
    if isa.vectors() == Isa::Avx512 && rows.len() == 16 * length {
        for (number, out) in panel.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let at = |row: usize| rows[row * length + 16 * number..].first_chunk().expect("16 of the row");
            // SAFETY: `transpose` asks for AVX-512; devices only have an `Isa` that the machine has.
            unsafe { avx512::transpose(std::array::from_fn(at), out) };
            done = 16 * (number + 1);
        }
    }
    let _ = isa;
    for (k, out) in panel.iter_mut().enumerate().skip(done) {
        *out = [0.0; 16];
        for (out, row) in out.iter_mut().zip(rows.chunks_exact(length)) {
            *out = row[k];
        }
    }
}

#[cfg(test)]
mod tests;
