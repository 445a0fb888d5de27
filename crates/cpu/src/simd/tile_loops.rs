//! The loops over tiles: [`Dot`] multiplies them with few rows of activations, [`Expand`] takes them apart into a panel for
//! products with many.

use std::marker::PhantomData;

use super::activations::{Block, Tail, four_at, passes};
use super::prefetch::prefetch_soon;
use super::tile_codecs::{ActivationBlocks, CodecWork, Steps, TileBytes, TileCodec};
use super::tile_vector::{PartWork, TileVector, TileWork, on};
use crate::isa::Isa;
use crate::repack::MAX_SLOTS;

/// Vectors of a panel for 32 elements: eight of weights, and two (scales, minima) for each group.
pub(super) const WEIGHT_VECTORS: usize = 8;
pub(super) const GROUP_VECTORS: usize = 2;

/// The products of groups of rows in tiles with `T` rows of signed activations: 16 for each group and row of activations.
pub(super) struct Dot<'a, const T: usize, const B: usize> {
    pub(super) isa: Isa,
    pub(super) tiles: &'a [u8],
    pub(super) acts: [&'a [Block<B>]; T],
    /// Whether tiles are read for the first time. The same tiles of the next group are then fetched meanwhile.
    pub(super) fetch: bool,
    /// For each row of activations, as many as there are between the rows.
    pub(super) out: &'a mut [[f32; 16]],
    pub(super) between: usize,
}

impl<const T: usize, const B: usize> CodecWork for Dot<'_, T, B> {
    type Output = ();

    fn run<C: TileCodec>(self) {
        on(self.isa, DotTiles::<C, T, B> { dot: self, codec: PhantomData });
    }
}

struct DotTiles<'a, C, const T: usize, const B: usize> {
    dot: Dot<'a, T, B>,
    codec: PhantomData<C>,
}

impl<C: TileCodec, const T: usize, const B: usize> TileWork for DotTiles<'_, C, T, B> {
    /// Panels are as good there.
    const ON_ARRAYS: bool = false;

    #[inline(always)]
    fn run<V: TileVector>(self, v: V) {
        let Dot { tiles, acts, fetch, out, between, .. } = self.dot;
        let each = acts[0].len() / (C::TILE.elements / 32);
        let acts = acts.map(|act| &C::Activations::of_tiles(act)[..each]);
        for (number, tiles) in C::Tile::tiles(tiles).chunks_exact(each.max(1)).enumerate() {
            let mut sums = [v.zero(); T];
            for (place, tile) in tiles.iter().enumerate() {
                if fetch {
                    prefetch_soon(tile.bytes().as_ptr().wrapping_add(each * C::TILE.bytes), C::TILE.bytes);
                }
                let mut here = [&acts[0][place]; T];
                for (here, act) in here.iter_mut().zip(&acts) {
                    *here = &act[place];
                }
                dot_tile::<V, C, T, B>(v, tile, &here, &mut sums);
            }
            for (t, sum) in sums.into_iter().enumerate() {
                v.store(&mut out[t * between + number], sum);
            }
        }
    }
}

/// Adds the products of a tile. The numbers of parts are constants, so that offsets are.
#[inline(always)]
fn dot_tile<V: TileVector, C: TileCodec, const T: usize, const B: usize>(
    v: V,
    tile: &C::Tile,
    acts: &[&C::Activations<B>; T],
    sums: &mut [V::Floats; T],
) {
    macro_rules! parts {
        ($($part:literal)*) => {
            $(v.call(DotPart::<V, C, T, B, $part> { tile, acts, sums });)*
        };
    }
    parts!(0);
    if C::PARTS >= 4 {
        parts!(1 2 3);
    }
    if C::PARTS == 8 {
        parts!(4 5 6 7);
    }
}

/// Adds the products of part number `PART`.
struct DotPart<'a, V: TileVector, C: TileCodec, const T: usize, const B: usize, const PART: usize> {
    tile: &'a C::Tile,
    acts: &'a [&'a C::Activations<B>; T],
    sums: &'a mut [V::Floats; T],
}

impl<V: TileVector, C: TileCodec, const T: usize, const B: usize, const PART: usize> PartWork<V>
    for DotPart<'_, V, C, T, B, PART>
{
    #[inline(always)]
    fn run(self, v: V) {
        // Copies: the compiler cannot know that what is behind a field's reference stays as it is.
        let (tile, acts) = (self.tile.bytes(), *self.acts);
        let products = part_products::<V, C, T, B>(v, tile, PART, &acts);
        let mut sums = *self.sums;
        add_scaled::<V, C, T, B>(v, tile, PART, &acts, &products, &mut sums);
        *self.sums = sums;
    }
}

/// The integer products of a part: for each of its slots and each row of activations, one for each row of weights.
type Products<V, const T: usize> = [[<V as TileVector>::Ints; T]; MAX_SLOTS];

/// Vectors of sums that stay in registers while a part is read.
const MAX_SUMS: usize = 24;

#[inline(always)]
fn part_products<V: TileVector, C: TileCodec, const T: usize, const B: usize>(
    v: V,
    tile: &[u8],
    part: usize,
    acts: &[&C::Activations<B>; T],
) -> Products<V, T> {
    let mut lower = [[v.splat_int(0); T]; MAX_SLOTS];
    if multiplies_codes::<V, C>() && C::BIAS != 0 {
        for (slot, lower) in lower.iter_mut().enumerate().take(C::SLOTS) {
            let group = C::group_of(part, slot);
            for (product, act) in lower.iter_mut().zip(acts) {
                let groups = C::GROUPS_OF_32;
                let sum = Tail::of(act.block(group / groups)).sum(group % groups, groups);
                *product = v.splat_int(-C::BIAS * sum);
            }
        }
    }
    if passes(B) == 1 {
        C::steps(v, tile, part, &mut DotSteps::<V, C, T, B, 0> { acts, products: &mut lower });
        return lower;
    }
    let mut upper = [[v.splat_int(0); T]; MAX_SLOTS];
    if 2 * C::SLOTS * T <= MAX_SUMS {
        let (upper, lower) = (&mut upper, &mut lower);
        C::steps(v, tile, part, &mut BothSteps::<V, C, T, B> { acts, upper, lower });
        join_passes::<V, C, T>(v, upper, lower)
    } else {
        C::steps(v, tile, part, &mut DotSteps::<V, C, T, B, 0> { acts, products: &mut upper });
        let mut products = join_passes::<V, C, T>(v, &upper, &lower);
        C::steps(v, tile, part, &mut DotSteps::<V, C, T, B, 1> { acts, products: &mut products });
        products
    }
}

#[inline(always)]
fn join_passes<V: TileVector, C: TileCodec, const T: usize>(
    v: V,
    upper: &Products<V, T>,
    lower: &Products<V, T>,
) -> Products<V, T> {
    let mut joined = *lower;
    for slot in 0..C::SLOTS {
        for t in 0..T {
            joined[slot][t] = v.join_passes(upper[slot][t], lower[slot][t]);
        }
    }
    joined
}

/// Whether codes are multiplied as they are. The bias then leaves the products through the sums of activations.
#[inline(always)]
fn multiplies_codes<V: TileVector, C: TileCodec>() -> bool {
    C::LARGEST_CODE <= V::LARGEST_CODE
}

/// The steps of one pass.
struct DotSteps<'a, V: TileVector, C: TileCodec, const T: usize, const B: usize, const PASS: usize> {
    acts: &'a [&'a C::Activations<B>; T],
    products: &'a mut Products<V, T>,
}

impl<V: TileVector, C: TileCodec, const T: usize, const B: usize, const PASS: usize> Steps<V>
    for DotSteps<'_, V, C, T, B, PASS>
{
    #[inline(always)]
    fn step(&mut self, v: V, slot: usize, k: usize, codes: V::Bytes) {
        let bias = if multiplies_codes::<V, C>() { 0 } else { C::BIAS };
        for (product, act) in self.products[slot].iter_mut().zip(self.acts) {
            let four = four_at(act.block(k / 32), PASS, k % 32);
            *product = v.add_products(*product, codes, bias, four);
        }
    }
}

/// The steps of both passes at once: codes are taken apart only once.
struct BothSteps<'a, V: TileVector, C: TileCodec, const T: usize, const B: usize> {
    acts: &'a [&'a C::Activations<B>; T],
    upper: &'a mut Products<V, T>,
    lower: &'a mut Products<V, T>,
}

impl<V: TileVector, C: TileCodec, const T: usize, const B: usize> Steps<V> for BothSteps<'_, V, C, T, B> {
    #[inline(always)]
    fn step(&mut self, v: V, slot: usize, k: usize, codes: V::Bytes) {
        let (acts, upper, lower) = (self.acts, &mut *self.upper, &mut *self.lower);
        DotSteps::<V, C, T, B, 0> { acts, products: upper }.step(v, slot, k, codes);
        DotSteps::<V, C, T, B, 1> { acts, products: lower }.step(v, slot, k, codes);
    }
}

/// Adds products and minima times the scales of their groups, in the order of panels: see `TileSpec::run_of_blocks`.
#[inline(always)]
fn add_scaled<V: TileVector, C: TileCodec, const T: usize, const B: usize>(
    v: V,
    tile: &[u8],
    part: usize,
    acts: &[&C::Activations<B>; T],
    products: &Products<V, T>,
    sums: &mut [V::Floats; T],
) {
    for (slot, products) in products.iter().enumerate().take(C::SLOTS) {
        let group = C::group_of(part, slot);
        let (scale, min) = (C::group_scale(v, tile, group), C::group_min(v, tile, group));
        for ((total, product), act) in sums.iter_mut().zip(products).zip(acts) {
            let groups = C::GROUPS_OF_32;
            let tail = Tail::of(act.block(group / groups));
            *total = v.mul_add(v.to_floats(*product), v.mul(scale, v.splat(tail.scale)), *total);
            if C::HAS_MIN {
                *total = v.mul_add(min, v.splat(tail.scaled_sum(group % groups, groups)), *total);
            }
        }
    }
}

/// Takes the tiles of a group apart into a panel.
pub(super) struct Expand<'a> {
    pub(super) isa: Isa,
    pub(super) tiles: &'a [u8],
    pub(super) panel: &'a mut [f32],
}

impl CodecWork for Expand<'_> {
    type Output = ();

    fn run<C: TileCodec>(self) {
        on(self.isa, ExpandTiles::<C> { expand: self, codec: PhantomData });
    }
}

struct ExpandTiles<'a, C> {
    expand: Expand<'a>,
    codec: PhantomData<C>,
}

impl<C: TileCodec> ExpandTiles<'_, C> {
    /// Vectors for 32 elements.
    const VECTORS: usize = WEIGHT_VECTORS + GROUP_VECTORS * C::GROUPS_OF_32;
}

impl<C: TileCodec> TileWork for ExpandTiles<'_, C> {
    #[inline(always)]
    fn run<V: TileVector>(self, v: V) {
        let Expand { isa, tiles, panel } = self.expand;
        let bias = if panel_is_unsigned(isa) && C::BIAS != 0 { C::BIAS - 128 } else { C::BIAS };
        let vectors = panel.as_chunks_mut::<16>().0;
        let panels = vectors.chunks_exact_mut(Self::VECTORS * (C::TILE.elements / 32));
        for (tile, panel) in C::Tile::tiles(tiles).iter().zip(panels) {
            let tile = tile.bytes();
            for part in 0..C::PARTS {
                C::steps(v, tile, part, &mut ExpandSteps::<C> { panel, bias, codec: PhantomData });
                for slot in 0..C::SLOTS {
                    let group = C::group_of(part, slot);
                    let at = group / C::GROUPS_OF_32 * Self::VECTORS
                        + WEIGHT_VECTORS
                        + group % C::GROUPS_OF_32 * GROUP_VECTORS;
                    v.store(&mut panel[at], C::group_scale(v, tile, group));
                    v.store(&mut panel[at + 1], C::group_min(v, tile, group));
                }
            }
        }
    }
}

struct ExpandSteps<'a, C> {
    panel: &'a mut [[f32; 16]],
    /// What codes are larger by than what the panel holds.
    bias: i32,
    codec: PhantomData<C>,
}

impl<V: TileVector, C: TileCodec> Steps<V> for ExpandSteps<'_, C> {
    #[inline(always)]
    fn step(&mut self, v: V, _slot: usize, k: usize, codes: V::Bytes) {
        let to = &mut self.panel[k / 32 * ExpandTiles::<C>::VECTORS + k % 32 / 4];
        v.store_bytes(to, v.minus(codes, self.bias));
    }
}

/// Whether a panel holds weights plus 128, unless they have no sign.
fn panel_is_unsigned(isa: Isa) -> bool {
    isa == Isa::Avx512
}
