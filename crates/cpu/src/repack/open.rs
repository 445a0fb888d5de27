//! Scales and single bits that blocks keep in an order of their own, brought into a plain one.

use orlop_quant::{iq4_xs, q3_k, q4_k, q5_k};

/// Bytes of an opened block: 16 for scales, then up to 32 for a bit of each element, in their order, and some more so
/// that vectors of 16 can be read anywhere.
pub(crate) const OPEN: usize = 64;

/// How a block is opened, and how what was opened is written into a block again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) open: fn(&[u8], &mut [u8; OPEN]),
    pub(super) close: fn(&[u8; OPEN], &mut [u8]),
}

/// 8 scales, 8 minima.
pub(super) const K_SCALES: Opened = Opened { open: open_k_scales, close: close_k_scales };

/// 8 scales, 8 minima, the fifth bits.
pub(super) const K_SCALES_AND_BITS: Opened = Opened {
    open: |block, open| {
        open_k_scales(block, open);
        open_bits(&block[q5_k::HIGH_BITS_AT..], open);
    },
    close: |open, block| {
        close_k_scales(open, block);
        close_bits(open, &mut block[q5_k::HIGH_BITS_AT..]);
    },
};

/// 16 signed scales, the third bits.
pub(super) const Q3_K_SCALES_AND_BITS: Opened = Opened {
    open: |block, open| {
        let words = words(&block[q3_k::SCALES_AT..]);
        for group in 0..4 {
            let low = words[group % 2] >> (4 * (group / 2)) & 0x0f0f_0f0f;
            let high = words[2] >> (2 * group) & 0x0303_0303;
            // The stored numbers are 32 too large; the sixth bit is their sign.
            let stored = (low | (high << 4)) ^ 0x2020_2020;
            put(open, 4 * group, stored | ((stored & 0x2020_2020) << 1) | ((stored & 0x2020_2020) << 2));
        }
        open_bits(&block[q3_k::HIGH_BITS_AT..], open);
    },
    close: |open, block| {
        let mut scales = [0; 16];
        scales.copy_from_slice(&open[..16]);
        block[q3_k::SCALES_AT..][..12].copy_from_slice(&q3_k::pack_scales(&scales.map(|scale| scale as i8)));
        close_bits(open, &mut block[q3_k::HIGH_BITS_AT..]);
    },
};

/// 8 signed scales.
pub(super) const IQ4_XS_SCALES: Opened = Opened {
    open: |block, open| {
        let high = u16::from_le_bytes([block[iq4_xs::SCALES_HIGH_AT], block[iq4_xs::SCALES_HIGH_AT + 1]]);
        for group in 0..8 {
            let low = (block[iq4_xs::SCALES_LOW_AT + group / 2] >> (4 * (group % 2))) & 15;
            let high = ((high >> (2 * group)) & 3) as u8;
            open[group] = (low | (high << 4)).wrapping_sub(32);
        }
    },
    close: |open, block| {
        block[iq4_xs::SCALES_LOW_AT..][..4].fill(0);
        let mut high = 0;
        for group in 0..8 {
            let stored = open[group].wrapping_add(32);
            block[iq4_xs::SCALES_LOW_AT + group / 2] |= (stored & 15) << (4 * (group % 2));
            high |= u16::from((stored >> 4) & 3) << (2 * group);
        }
        block[iq4_xs::SCALES_HIGH_AT..][..2].copy_from_slice(&high.to_le_bytes());
    },
};

/// As `q4_k::unpack_scales`, four at a time.
fn open_k_scales(block: &[u8], open: &mut [u8; OPEN]) {
    let [scales, mins, last] = words(&block[q4_k::SCALES_AT..]);
    put(open, 0, scales & 0x3f3f_3f3f);
    put(open, 4, (last & 0x0f0f_0f0f) | ((scales >> 2) & 0x3030_3030));
    put(open, 8, mins & 0x3f3f_3f3f);
    put(open, 12, ((last >> 4) & 0x0f0f_0f0f) | ((mins >> 2) & 0x3030_3030));
}

fn close_k_scales(open: &[u8; OPEN], block: &mut [u8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    scales.copy_from_slice(&open[..8]);
    mins.copy_from_slice(&open[8..16]);
    block[q4_k::SCALES_AT..][..12].copy_from_slice(&q4_k::pack_scales(&scales, &mins));
}

fn words(bytes: &[u8]) -> [u32; 3] {
    std::array::from_fn(|word| {
        u32::from_le_bytes([bytes[4 * word], bytes[4 * word + 1], bytes[4 * word + 2], bytes[4 * word + 3]])
    })
}

fn put(open: &mut [u8; OPEN], at: usize, word: u32) {
    open[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Bit planes of 32 elements each become bits in element order.
fn open_bits(planes: &[u8], open: &mut [u8; OPEN]) {
    for (eight, planes) in planes[..32].as_chunks::<8>().0.iter().enumerate() {
        let bits = transposed(u64::from_le_bytes(*planes));
        for (plane, byte) in bits.to_le_bytes().into_iter().enumerate() {
            open[16 + 4 * plane + eight] = byte;
        }
    }
}

fn close_bits(open: &[u8; OPEN], planes: &mut [u8]) {
    for (eight, planes) in planes[..32].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let bits = u64::from_le_bytes(std::array::from_fn(|plane| open[16 + 4 * plane + eight]));
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
