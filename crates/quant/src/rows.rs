//! Whole rows: picking the codec of a type and checking lengths.

use orlop_graph::DType;

use crate::error::QuantError;
use crate::{
    iq4_nl, iq4_xs, mxfp4, plain, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_1, q8_k,
    tq2_0,
};

/// Decodes a row of any whole number of blocks.
///
/// # Errors
/// [`QuantError::Unsupported`] for a type without a codec, and a variant with the lengths if `bytes` is not what
/// `out.len()` elements take.
pub fn decode(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    let codec = row_codec(dtype).ok_or(QuantError::Unsupported(dtype))?;
    check_lengths(dtype, out.len(), bytes.len())?;
    (codec.decode)(bytes, out);
    Ok(())
}

/// Decodes a row for reference arithmetic.
///
/// F64, I32 and I64 (up to 53 bits) keep the digits that [`decode`] rounds away. All other types are defined by
/// `f32` arithmetic, so their values here are those of [`decode`], widened.
///
/// # Errors
/// As [`decode`].
pub fn decode_f64(dtype: DType, bytes: &[u8], out: &mut [f64]) -> Result<(), QuantError> {
    let codec = row_codec(dtype).ok_or(QuantError::Unsupported(dtype))?;
    check_lengths(dtype, out.len(), bytes.len())?;
    match dtype {
        DType::F64 => decode_blocks(bytes, out, |raw, out: &mut [f64; 1]| out[0] = f64::from_le_bytes(*raw)),
        DType::I64 => {
            decode_blocks(bytes, out, |raw, out: &mut [f64; 1]| out[0] = i64::from_le_bytes(*raw) as f64)
        }
        DType::I32 => {
            decode_blocks(bytes, out, |raw, out: &mut [f64; 1]| out[0] = i32::from_le_bytes(*raw).into())
        }
        _ => {
            let mut buffer = [0.0; 256];
            // Every block size divides 256, so both sides split at the same elements.
            let step = buffer.len() / dtype.block_elements() as usize * dtype.block_bytes() as usize;
            for (bytes, out) in bytes.chunks(step).zip(out.chunks_mut(buffer.len())) {
                let buffer = &mut buffer[..out.len()];
                (codec.decode)(bytes, buffer);
                for (wide, narrow) in out.iter_mut().zip(buffer) {
                    *wide = f64::from(*narrow);
                }
            }
        }
    }
    Ok(())
}

/// Encodes a row of any whole number of blocks. What becomes of values that do not fit is told at the
/// [top of the crate](crate#values-that-do-not-fit).
///
/// # Errors
/// [`QuantError::Unsupported`] for a type without a codec, [`QuantError::DecodeOnly`] for integers, and a variant
/// with the lengths if `out` is not what `values.len()` elements take.
pub fn encode(dtype: DType, values: &[f32], out: &mut [u8]) -> Result<(), QuantError> {
    let codec = row_codec(dtype).ok_or(QuantError::Unsupported(dtype))?;
    let encode = codec.encode.ok_or(QuantError::DecodeOnly(dtype))?;
    check_lengths(dtype, values.len(), out.len())?;
    encode(values, out);
    Ok(())
}

/// Whether [`decode`] and [`decode_f64`] know the type.
pub fn supports_decode(dtype: DType) -> bool {
    row_codec(dtype).is_some()
}

/// Whether [`encode`] knows the type.
pub fn supports_encode(dtype: DType) -> bool {
    row_codec(dtype).is_some_and(|codec| codec.encode.is_some())
}

fn check_lengths(dtype: DType, elements: usize, found: usize) -> Result<(), QuantError> {
    let partial = QuantError::PartialBlock { dtype, elements };
    let expected = dtype.row_bytes(elements as u64).ok_or(partial)?;
    if expected == found as u64 {
        Ok(())
    } else {
        Err(QuantError::Length { dtype, elements, expected, found })
    }
}

type DecodeRow = fn(&[u8], &mut [f32]);
type EncodeRow = fn(&[f32], &mut [u8]);

/// Both directions over rows whose lengths agree.
struct RowCodec {
    decode: DecodeRow,
    encode: Option<EncodeRow>,
}

fn row_codec(dtype: DType) -> Option<RowCodec> {
    macro_rules! both {
        ($decode:path, $encode:path) => {
            RowCodec {
                decode: |bytes, out| decode_blocks(bytes, out, $decode),
                encode: Some(|values, out| encode_blocks(values, out, $encode)),
            }
        };
    }
    macro_rules! decode_only {
        ($decode:path) => {
            RowCodec { decode: |bytes, out| decode_blocks(bytes, out, $decode), encode: None }
        };
    }
    Some(match dtype {
        DType::F32 => both!(plain::decode_f32, plain::encode_f32),
        DType::F64 => both!(plain::decode_f64, plain::encode_f64),
        DType::F16 => both!(plain::decode_f16, plain::encode_f16),
        DType::BF16 => both!(plain::decode_bf16, plain::encode_bf16),
        DType::I8 => decode_only!(plain::decode_i8),
        DType::I16 => decode_only!(plain::decode_i16),
        DType::I32 => decode_only!(plain::decode_i32),
        DType::I64 => decode_only!(plain::decode_i64),
        DType::Q4_0 => both!(q4_0::decode_block, q4_0::encode_block),
        DType::Q4_1 => both!(q4_1::decode_block, q4_1::encode_block),
        DType::Q5_0 => both!(q5_0::decode_block, q5_0::encode_block),
        DType::Q5_1 => both!(q5_1::decode_block, q5_1::encode_block),
        DType::Q8_0 => both!(q8_0::decode_block, q8_0::encode_block),
        DType::Q8_1 => both!(q8_1::decode_block, q8_1::encode_block),
        DType::Q2_K => both!(q2_k::decode_block, q2_k::encode_block),
        DType::Q3_K => both!(q3_k::decode_block, q3_k::encode_block),
        DType::Q4_K => both!(q4_k::decode_block, q4_k::encode_block),
        DType::Q5_K => both!(q5_k::decode_block, q5_k::encode_block),
        DType::Q6_K => both!(q6_k::decode_block, q6_k::encode_block),
        DType::Q8_K => both!(q8_k::decode_block, q8_k::encode_block),
        DType::IQ4_NL => both!(iq4_nl::decode_block, iq4_nl::encode_block),
        DType::IQ4_XS => both!(iq4_xs::decode_block, iq4_xs::encode_block),
        DType::MXFP4 => both!(mxfp4::decode_block, mxfp4::encode_block),
        DType::TQ2_0 => both!(tq2_0::decode_block, tq2_0::encode_block),
        _ => return None,
    })
}

fn decode_blocks<T, const BYTES: usize, const ELEMENTS: usize>(
    bytes: &[u8],
    out: &mut [T],
    decode: impl Fn(&[u8; BYTES], &mut [T; ELEMENTS]),
) {
    let (blocks, out) = (bytes.as_chunks().0, out.as_chunks_mut().0);
    debug_assert_eq!(blocks.len(), out.len());
    for (block, out) in blocks.iter().zip(out) {
        decode(block, out);
    }
}

fn encode_blocks<const BYTES: usize, const ELEMENTS: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; ELEMENTS], &mut [u8; BYTES]),
) {
    let (values, blocks) = (values.as_chunks().0, out.as_chunks_mut().0);
    debug_assert_eq!(values.len(), blocks.len());
    for (values, block) in values.iter().zip(blocks) {
        encode(values, block);
    }
}
