//! Weights in blocks, split into planes: one of the low bits, one of the high bits and one of the scales of all blocks. In a
//! plane, 32 elements take a fixed number of bytes in an order that one instruction
//! spreads over registers: element `16 p + j` is in byte `j` of its nibbles; element `4 p + j` of 16 (pairs) or of 32
//! (bits) in byte `j`; `p` counts from the lowest bits.

use std::ops::Range;

use orlop_graph::{DType, TensorDesc};
use orlop_quant::FieldRole::{Codes, GroupScales, HighBits, Min, Scale};
use orlop_quant::layout::{
    IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};
use orlop_quant::{BlockLayout, FieldRole};

use crate::buffer::ALIGNMENT;

/// Bytes of every block that have a plane of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    at: usize,
    bytes: usize,
    /// Bits of each code, and the bytes of a chunk of bit planes in the file; `None` for bytes that are copied.
    code: Option<(u32, usize)>,
}

/// A plane of codes.
const fn codes(block: &BlockLayout, role: FieldRole) -> Field {
    let field = block.field(role);
    Field { at: field.offset, bytes: field.bytes, code: Some((field.bits, field.run())) }
}

/// A plane of bytes as they are: those of all fields from the first to the last.
const fn raw(block: &BlockLayout, first: FieldRole, last: FieldRole) -> Field {
    let (first, last) = (block.field(first).range(), block.field(last).range());
    Field { at: first.start, bytes: last.end - first.start, code: None }
}

/// The planes of a type, in the order in which `planes.cuh` knows them.
fn fields(dtype: DType) -> Option<&'static [Field]> {
    Some(match dtype {
        DType::Q4_0 => const { &[codes(&Q4_0, Codes), raw(&Q4_0, Scale, Scale)] },
        DType::IQ4_NL => const { &[codes(&IQ4_NL, Codes), raw(&IQ4_NL, Scale, Scale)] },
        DType::Q4_1 => const { &[codes(&Q4_1, Codes), raw(&Q4_1, Scale, Min)] },
        DType::Q5_0 => const { &[codes(&Q5_0, Codes), codes(&Q5_0, HighBits), raw(&Q5_0, Scale, Scale)] },
        DType::Q5_1 => const { &[codes(&Q5_1, Codes), codes(&Q5_1, HighBits), raw(&Q5_1, Scale, Min)] },
        DType::Q8_0 => const { &[raw(&Q8_0, Codes, Codes), raw(&Q8_0, Scale, Scale)] },
        DType::Q2_K => {
            const { &[codes(&Q2_K, Codes), raw(&Q2_K, GroupScales, GroupScales), raw(&Q2_K, Scale, Min)] }
        }
        DType::Q3_K => {
            const {
                &[
                    codes(&Q3_K, Codes),
                    codes(&Q3_K, HighBits),
                    raw(&Q3_K, GroupScales, GroupScales),
                    raw(&Q3_K, Scale, Scale),
                ]
            }
        }
        DType::Q4_K => const { &[codes(&Q4_K, Codes), raw(&Q4_K, Scale, GroupScales)] },
        DType::Q5_K => {
            const { &[codes(&Q5_K, Codes), codes(&Q5_K, HighBits), raw(&Q5_K, Scale, GroupScales)] }
        }
        DType::Q6_K => {
            const {
                &[
                    codes(&Q6_K, Codes),
                    codes(&Q6_K, HighBits),
                    raw(&Q6_K, GroupScales, GroupScales),
                    raw(&Q6_K, Scale, Scale),
                ]
            }
        }
        DType::IQ4_XS => const { &[codes(&IQ4_XS, Codes), raw(&IQ4_XS, Scale, GroupScales)] },
        DType::MXFP4 => const { &[codes(&MXFP4, Codes), raw(&MXFP4, Scale, Scale)] },
        _ => return None,
    })
}

/// How a tensor lies in planes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planes {
    fields: &'static [Field],
    block_bytes: usize,
    row_blocks: u64,
    blocks: u64,
}

/// Consecutive bytes of one plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// From the tensor's first byte.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Planes {
    /// The planes of a tensor, if its type has any.
    pub(crate) fn of(desc: &TensorDesc) -> Option<Planes> {
        let fields = fields(desc.dtype).filter(|_| desc.is_contiguous())?;
        let row_blocks = desc.extents[0] / desc.dtype.block_elements();
        let blocks = row_blocks.checked_mul(desc.rows())?;
        Some(Planes { fields, block_bytes: desc.dtype.block_bytes() as usize, row_blocks, blocks })
    }

    /// Where each plane begins, and behind the last, the bytes of all.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let mut start = 0u64;
        let mut starts = vec![0];
        for field in self.fields {
            start += (self.blocks * field.bytes as u64).next_multiple_of(ALIGNMENT);
            starts.push(start);
        }
        starts
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.starts().last().copied().unwrap_or(0)
    }

    /// Room for what some rows have in each plane.
    pub(crate) fn parts(&self, rows: Range<u64>) -> Vec<Part> {
        let first = rows.start * self.row_blocks;
        let count = rows.end.saturating_sub(rows.start) * self.row_blocks;
        let part = |(field, start): (&Field, u64)| Part {
            offset: start + first * field.bytes as u64,
            bytes: vec![0; count as usize * field.bytes],
        };
        self.fields.iter().zip(self.starts()).map(part).collect()
    }

    /// Rows as they are in a file, taken apart.
    pub(crate) fn pack(&self, rows: Range<u64>, bytes: &[u8]) -> Vec<Part> {
        let mut parts = self.parts(rows);
        for (field, part) in self.fields.iter().zip(&mut parts) {
            let blocks = bytes.chunks_exact(self.block_bytes).zip(part.bytes.chunks_exact_mut(field.bytes));
            for (block, packed) in blocks {
                let source = &block[field.at..field.at + field.bytes];
                match field.code {
                    Some((width, run)) if run != own_run(width) => {
                        reorder(width, [run, own_run(width)], source, packed)
                    }
                    _ => packed.copy_from_slice(source),
                }
            }
        }
        parts
    }

    /// The inverse of [`Planes::pack`].
    pub(crate) fn unpack(&self, parts: &[Part], bytes: &mut [u8]) {
        for (field, part) in self.fields.iter().zip(parts) {
            let blocks = bytes.chunks_exact_mut(self.block_bytes).zip(part.bytes.chunks_exact(field.bytes));
            for (block, packed) in blocks {
                let target = &mut block[field.at..field.at + field.bytes];
                match field.code {
                    Some((width, run)) if run != own_run(width) => {
                        reorder(width, [own_run(width), run], packed, target)
                    }
                    _ => target.copy_from_slice(packed),
                }
            }
        }
    }
}

/// Bytes between the bits of one byte's neighbours, as kernels like them.
fn own_run(width: u32) -> usize {
    if width == 4 { 16 } else { 4 }
}

/// Codes of `width` bits from one order to another. With a run of `r`, groups of `r` bytes hold the elements of the lowest
/// bits first, one a byte, then those of the next bits.
fn reorder(width: u32, [from, to]: [usize; 2], source: &[u8], target: &mut [u8]) {
    let planes = 8 / width as usize;
    let mask = (1u16 << width) as u8 - 1;
    let mut codes = [0u8; 512];
    let elements = source.len() * planes;
    for (group, bytes) in source.chunks_exact(from).enumerate() {
        for plane in 0..planes {
            for (index, byte) in bytes.iter().enumerate() {
                codes[(group * planes + plane) * from + index] = (byte >> (plane as u32 * width)) & mask;
            }
        }
    }
    target.fill(0);
    for (group, bytes) in target.chunks_exact_mut(to).enumerate() {
        for plane in 0..planes {
            for (index, byte) in bytes.iter_mut().enumerate() {
                *byte |= codes[(group * planes + plane) * to + index] << (plane as u32 * width);
            }
        }
    }
    debug_assert!(elements <= codes.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_out_as_they_went_in() {
        for dtype in DType::all().filter(|dtype| fields(*dtype).is_some()) {
            let desc = TensorDesc::contiguous(dtype, &[2 * dtype.block_elements(), 5]).unwrap();
            let planes = Planes::of(&desc).unwrap();
            let bytes: Vec<u8> = (0..desc.bytes()).map(|index| (index * 131 + index / 7) as u8).collect();
            let row = desc.row_bytes() as usize;
            // In two goes, as loaders do.
            let mut memory = vec![0; planes.bytes() as usize];
            for (rows, bytes) in [(0..2, &bytes[..2 * row]), (2..5, &bytes[2 * row..])] {
                for part in planes.pack(rows, bytes) {
                    memory[part.offset as usize..][..part.bytes.len()].copy_from_slice(&part.bytes);
                }
            }
            let mut parts = planes.parts(1..4);
            for part in &mut parts {
                let length = part.bytes.len();
                part.bytes.copy_from_slice(&memory[part.offset as usize..][..length]);
            }
            let mut back = vec![0; 3 * row];
            planes.unpack(&parts, &mut back);
            assert_eq!(back, bytes[row..4 * row], "{dtype}");
        }
    }

    #[test]
    fn planes_are_those_that_kernels_were_written_for() {
        let fields = |dtype| {
            let field = |field: &Field| (field.at, field.bytes, field.code);
            fields(dtype).unwrap().iter().map(field).collect::<Vec<_>>()
        };
        let raw = |at, bytes| (at, bytes, None);
        let bits = |bits, run, at, bytes| (at, bytes, Some((bits, run)));
        assert_eq!(fields(DType::Q4_0), [bits(4, 16, 2, 16), raw(0, 2)]);
        assert_eq!(fields(DType::IQ4_NL), [bits(4, 16, 2, 16), raw(0, 2)]);
        assert_eq!(fields(DType::Q4_1), [bits(4, 16, 4, 16), raw(0, 4)]);
        assert_eq!(fields(DType::Q5_0), [bits(4, 16, 6, 16), bits(1, 1, 2, 4), raw(0, 2)]);
        assert_eq!(fields(DType::Q5_1), [bits(4, 16, 8, 16), bits(1, 1, 4, 4), raw(0, 4)]);
        assert_eq!(fields(DType::Q8_0), [raw(2, 32), raw(0, 2)]);
        assert_eq!(fields(DType::Q2_K), [bits(2, 32, 16, 64), raw(0, 16), raw(80, 4)]);
        let q3_k = [bits(2, 32, 32, 64), bits(1, 32, 0, 32), raw(96, 12), raw(108, 2)];
        assert_eq!(fields(DType::Q3_K), q3_k);
        assert_eq!(fields(DType::Q4_K), [bits(4, 32, 16, 128), raw(0, 16)]);
        assert_eq!(fields(DType::Q5_K), [bits(4, 32, 48, 128), bits(1, 32, 16, 32), raw(0, 16)]);
        let q6_k = [bits(4, 64, 0, 128), bits(2, 32, 128, 64), raw(192, 16), raw(208, 2)];
        assert_eq!(fields(DType::Q6_K), q6_k);
        assert_eq!(fields(DType::IQ4_XS), [bits(4, 16, 8, 128), raw(0, 8)]);
        assert_eq!(fields(DType::MXFP4), [bits(4, 16, 1, 16), raw(0, 1)]);
    }

    #[test]
    fn every_byte_of_a_block_is_in_one_plane() {
        for dtype in DType::all() {
            let Some(fields) = fields(dtype) else { continue };
            let mut seen = vec![0; dtype.block_bytes() as usize];
            for field in fields {
                seen[field.at..field.at + field.bytes].iter_mut().for_each(|times| *times += 1);
            }
            assert!(seen.iter().all(|times| *times == 1), "{dtype}");
        }
    }
}
