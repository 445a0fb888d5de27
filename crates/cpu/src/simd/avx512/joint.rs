//! Joint panels: weights rounded to multiples of one scale for [`JOINT`] elements.

use std::arch::x86_64::*;

use orlop_graph::DType;

use super::tiles::Avx512;
use super::{JOINT_VECTORS, store_f32};
use crate::repack::MAX_SLOTS;
use crate::simd::eight_bit::JOINT;
use crate::simd::prefetch::prefetch_next;
use crate::simd::tile_codecs::{Q6_K, Steps, TileBytes, TileCodec};
use crate::simd::tile_vector::TileVector;

/// Takes tiles apart into a joint panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(in crate::simd) fn expand_jointly(dtype: DType, tiles: &[u8], panel: &mut [f32]) {
    match dtype {
        DType::Q6_K => expand::<Q6_K>(tiles, panel),
        _ => unreachable!("{dtype} has no joint panels"),
    }
}

/// Most groups of a tile: those of 16 of [`JOINT`] elements.
const MAX_GROUPS: usize = JOINT / 16;

/// For types of [`JOINT`] elements a tile, without minima.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn expand<C: TileCodec>(tiles: &[u8], panel: &mut [f32]) {
    const { assert!(C::TILE.elements == JOINT && !C::HAS_MIN && C::HAS_GROUP_SCALES) };
    // SAFETY: `new` asks for the instructions of this function.
    let v = unsafe { Avx512::new() };
    let panels = panel.as_chunks_mut::<16>().0.as_chunks_mut::<JOINT_VECTORS>().0;
    for (tile, panel) in C::Tile::tiles(tiles).iter().zip(panels) {
        let tile = tile.bytes();
        let groups = C::TILE.elements / C::TILE.group();
        let mut largest = _mm512_set1_epi32(1);
        for group in 0..groups {
            largest = _mm512_max_epi32(largest, _mm512_abs_epi32(C::scale_number(v, tile, group)));
        }
        let times = _mm512_div_ps(_mm512_set1_ps(127.0 / C::BIAS as f32), _mm512_cvtepi32_ps(largest));
        let mut factors = [[_mm512_setzero_si512(); 2]; MAX_GROUPS];
        for (group, factors) in factors.iter_mut().enumerate().take(groups) {
            let scale = _mm512_cvtepi32_ps(C::scale_number(v, tile, group));
            *factors = factor(_mm512_mul_ps(scale, times), C::BIAS);
        }
        store_f32(&mut panel[JOINT_VECTORS - 1], _mm512_div_ps(C::scale(v, tile), times));
        let mut sums = [_mm512_setzero_si512(); MAX_SLOTS];
        for part in 0..C::PARTS {
            let bytes = C::TILE.bytes / C::PARTS;
            let next_but_one = tile.as_ptr().wrapping_add((part + 2) * bytes);
            prefetch_next(next_but_one, bytes);
            let mut slot_factors = [factors[0]; MAX_SLOTS];
            for (slot, to) in slot_factors.iter_mut().enumerate().take(C::SLOTS) {
                *to = factors[C::group_of(part, slot)];
            }
            C::steps(v, tile, part, &mut JointSteps { panel, factors: &slot_factors, sums: &mut sums });
        }
        let mut sum = sums[0];
        for more in &sums[1..C::SLOTS] {
            sum = _mm512_add_epi32(sum, *more);
        }
        let start = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7));
        store_f32(&mut panel[0], _mm512_castsi512_ps(start));
    }
}

struct JointSteps<'a> {
    panel: &'a mut [[f32; 16]; JOINT_VECTORS],
    /// Those of [`factor`], for each slot.
    factors: &'a [[__m512i; 2]; MAX_SLOTS],
    sums: &'a mut [__m512i; MAX_SLOTS],
}

impl Steps<Avx512> for JointSteps<'_> {
    #[inline(always)]
    fn step(&mut self, v: Avx512, slot: usize, k: usize, codes: __m512i) {
        // SAFETY: `scaled` asks for AVX-512 F and BW, which the token proves.
        let weights = unsafe { scaled(codes, self.factors[slot]) };
        self.sums[slot] = v.add_weights(self.sums[slot], weights);
        v.store_bytes(&mut self.panel[1 + k / 4], weights);
    }
}

/// A multiplier for codes and an addend, in 16 bits: the upper byte of `code * multiplier + addend` is the rounded weight.
/// Both halves of a row's lane have the same.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn factor(scale: __m512, bias: i32) -> [__m512i; 2] {
    let scale = _mm512_cvtps_epi32(_mm512_mul_ps(scale, _mm512_set1_ps(256.0)));
    let scale = _mm512_mask_blend_epi16(0xaaaa_aaaa, scale, _mm512_slli_epi32(scale, 16));
    let offset = _mm512_mullo_epi16(scale, _mm512_set1_epi16(bias as i16));
    [scale, _mm512_sub_epi16(_mm512_set1_epi16(128), offset)]
}

/// Codes as weights.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn scaled(codes: __m512i, [scale, start]: [__m512i; 2]) -> __m512i {
    let even = _mm512_and_si512(codes, _mm512_set1_epi16(255));
    let odd = _mm512_srli_epi16(codes, 8);
    let even = _mm512_add_epi16(_mm512_mullo_epi16(even, scale), start);
    let odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, scale), start);
    _mm512_mask_blend_epi8(0xaaaa_aaaa_aaaa_aaaa, _mm512_srli_epi16(even, 8), odd)
}
