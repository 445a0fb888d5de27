//! Whole rows: picking the codec of a type and checking lengths.

use orlop_graph::DType;

use crate::error::QuantError;
use crate::{
    iq1_m, iq1_s, iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs, iq4_nl, iq4_xs, mxfp4, nvfp4, plain, q1_0, q2_0,
    q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0, q8_1, q8_k, tq1_0, tq2_0,
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

/// As [`encode`], with the importance of each value: what its squared error counts. Types whose encoding does not search for
/// scales come out as those of [`encode`].
///
/// # Errors
/// As [`encode`], and [`QuantError::Importance`] if there is not one finite number, 0 or more, for each value.
pub fn encode_weighted(
    dtype: DType,
    values: &[f32],
    importance: &[f32],
    out: &mut [u8],
) -> Result<(), QuantError> {
    let Some(encode) = weighted_codec(dtype) else { return encode(dtype, values, out) };
    check_lengths(dtype, values.len(), out.len())?;
    if importance.len() != values.len()
        || !importance.iter().all(|weight| *weight >= 0.0 && weight.is_finite())
    {
        return Err(QuantError::Importance { elements: values.len(), found: importance.len() });
    }
    encode(values, importance, out);
    Ok(())
}

/// Whether [`encode_weighted`] uses importance for the type.
pub fn uses_importance(dtype: DType) -> bool {
    weighted_codec(dtype).is_some()
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
type EncodeWeighted = fn(&[f32], &[f32], &mut [u8]);
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
        DType::TQ1_0 => both!(tq1_0::decode_block, tq1_0::encode_block),
        DType::NVFP4 => both!(nvfp4::decode_block, nvfp4::encode_block),
        DType::Q1_0 => both!(q1_0::decode_block, q1_0::encode_block),
        DType::Q2_0 => both!(q2_0::decode_block, q2_0::encode_block),
        DType::IQ1_S => both!(iq1_s::decode_block, iq1_s::encode_block),
        DType::IQ1_M => both!(iq1_m::decode_block, iq1_m::encode_block),
        DType::IQ2_XXS => both!(iq2_xxs::decode_block, iq2_xxs::encode_block),
        DType::IQ2_XS => both!(iq2_xs::decode_block, iq2_xs::encode_block),
        DType::IQ2_S => both!(iq2_s::decode_block, iq2_s::encode_block),
        DType::IQ3_XXS => both!(iq3_xxs::decode_block, iq3_xxs::encode_block),
        DType::IQ3_S => both!(iq3_s::decode_block, iq3_s::encode_block),
        _ => return None,
    })
}

fn weighted_codec(dtype: DType) -> Option<EncodeWeighted> {
    macro_rules! weighted {
        ($codec:ident) => {
            |values, importance, out| {
                let blocks = values.as_chunks().0.iter().zip(importance.as_chunks().0);
                for ((values, importance), block) in blocks.zip(out.as_chunks_mut().0) {
                    $codec::encode_weighted(values, usable(importance).as_ref(), block);
                }
            }
        };
    }
    Some(match dtype {
        DType::Q2_K => weighted!(q2_k),
        DType::Q3_K => weighted!(q3_k),
        DType::Q4_K => weighted!(q4_k),
        DType::Q5_K => weighted!(q5_k),
        DType::Q6_K => weighted!(q6_k),
        DType::IQ4_NL => weighted!(iq4_nl),
        DType::IQ4_XS => weighted!(iq4_xs),
        DType::NVFP4 => weighted!(nvfp4),
        DType::Q1_0 => weighted!(q1_0),
        DType::Q2_0 => weighted!(q2_0),
        DType::IQ1_S => weighted!(iq1_s),
        DType::IQ1_M => weighted!(iq1_m),
        DType::IQ2_XXS => weighted!(iq2_xxs),
        DType::IQ2_XS => weighted!(iq2_xs),
        DType::IQ2_S => weighted!(iq2_s),
        DType::IQ3_XXS => weighted!(iq3_xxs),
        DType::IQ3_S => weighted!(iq3_s),
        _ => return None,
    })
}

/// Importance that counts every element at least a little: what does not matter at all may still become anything. `None` if
/// all of it is 0.
fn usable<const N: usize>(importance: &[f32; N]) -> Option<[f32; N]> {
    let mean = importance.iter().sum::<f32>() / N as f32;
    (mean > 0.0 && mean.is_finite()).then(|| importance.map(|weight| (weight / mean).max(1e-6)))
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
