//! TQ1_0: 256 elements, `scale * (q - 1)` with `q` in `0..3`, five to a byte in base 3: ternary weights.

use crate::fields::{all_finite, f16_at, poison, put_f16};
use crate::layout::{self, BlockField, BlockLayout, FieldRole};
use crate::search::{inverse, truncate};

/// Where the fields of a block are.
pub const LAYOUT: BlockLayout = layout::TQ1_0;
/// Elements of one block.
pub const ELEMENTS: usize = LAYOUT.elements;
/// Bytes of one block.
pub const BYTES: usize = LAYOUT.bytes;

const CODES: BlockField = LAYOUT.field(FieldRole::Codes);
const SCALE: BlockField = LAYOUT.field(FieldRole::Scale);

/// Runs of bytes: the first byte, their number, digits of each. Digit `d` of byte `j` of a run is element `d * bytes + j` of
/// those of the run.
const RUNS: [[usize; 3]; 3] = [[0, 32, 5], [32, 16, 5], [48, 4, 4]];

/// The codes, in `0..3`. The first digit is the most significant: a byte is a fraction of 256 in base 3.
pub fn codes(block: &[u8; BYTES]) -> [u8; ELEMENTS] {
    let mut codes = [0; ELEMENTS];
    let mut element = 0;
    for [first, bytes, digits] in RUNS {
        let mut rest = [0; 32];
        rest[..bytes].copy_from_slice(&block[CODES.offset + first..][..bytes]);
        for _ in 0..digits {
            for rest in &mut rest[..bytes] {
                let next = u16::from(*rest) * 3;
                codes[element] = (next >> 8) as u8;
                *rest = next as u8;
                element += 1;
            }
        }
    }
    codes
}

/// The inverse of [`codes`], into bytes that encoding also gives. Some bytes stand for the same digits as others.
pub fn put_codes(codes: &[u8; ELEMENTS], block: &mut [u8; BYTES]) {
    let mut from = 0;
    for [first, bytes, digits] in RUNS {
        for byte in 0..bytes {
            let digit = |number: usize| {
                if number < digits { u16::from(codes[from + number * bytes + byte].min(2)) } else { 0 }
            };
            let number = (0..5).fold(0, |sum, place| 3 * sum + digit(place));
            block[CODES.offset + first + byte] = (number * 256).div_ceil(243) as u8;
        }
        from += bytes * digits;
    }
}

/// The integers to multiply with the scale: -1, 0 and 1.
pub fn quants(block: &[u8; BYTES]) -> [i8; ELEMENTS] {
    codes(block).map(|code| code as i8 - 1)
}

/// Decodes one block.
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; ELEMENTS]) {
    let scale = f16_at(block, SCALE);
    *out = quants(block).map(|q| scale * f32::from(q));
}

/// Encodes one block. The scale is the largest magnitude.
pub fn encode_block(values: &[f32; ELEMENTS], block: &mut [u8; BYTES]) {
    if !all_finite(values) {
        return poison(block, SCALE);
    }
    let scale = values.iter().fold(0f32, |max, value| max.max(value.abs()));
    let inverse = inverse(scale);
    put_f16(block, SCALE, scale);
    put_codes(&values.map(|value| truncate((value * inverse).round() + 1.0, 2)), block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_codes_undoes_unpacking() {
        let wanted: [u8; ELEMENTS] = std::array::from_fn(|at| (at * at / 7 % 3) as u8);
        let mut block = [0; BYTES];
        put_codes(&wanted, &mut block);
        assert_eq!(codes(&block), wanted);
    }
}
