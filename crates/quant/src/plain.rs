//! Plain types: one element, no scale. Integers decode only; the others go both ways.

use half::{bf16, f16};

macro_rules! decode_as_f32 {
    ($($name:ident, $bytes:literal, $doc:literal, |$raw:ident| $value:expr;)*) => {
        $(
            #[doc = $doc]
            pub fn $name($raw: &[u8; $bytes], out: &mut [f32; 1]) {
                out[0] = $value;
            }
        )*
    };
}

decode_as_f32! {
    decode_f32, 4, "Copies the bits.", |raw| f32::from_le_bytes(*raw);
    decode_f16, 2, "Exact.", |raw| f16::from_le_bytes(*raw).to_f32();
    decode_bf16, 2, "Exact, bit for bit: NaN payloads survive.",
        |raw| f32::from_bits(u32::from(u16::from_le_bytes(*raw)) << 16);
    decode_f64, 8, "Rounds to the nearest `f32`.", |raw| f64::from_le_bytes(*raw) as f32;
    decode_i8, 1, "Exact.", |raw| f32::from(i8::from_le_bytes(*raw));
    decode_i16, 2, "Exact.", |raw| f32::from(i16::from_le_bytes(*raw));
    decode_i32, 4, "Rounds to the nearest `f32`.", |raw| i32::from_le_bytes(*raw) as f32;
    decode_i64, 8, "Rounds to the nearest `f32`.", |raw| i64::from_le_bytes(*raw) as f32;
}

/// Copies the bits.
pub fn encode_f32(value: &[f32; 1], out: &mut [u8; 4]) {
    *out = value[0].to_le_bytes();
}

/// Widens, exactly.
pub fn encode_f64(value: &[f32; 1], out: &mut [u8; 8]) {
    *out = f64::from(value[0]).to_le_bytes();
}

/// Rounds to nearest, ties to even; too large becomes infinite.
pub fn encode_f16(value: &[f32; 1], out: &mut [u8; 2]) {
    *out = f16::from_f32(value[0]).to_le_bytes();
}

/// Rounds to nearest, ties to even; too large becomes infinite and NaN becomes a quiet NaN.
pub fn encode_bf16(value: &[f32; 1], out: &mut [u8; 2]) {
    *out = bf16::from_f32(value[0]).to_le_bytes();
}
