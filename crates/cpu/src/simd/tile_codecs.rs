//! The tiles of every type that is repacked: their specifications, and how they are taken apart, written once for all
//! vectors. `README.md` in this folder explains the terms.

mod blocks_256;
mod blocks_32;
mod codebooks;

use orlop_graph::DType;

use self::blocks_32::{IQ4_NL, MXFP4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use self::blocks_256::{IQ4_XS, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ2_0};
use self::codebooks::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, NVFP4, Q1_0, Q2_0, TQ1_0};
use super::activations::Block;
use super::tile_vector::TileVector;
use crate::repack::TileSpec;

/// How the tiles of one type are taken apart.
///
/// Methods with vectors are `inline(always)`, as is all that they call, for the reason that `TileVector` gives.
pub(super) trait TileCodec {
    /// Where the fields are.
    const TILE: TileSpec;
    // What the loops ask of it, as constants: nothing is computed while they run.
    const PARTS: usize = Self::TILE.parts;
    const SLOTS: usize = Self::TILE.slots;
    const GROUPS_OF_32: usize = Self::TILE.groups_of_32();
    const BIAS: i32 = Self::TILE.bias();
    const LARGEST_CODE: i32 = Self::TILE.largest_code();
    const HAS_MIN: bool = Self::TILE.has_min();
    const HAS_GROUP_SCALES: bool = Self::TILE.has_group_scales();

    /// `[u8; TILE.bytes]`.
    type Tile: TileBytes;
    /// `[Block<B>; TILE.elements / 32]`.
    type Activations<const B: usize>: ActivationBlocks<B>;

    /// Hands over the steps of a part.
    fn steps<V: TileVector>(v: V, tile: &[u8], part: usize, to: &mut impl Steps<V>);

    /// The group of a slot.
    #[inline(always)]
    fn group_of(part: usize, slot: usize) -> usize {
        part * Self::SLOTS + slot
    }

    /// The scale of all groups, or what their integers are multiplied with.
    fn scale<V: TileVector>(v: V, tile: &[u8]) -> V::Floats;

    /// The same for minima.
    #[inline(always)]
    fn min<V: TileVector>(v: V, _tile: &[u8]) -> V::Floats {
        v.zero()
    }

    /// The integer of a group's scale, in types with group scales.
    #[inline(always)]
    fn scale_number<V: TileVector>(v: V, _tile: &[u8], _group: usize) -> V::Ints {
        v.splat_int(1)
    }

    /// The integer of a group's minimum.
    #[inline(always)]
    fn min_number<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Ints {
        Self::scale_number(v, tile, group)
    }

    /// The scale of a group.
    #[inline(always)]
    fn group_scale<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Floats {
        let scale = Self::scale(v, tile);
        if Self::HAS_GROUP_SCALES {
            v.mul(scale, v.to_floats(Self::scale_number(v, tile, group)))
        } else {
            scale
        }
    }

    /// The minimum of a group.
    #[inline(always)]
    fn group_min<V: TileVector>(v: V, tile: &[u8], group: usize) -> V::Floats {
        let min = Self::min(v, tile);
        if Self::HAS_GROUP_SCALES { v.mul(min, v.to_floats(Self::min_number(v, tile, group))) } else { min }
    }
}

/// Takes the steps of a tile.
pub(super) trait Steps<V: TileVector> {
    /// The codes of elements `k..k + 4` of every row, which belong to the group in `slot`.
    fn step(&mut self, v: V, slot: usize, k: usize, codes: V::Bytes);
}

/// The bytes of a tile as an array, whose length the compiler knows.
pub(super) trait TileBytes: Sized {
    fn tiles(bytes: &[u8]) -> &[Self];
    fn bytes(&self) -> &[u8];
}

impl<const N: usize> TileBytes for [u8; N] {
    #[inline(always)]
    fn tiles(bytes: &[u8]) -> &[Self] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// The blocks of activations that meet a tile, as an array.
pub(super) trait ActivationBlocks<const B: usize>: Sized {
    fn of_tiles(blocks: &[Block<B>]) -> &[Self];
    fn block(&self, number: usize) -> &Block<B>;
}

impl<const B: usize, const N: usize> ActivationBlocks<B> for [Block<B>; N] {
    #[inline(always)]
    fn of_tiles(blocks: &[Block<B>]) -> &[Self] {
        blocks.as_chunks().0
    }

    #[inline(always)]
    fn block(&self, number: usize) -> &Block<B> {
        &self[number]
    }
}

/// Work with the tiles of any type.
pub(super) trait CodecWork {
    type Output;

    fn run<C: TileCodec>(self) -> Self::Output;
}

/// Does work with the tiles of a type; `None` for types that are not repacked. This is the list of those that are.
pub(super) fn with_codec<W: CodecWork>(dtype: DType, work: W) -> Option<W::Output> {
    Some(match dtype {
        DType::Q4_0 => work.run::<Q4_0>(),
        DType::Q4_1 => work.run::<Q4_1>(),
        DType::Q5_0 => work.run::<Q5_0>(),
        DType::Q5_1 => work.run::<Q5_1>(),
        DType::Q8_0 => work.run::<Q8_0>(),
        DType::Q2_K => work.run::<Q2_K>(),
        DType::Q3_K => work.run::<Q3_K>(),
        DType::Q4_K => work.run::<Q4_K>(),
        DType::Q5_K => work.run::<Q5_K>(),
        DType::Q6_K => work.run::<Q6_K>(),
        DType::IQ4_NL => work.run::<IQ4_NL>(),
        DType::IQ4_XS => work.run::<IQ4_XS>(),
        DType::MXFP4 => work.run::<MXFP4>(),
        DType::TQ2_0 => work.run::<TQ2_0>(),
        DType::TQ1_0 => work.run::<TQ1_0>(),
        DType::NVFP4 => work.run::<NVFP4>(),
        DType::Q1_0 => work.run::<Q1_0>(),
        DType::Q2_0 => work.run::<Q2_0>(),
        DType::IQ1_S => work.run::<IQ1_S>(),
        DType::IQ1_M => work.run::<IQ1_M>(),
        DType::IQ2_XXS => work.run::<IQ2_XXS>(),
        DType::IQ2_XS => work.run::<IQ2_XS>(),
        DType::IQ2_S => work.run::<IQ2_S>(),
        DType::IQ3_XXS => work.run::<IQ3_XXS>(),
        DType::IQ3_S => work.run::<IQ3_S>(),
        _ => return None,
    })
}

/// The specification of a type's tiles; `None` for types that are not repacked.
pub(crate) fn tile_spec(dtype: DType) -> Option<&'static TileSpec> {
    struct Spec;
    impl CodecWork for Spec {
        type Output = &'static TileSpec;

        fn run<C: TileCodec>(self) -> &'static TileSpec {
            const { &C::TILE }
        }
    }
    with_codec(dtype, Spec)
}

/// `N` bytes of a tile.
#[inline(always)]
fn bytes_at<const N: usize>(tile: &[u8], at: usize) -> &[u8; N] {
    tile[at..].first_chunk().expect("bytes of the tile")
}

/// A bit for each of 64 bytes.
#[inline(always)]
fn mask_at(tile: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes_at(tile, at))
}

/// The weights of a table, plus a bias that makes the smallest 0.
const fn biased(table: &[i8; 16], bias: i32) -> [u8; 16] {
    let mut codes = [0; 16];
    let mut index = 0;
    while index < 16 {
        codes[index] = (table[index] as i32 + bias) as u8;
        index += 1;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_tile_belongs_to_one_field() {
        for tile in DType::all().filter_map(tile_spec) {
            let mut seen = vec![0; tile.bytes];
            for field in tile.fields {
                let (units, bytes) = field.units_and_bytes();
                for unit in 0..units {
                    seen[field.place(unit)..][..bytes].iter_mut().for_each(|times| *times += 1);
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{}", tile.block.dtype);
        }
    }

    #[test]
    fn every_group_has_a_slot() {
        struct Groups;
        impl CodecWork for Groups {
            type Output = Vec<usize>;

            fn run<C: TileCodec>(self) -> Vec<usize> {
                let slots = |part| (0..C::TILE.slots).map(move |slot| C::group_of(part, slot));
                (0..C::TILE.parts).flat_map(slots).collect()
            }
        }
        for tile in DType::all().filter_map(tile_spec) {
            let mut groups = with_codec(tile.block.dtype, Groups).unwrap();
            groups.sort_unstable();
            assert!(groups.into_iter().eq(0..tile.elements / tile.group()), "{}", tile.block.dtype);
        }
    }

    #[test]
    fn types_of_weights_are_repacked() {
        assert!(orlop_quant::weight_types().all(|dtype| tile_spec(dtype).is_some()));
    }
}
