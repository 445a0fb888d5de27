//! Group scales and high bits that blocks pack in an order of their own, unpacked: a byte for each scale, a bit for each
//! element in their order.

use std::ops::Range;

use orlop_quant::FieldRole::{GroupScales, GroupScalesHigh, HighBits};
use orlop_quant::layout::{IQ4_XS, Q3_K, Q4_K, Q5_K};
use orlop_quant::{BlockField, q3_k, q4_k};

/// Bytes of an unpacked block: scales and minima, codes, and some more so that vectors of 16 can be read anywhere.
pub(crate) const UNPACKED_BYTES: usize = 160;

/// Eight group scales.
pub(crate) const SCALES_8: Range<usize> = 0..8;
/// Eight group minima.
pub(crate) const MINS_8: Range<usize> = 8..16;
/// Sixteen group scales.
pub(crate) const SCALES_16: Range<usize> = 0..16;
/// A bit for each of 256 elements.
pub(crate) const HIGH_BITS: Range<usize> = 16..48;

/// How a block is unpacked, and how its unpacked form is packed into a block again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unpacked {
    pub(crate) unpack: fn(&[u8], &mut [u8; UNPACKED_BYTES]),
    pub(crate) pack: fn(&[u8; UNPACKED_BYTES], &mut [u8]),
}

const K_GROUP_SCALES: BlockField = Q4_K.field(GroupScales);
const _: () = assert!(K_GROUP_SCALES.offset == Q5_K.offset(GroupScales), "Q5_K packs its scales as Q4_K");

/// 8 scales, 8 minima.
pub(crate) const K_SCALES: Unpacked = Unpacked { unpack: unpack_k_scales, pack: pack_k_scales };

/// 8 scales, 8 minima, the fifth bits.
pub(crate) const K_SCALES_AND_BITS: Unpacked = Unpacked {
    unpack: |block, unpacked| {
        unpack_k_scales(block, unpacked);
        unpack_bits(&block[Q5_K.field(HighBits).range()], unpacked);
    },
    pack: |unpacked, block| {
        pack_k_scales(unpacked, block);
        pack_bits(unpacked, &mut block[Q5_K.field(HighBits).range()]);
    },
};

/// 16 signed scales, the third bits.
pub(crate) const Q3_K_SCALES_AND_BITS: Unpacked = Unpacked {
    unpack: |block, unpacked| {
        let words = words(&block[Q3_K.field(GroupScales).range()]);
        for group in 0..4 {
            let low = words[group % 2] >> (4 * (group / 2)) & 0x0f0f_0f0f;
            let high = words[2] >> (2 * group) & 0x0303_0303;
            // The stored numbers are 32 too large; the sixth bit is their sign.
            let stored = (low | (high << 4)) ^ 0x2020_2020;
            put(unpacked, 4 * group, stored | ((stored & 0x2020_2020) << 1) | ((stored & 0x2020_2020) << 2));
        }
        unpack_bits(&block[Q3_K.field(HighBits).range()], unpacked);
    },
    pack: |unpacked, block| {
        let mut scales = [0; 16];
        scales.copy_from_slice(&unpacked[SCALES_16]);
        block[Q3_K.field(GroupScales).range()]
            .copy_from_slice(&q3_k::pack_scales(&scales.map(|scale| scale as i8)));
        pack_bits(unpacked, &mut block[Q3_K.field(HighBits).range()]);
    },
};

/// 8 signed scales.
pub(crate) const IQ4_XS_SCALES: Unpacked = Unpacked {
    unpack: |block, unpacked| {
        let (low, high) = (&block[IQ4_LOW.range()], &block[IQ4_HIGH.range()]);
        let high = u16::from_le_bytes([high[0], high[1]]);
        for group in 0..8 {
            let low = (low[group / 2] >> (4 * (group % 2))) & 15;
            let high = ((high >> (2 * group)) & 3) as u8;
            unpacked[group] = (low | (high << 4)).wrapping_sub(IQ4_BIAS);
        }
    },
    pack: |unpacked, block| {
        let (mut low, mut high) = ([0; 4], 0);
        for group in 0..8 {
            let stored = unpacked[group].wrapping_add(IQ4_BIAS);
            low[group / 2] |= (stored & 15) << (4 * (group % 2));
            high |= u16::from((stored >> 4) & 3) << (2 * group);
        }
        block[IQ4_LOW.range()].copy_from_slice(&low);
        block[IQ4_HIGH.range()].copy_from_slice(&high.to_le_bytes());
    },
};

const IQ4_LOW: BlockField = IQ4_XS.field(GroupScales);
const IQ4_HIGH: BlockField = IQ4_XS.field(GroupScalesHigh);
const IQ4_BIAS: u8 = match IQ4_XS.group_scales {
    Some(scales) => scales.bias() as u8,
    None => 0,
};

/// As `q4_k::unpack_scales`, four at a time.
fn unpack_k_scales(block: &[u8], unpacked: &mut [u8; UNPACKED_BYTES]) {
    let [scales, mins, last] = words(&block[K_GROUP_SCALES.range()]);
    put(unpacked, 0, scales & 0x3f3f_3f3f);
    put(unpacked, 4, (last & 0x0f0f_0f0f) | ((scales >> 2) & 0x3030_3030));
    put(unpacked, MINS_8.start, mins & 0x3f3f_3f3f);
    put(unpacked, MINS_8.start + 4, ((last >> 4) & 0x0f0f_0f0f) | ((mins >> 2) & 0x3030_3030));
}

fn pack_k_scales(unpacked: &[u8; UNPACKED_BYTES], block: &mut [u8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    scales.copy_from_slice(&unpacked[SCALES_8]);
    mins.copy_from_slice(&unpacked[MINS_8]);
    block[K_GROUP_SCALES.range()].copy_from_slice(&q4_k::pack_scales(&scales, &mins));
}

fn words(bytes: &[u8]) -> [u32; 3] {
    std::array::from_fn(|word| {
        u32::from_le_bytes([bytes[4 * word], bytes[4 * word + 1], bytes[4 * word + 2], bytes[4 * word + 3]])
    })
}

fn put(unpacked: &mut [u8; UNPACKED_BYTES], at: usize, word: u32) {
    unpacked[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Bit planes of 32 elements each become bits in element order.
fn unpack_bits(planes: &[u8], unpacked: &mut [u8; UNPACKED_BYTES]) {
    for (eight, planes) in planes[..32].as_chunks::<8>().0.iter().enumerate() {
        let bits = transposed(u64::from_le_bytes(*planes));
        for (plane, byte) in bits.to_le_bytes().into_iter().enumerate() {
            unpacked[HIGH_BITS.start + 4 * plane + eight] = byte;
        }
    }
}

fn pack_bits(unpacked: &[u8; UNPACKED_BYTES], planes: &mut [u8]) {
    for (eight, planes) in planes[..32].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bits =
            u64::from_le_bytes(std::array::from_fn(|plane| unpacked[HIGH_BITS.start + 4 * plane + eight]));
        *planes = transposed(bits).to_le_bytes();
    }
}

/// Eight bytes as a square of bits, rows and columns exchanged: squares of one bit, of two, of four.
fn transposed(bits: u64) -> u64 {
    let exchange = |bits: u64, mask: u64, shift: u32| {
        let differ = (bits ^ (bits >> shift)) & mask;
        bits ^ differ ^ (differ << shift)
    };
    let bits = exchange(bits, 0x00aa_00aa_00aa_00aa, 7);
    let bits = exchange(bits, 0x0000_cccc_0000_cccc, 14);
    exchange(bits, 0x0000_0000_f0f0_f0f0, 28)
}
