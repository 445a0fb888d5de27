//! How blocks are cut into fields, and fields of sixteen rows put side by side.

use orlop_graph::DType;
use orlop_quant::bits::{pack_planes, unpack_planes};
use orlop_quant::{iq4_xs, q3_k, q4_k, q5_0, q5_1, q5_k};

use super::ROWS;

/// Bytes of an opened block at most.
pub(super) const OPEN: usize = 256;

/// A part of a block that is interleaved in units of a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Offset in the (opened) block.
    at: usize,
    /// Bytes in a block.
    bytes: usize,
    unit: Unit,
}

/// What stays together.
#[derive(Clone, Copy, Debug)]
enum Unit {
    One,
    Two,
    Four,
    /// Four bits, lower ones first.
    Nibble,
}

/// The way between stored blocks and tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) fields: &'static [Field],
    /// Blocks whose scales or single bits are packed in an order of their own are brought into a plain one.
    pub(super) open: Option<Opened>,
}

/// A block with its fields in a plain order, of `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) bytes: usize,
    pub(super) open: fn(&[u8], &mut [u8]),
    pub(super) close: fn(&[u8], &mut [u8]),
}

const fn field(at: usize, bytes: usize, unit: Unit) -> Field {
    Field { at, bytes, unit }
}

/// Fields in the order in which kernels read them: twice the low bits, then the high bits that go with both.
const Q6_K: [Field; 50] = {
    let mut fields = [field(192, 16, Unit::One); 50];
    let mut step = 0;
    while step < 16 {
        let low = 64 * (step / 8) + 4 * (step % 8);
        fields[3 * step] = field(low, 4, Unit::Four);
        fields[3 * step + 1] = field(low + 32, 4, Unit::Four);
        fields[3 * step + 2] = field(128 + 4 * step, 4, Unit::Four);
        step += 1;
    }
    fields[49] = field(208, 2, Unit::Two);
    fields
};

/// How a type's blocks are cut; `None` for types that are not repacked.
pub(super) fn cut(dtype: DType) -> Option<Cut> {
    use Unit::{Four, Nibble, One, Two};
    let plain = |fields| Some(Cut { fields, open: None });
    let opened = |fields, open| Some(Cut { fields, open: Some(open) });
    match dtype {
        DType::Q4_0 | DType::IQ4_NL => plain(const { &[field(2, 16, Four), field(0, 2, Two)] }),
        DType::Q4_1 => plain(const { &[field(4, 16, Four), field(0, 2, Two), field(2, 2, Two)] }),
        DType::MXFP4 => plain(const { &[field(1, 16, Four), field(0, 1, One)] }),
        DType::Q8_0 => plain(const { &[field(2, 32, Four), field(0, 2, Two)] }),
        DType::Q5_0 => plain(
            const { &[field(q5_0::QUANTS_AT, 16, Four), field(q5_0::HIGH_BITS_AT, 4, Nibble), field(0, 2, Two)] },
        ),
        DType::Q5_1 => plain(
            const {
                &[
                    field(q5_1::QUANTS_AT, 16, Four),
                    field(q5_1::HIGH_BITS_AT, 4, Nibble),
                    field(0, 2, Two),
                    field(2, 2, Two),
                ]
            },
        ),
        DType::Q6_K => plain(&Q6_K),
        DType::Q2_K => {
            plain(const { &[field(16, 64, Four), field(0, 16, One), field(80, 2, Two), field(82, 2, Two)] })
        }
        DType::Q4_K => opened(
            const { &[field(0, 128, Four), field(128, 16, One), field(144, 2, Two), field(146, 2, Two)] },
            Opened { bytes: 148, open: open_q4_k, close: close_q4_k },
        ),
        DType::Q5_K => opened(
            const {
                &[
                    field(148, 8, Nibble),
                    field(0, 32, Four),
                    field(156, 8, Nibble),
                    field(32, 32, Four),
                    field(164, 8, Nibble),
                    field(64, 32, Four),
                    field(172, 8, Nibble),
                    field(96, 32, Four),
                    field(128, 16, One),
                    field(144, 2, Two),
                    field(146, 2, Two),
                ]
            },
            Opened { bytes: 180, open: open_q5_k, close: close_q5_k },
        ),
        DType::Q3_K => opened(
            const {
                &[
                    field(64, 16, Nibble),
                    field(0, 32, Four),
                    field(80, 16, Nibble),
                    field(32, 32, Four),
                    field(96, 16, One),
                    field(112, 2, Two),
                ]
            },
            Opened { bytes: 114, open: open_q3_k, close: close_q3_k },
        ),
        DType::IQ4_XS => opened(
            const { &[field(0, 128, Four), field(128, 8, One), field(136, 2, Two)] },
            Opened { bytes: 138, open: open_iq4_xs, close: close_iq4_xs },
        ),
        _ => None,
    }
}

/// Bytes of a tile.
pub(super) fn tile_bytes(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.bytes * ROWS).sum()
}

/// Puts the fields of one row's (opened) block into a tile.
pub(super) fn interleave(fields: &[Field], block: &[u8], row: usize, tile: &mut [u8]) {
    let mut tile = tile;
    for field in fields {
        let (part, rest) = tile.split_at_mut(field.bytes * ROWS);
        tile = rest;
        let from = &block[field.at..field.at + field.bytes];
        match field.unit {
            Unit::One => put::<1>(from, row, part),
            Unit::Two => put::<2>(from, row, part),
            Unit::Four => put::<4>(from, row, part),
            Unit::Nibble => {
                for (step, part) in part.as_chunks_mut::<{ ROWS / 2 }>().0.iter_mut().enumerate() {
                    let nibble = (from[step / 2] >> (4 * (step % 2))) & 15;
                    let (byte, shift) = (&mut part[row / 2], 4 * (row % 2));
                    *byte = (*byte & !(15 << shift)) | (nibble << shift);
                }
            }
        }
    }
}

/// As [`interleave`] for the blocks of all rows, which is quicker than one row after the other.
pub(super) fn interleave_all(fields: &[Field], blocks: &[&[u8]; ROWS], tile: &mut [u8]) {
    let mut tile = tile;
    for field in fields {
        let (part, rest) = tile.split_at_mut(field.bytes * ROWS);
        tile = rest;
        match field.unit {
            Unit::One => put_all::<1>(field.at, blocks, part),
            Unit::Two => put_all::<2>(field.at, blocks, part),
            Unit::Four => put_all::<4>(field.at, blocks, part),
            Unit::Nibble => {
                for (step, part) in part.as_chunks_mut::<{ ROWS / 2 }>().0.iter_mut().enumerate() {
                    for (byte, pair) in part.iter_mut().zip(blocks.as_chunks::<2>().0) {
                        let [low, high] = pair.map(|block| block[field.at + step / 2] >> (4 * (step % 2)));
                        *byte = (low & 15) | (high << 4);
                    }
                }
            }
        }
    }
}

#[inline]
fn put_all<const UNIT: usize>(at: usize, blocks: &[&[u8]; ROWS], part: &mut [u8]) {
    for (number, part) in part.chunks_exact_mut(UNIT * ROWS).enumerate() {
        for (to, block) in part.as_chunks_mut::<UNIT>().0.iter_mut().zip(blocks) {
            to.copy_from_slice(&block[at + number * UNIT..][..UNIT]);
        }
    }
}

/// The inverse of [`interleave`].
pub(super) fn extract(fields: &[Field], tile: &[u8], row: usize, block: &mut [u8]) {
    let mut tile = tile;
    for field in fields {
        let (part, rest) = tile.split_at(field.bytes * ROWS);
        tile = rest;
        let to = &mut block[field.at..field.at + field.bytes];
        match field.unit {
            Unit::One => take::<1>(part, row, to),
            Unit::Two => take::<2>(part, row, to),
            Unit::Four => take::<4>(part, row, to),
            Unit::Nibble => {
                to.fill(0);
                for (step, part) in part.as_chunks::<{ ROWS / 2 }>().0.iter().enumerate() {
                    let nibble = (part[row / 2] >> (4 * (row % 2))) & 15;
                    to[step / 2] |= nibble << (4 * (step % 2));
                }
            }
        }
    }
}

#[inline]
fn put<const UNIT: usize>(from: &[u8], row: usize, part: &mut [u8]) {
    for (from, to) in from.as_chunks::<UNIT>().0.iter().zip(part.chunks_exact_mut(UNIT * ROWS)) {
        to[row * UNIT..][..UNIT].copy_from_slice(from);
    }
}

#[inline]
fn take<const UNIT: usize>(part: &[u8], row: usize, to: &mut [u8]) {
    for (to, from) in to.as_chunks_mut::<UNIT>().0.iter_mut().zip(part.chunks_exact(UNIT * ROWS)) {
        to.copy_from_slice(&from[row * UNIT..][..UNIT]);
    }
}

/// Quants, 8 scales, 8 minima, the scale of either.
fn open_q4_k(block: &[u8], open: &mut [u8]) {
    open[..128].copy_from_slice(&block[q4_k::QUANTS_AT..][..128]);
    open_k_scales(block, open);
}

fn close_q4_k(open: &[u8], block: &mut [u8]) {
    block[q4_k::QUANTS_AT..].copy_from_slice(&open[..128]);
    close_k_scales(open, block);
}

/// As Q4_K, then the fifth bits, a bit an element.
fn open_q5_k(block: &[u8], open: &mut [u8]) {
    open[..128].copy_from_slice(&block[q5_k::QUANTS_AT..][..128]);
    open_k_scales(block, open);
    open_bits(&block[q5_k::HIGH_BITS_AT..][..32], &mut open[148..]);
}

fn close_q5_k(open: &[u8], block: &mut [u8]) {
    block[q5_k::QUANTS_AT..].copy_from_slice(&open[..128]);
    close_k_scales(open, block);
    close_bits(&open[148..180], &mut block[q5_k::HIGH_BITS_AT..][..32]);
}

fn open_k_scales(block: &[u8], open: &mut [u8]) {
    let mut packed = [0; 12];
    packed.copy_from_slice(&block[q4_k::SCALES_AT..][..12]);
    let (scales, mins) = q4_k::unpack_scales(&packed);
    open[128..136].copy_from_slice(&scales);
    open[136..144].copy_from_slice(&mins);
    open[144..148].copy_from_slice(&block[..4]);
}

fn close_k_scales(open: &[u8], block: &mut [u8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    scales.copy_from_slice(&open[128..136]);
    mins.copy_from_slice(&open[136..144]);
    block[q4_k::SCALES_AT..][..12].copy_from_slice(&q4_k::pack_scales(&scales, &mins));
    block[..4].copy_from_slice(&open[144..148]);
}

/// Quants, third bits (a bit an element), 16 signed scales, their scale.
fn open_q3_k(block: &[u8], open: &mut [u8]) {
    open[..64].copy_from_slice(&block[q3_k::QUANTS_AT..][..64]);
    open_bits(&block[q3_k::HIGH_BITS_AT..][..32], &mut open[64..]);
    let mut packed = [0; 12];
    packed.copy_from_slice(&block[q3_k::SCALES_AT..][..12]);
    open[96..112].copy_from_slice(&q3_k::unpack_scales(&packed).map(|scale| scale as u8));
    open[112..114].copy_from_slice(&block[q3_k::SCALE_AT..][..2]);
}

fn close_q3_k(open: &[u8], block: &mut [u8]) {
    block[q3_k::QUANTS_AT..][..64].copy_from_slice(&open[..64]);
    close_bits(&open[64..96], &mut block[q3_k::HIGH_BITS_AT..][..32]);
    let mut scales = [0; 16];
    scales.copy_from_slice(&open[96..112]);
    block[q3_k::SCALES_AT..][..12].copy_from_slice(&q3_k::pack_scales(&scales.map(|scale| scale as i8)));
    block[q3_k::SCALE_AT..][..2].copy_from_slice(&open[112..114]);
}

/// Quants, 8 signed scales, their scale.
fn open_iq4_xs(block: &[u8], open: &mut [u8]) {
    open[..128].copy_from_slice(&block[iq4_xs::QUANTS_AT..][..128]);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for group in 0..8 {
        let low = (block[iq4_xs::SCALES_LOW_AT + group / 2] >> (4 * (group % 2))) & 15;
        let high = ((high >> (2 * group)) & 3) as u8;
        open[128 + group] = (low | (high << 4)).wrapping_sub(32);
    }
    open[136..138].copy_from_slice(&block[..2]);
}

fn close_iq4_xs(open: &[u8], block: &mut [u8]) {
    block[iq4_xs::QUANTS_AT..].copy_from_slice(&open[..128]);
    block[..8].fill(0);
    let mut high = 0;
    for group in 0..8 {
        let stored = open[128 + group].wrapping_add(32);
        block[iq4_xs::SCALES_LOW_AT + group / 2] |= (stored & 15) << (4 * (group % 2));
        high |= u16::from((stored >> 4) & 3) << (2 * group);
    }
    block[2..4].copy_from_slice(&high.to_le_bytes());
    block[..2].copy_from_slice(&open[136..138]);
}

/// Bit planes of 32 elements each become bits in element order.
fn open_bits(planes: &[u8], bits: &mut [u8]) {
    let mut values = [0; 256];
    unpack_planes::<1, 32>(planes, &mut values);
    for (byte, values) in bits.iter_mut().zip(values.as_chunks::<8>().0) {
        *byte = (0..8).fold(0, |byte, bit| byte | (values[bit] << bit));
    }
}

fn close_bits(bits: &[u8], planes: &mut [u8]) {
    let values: [u8; 256] = std::array::from_fn(|element| (bits[element / 8] >> (element % 8)) & 1);
    pack_planes::<1, 32>(&values, planes);
}
