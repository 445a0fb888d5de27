//! Tiles in F32: [`Decode`] makes a panel of floats of them, [`DotFloats`] multiplies them with few rows of activations. Both
//! compute the same weights, and [`DotFloats`] adds products in the order of elements, as loops over panels of floats do.

#![allow(clippy::needless_range_loop)] // places in several arrays follow from one number

use std::marker::PhantomData;

use super::prefetch::prefetch_soon;
use super::tile_codecs::{CodecWork, Steps, TileBytes, TileCodec};
use super::tile_vector::{TileVector, TileWork, on};
use crate::isa::Isa;

/// Fours of elements that a tile has at most.
const MAX_FOURS: usize = 64;

/// Decodes the tiles of a group.
pub(super) struct Decode<'a> {
    pub(super) isa: Isa,
    pub(super) tiles: &'a [u8],
    pub(super) panel: &'a mut [[f32; 16]],
}

impl CodecWork for Decode<'_> {
    type Output = ();

    fn run<C: TileCodec>(self) {
        on(self.isa, DecodeTiles::<C> { decode: self, codec: PhantomData });
    }
}

struct DecodeTiles<'a, C> {
    decode: Decode<'a>,
    codec: PhantomData<C>,
}

impl<C: TileCodec> TileWork for DecodeTiles<'_, C> {
    #[inline(always)]
    fn run<V: TileVector>(self, v: V) {
        let Decode { tiles, panel, .. } = self.decode;
        let mut weights = [[v.load(&[0; 64]); MAX_FOURS]];
        for (tile, panel) in C::Tile::tiles(tiles).iter().zip(panel.chunks_exact_mut(C::TILE.elements)) {
            each_weight::<V, C, 1>(v, [tile], &mut weights, &mut StoreWeights { panel });
        }
    }
}

/// The products of two groups of rows in tiles with `T` rows of activations: for each of these, 16 with the first group and 16
/// with the second.
pub(super) struct DotFloats<'a, const T: usize> {
    pub(super) isa: Isa,
    pub(super) tiles: [&'a [u8]; 2],
    pub(super) acts: [&'a [[u8; 4]]; T],
    pub(super) out: &'a mut [[f32; 16]],
}

impl<const T: usize> CodecWork for DotFloats<'_, T> {
    type Output = ();

    fn run<C: TileCodec>(self) {
        on(self.isa, DotFloatTiles::<C, T> { dot: self, codec: PhantomData });
    }
}

struct DotFloatTiles<'a, C, const T: usize> {
    dot: DotFloats<'a, T>,
    codec: PhantomData<C>,
}

impl<C: TileCodec, const T: usize> TileWork for DotFloatTiles<'_, C, T> {
    /// Panels are as good there.
    const ON_ARRAYS: bool = false;

    #[inline(always)]
    fn run<V: TileVector>(self, v: V) {
        let DotFloats { tiles, acts, out, .. } = self.dot;
        let [first, second] = tiles.map(C::Tile::tiles);
        let (mut weights, mut sums) = ([[v.load(&[0; 64]); MAX_FOURS]; 2], [[v.zero(); T]; 2]);
        for (place, (a, b)) in first.iter().zip(second).enumerate() {
            for (tile, tiles) in [(a, tiles[0]), (b, tiles[1])] {
                // The same tile two groups further.
                prefetch_soon(tile.bytes().as_ptr().wrapping_add(2 * tiles.len()), C::TILE.bytes);
            }
            let mut here = acts;
            for act in &mut here {
                *act = &act[place * C::TILE.elements..][..C::TILE.elements];
            }
            each_weight::<V, C, 2>(v, [a, b], &mut weights, &mut AddProducts { acts: here, sums: &mut sums });
        }
        for (t, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate().take(T) {
            v.store(&mut out[0], sums[0][t]);
            v.store(&mut out[1], sums[1][t]);
        }
    }
}

/// Takes the weights of `N` groups.
trait EachWeight<V: TileVector, const N: usize> {
    /// Element number `k` of every row.
    fn take(&mut self, v: V, k: usize, weights: [V::Floats; N]);
}

struct StoreWeights<'a> {
    panel: &'a mut [[f32; 16]],
}

impl<V: TileVector> EachWeight<V, 1> for StoreWeights<'_> {
    #[inline(always)]
    fn take(&mut self, v: V, k: usize, [weights]: [V::Floats; 1]) {
        v.store(&mut self.panel[k], weights);
    }
}

struct AddProducts<'a, V: TileVector, const T: usize> {
    acts: [&'a [[u8; 4]]; T],
    sums: &'a mut [[V::Floats; T]; 2],
}

impl<V: TileVector, const T: usize> EachWeight<V, 2> for AddProducts<'_, V, T> {
    #[inline(always)]
    fn take(&mut self, v: V, k: usize, weights: [V::Floats; 2]) {
        for t in 0..T {
            let act = v.splat(f32::from_le_bytes(self.acts[t][k]));
            self.sums[0][t] = v.mul_add(weights[0], act, self.sums[0][t]);
            self.sums[1][t] = v.mul_add(weights[1], act, self.sums[1][t]);
        }
    }
}

/// Hands over all weights of a tile of each group, in the order of elements. `bytes` is room for them before they are scaled.
#[inline(always)]
fn each_weight<V: TileVector, C: TileCodec, const N: usize>(
    v: V,
    tiles: [&C::Tile; N],
    bytes: &mut [[V::Bytes; MAX_FOURS]; N],
    to: &mut impl EachWeight<V, N>,
) {
    for (tile, bytes) in tiles.iter().zip(&mut *bytes) {
        for part in 0..C::PARTS {
            C::steps(v, tile.bytes(), part, &mut KeepWeights::<V, C> { bytes, codec: PhantomData });
        }
    }
    let fours = 8 / C::GROUPS_OF_32;
    for group in 0..C::TILE.elements / (4 * fours) {
        let (mut scales, mut minima) = ([v.zero(); N], [v.zero(); N]);
        for n in 0..N {
            scales[n] = C::group_scale(v, tiles[n].bytes(), group);
            minima[n] = C::group_min(v, tiles[n].bytes(), group);
        }
        for four in group * fours..(group + 1) * fours {
            macro_rules! places {
                ($($place:literal)*) => {
                    $(
                        let mut weights = [v.zero(); N];
                        for n in 0..N {
                            let weight = v.to_floats(v.signed_byte::<$place>(bytes[n][four]));
                            weights[n] = v.mul(weight, scales[n]);
                            if C::HAS_MIN {
                                // A sum: the product is rounded before.
                                weights[n] = v.mul_add(weights[n], v.splat(1.0), minima[n]);
                            }
                        }
                        to.take(v, 4 * four + $place, weights);
                    )*
                };
            }
            places!(0 1 2 3);
        }
    }
}

struct KeepWeights<'a, V: TileVector, C> {
    bytes: &'a mut [V::Bytes; MAX_FOURS],
    codec: PhantomData<C>,
}

impl<V: TileVector, C: TileCodec> Steps<V> for KeepWeights<'_, V, C> {
    #[inline(always)]
    fn step(&mut self, v: V, _slot: usize, k: usize, codes: V::Bytes) {
        self.bytes[k / 4] = v.minus(codes, C::BIAS);
    }
}
