//! Bit for bit against the reference codecs; fixtures/generate.py says where the files come from.

mod support;

use half::f16;
use orlop_graph::DType;
use orlop_quant::{q8_1, q8_k};
use support::{decode, encode, read_bytes, read_f32, row_bytes};

fn assert_decodes(dtype: DType) {
    let name = dtype.name().to_lowercase();
    let found = decode(dtype, &read_bytes(&format!("decode-{name}.bytes")));
    let expected = read_f32(&format!("decode-{name}.f32"));
    assert_eq!(found.len(), expected.len());
    for (element, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.to_bits(), expected.to_bits(), "{dtype} element {element}: {found} for {expected}");
    }
}

fn assert_encodes(dtype: DType) {
    let name = dtype.name().to_lowercase();
    let found = encode(dtype, &read_f32(&format!("encode-{name}.f32")));
    let expected = read_bytes(&format!("encode-{name}.bytes"));
    assert_eq!(found.len(), expected.len());
    let size = row_bytes(dtype, dtype.block_elements().max(32) as usize);
    for (row, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
        assert_eq!(found, expected, "{dtype} row {row}");
    }
}

macro_rules! reference_tests {
    ($assert:ident: $($test:ident $dtype:ident,)*) => {
        $(#[test]
        fn $test() {
            $assert(DType::$dtype);
        })*
    };
}

reference_tests! { assert_decodes:
    f16_decodes_as_the_reference F16,
    bf16_decodes_as_the_reference BF16,
    q4_0_decodes_as_the_reference Q4_0,
    q4_1_decodes_as_the_reference Q4_1,
    q5_0_decodes_as_the_reference Q5_0,
    q5_1_decodes_as_the_reference Q5_1,
    q8_0_decodes_as_the_reference Q8_0,
    q2_k_decodes_as_the_reference Q2_K,
    q3_k_decodes_as_the_reference Q3_K,
    q4_k_decodes_as_the_reference Q4_K,
    q5_k_decodes_as_the_reference Q5_K,
    q6_k_decodes_as_the_reference Q6_K,
    iq4_nl_decodes_as_the_reference IQ4_NL,
    iq4_xs_decodes_as_the_reference IQ4_XS,
    mxfp4_decodes_as_the_reference MXFP4,
    tq2_0_decodes_as_the_reference TQ2_0,
    tq1_0_decodes_as_the_reference TQ1_0,
    nvfp4_decodes_as_the_reference NVFP4,
    q1_0_decodes_as_the_reference Q1_0,
    q2_0_decodes_as_the_reference Q2_0,
    iq1_s_decodes_as_the_reference IQ1_S,
    iq1_m_decodes_as_the_reference IQ1_M,
    iq2_xxs_decodes_as_the_reference IQ2_XXS,
    iq2_xs_decodes_as_the_reference IQ2_XS,
    iq2_s_decodes_as_the_reference IQ2_S,
    iq3_xxs_decodes_as_the_reference IQ3_XXS,
    iq3_s_decodes_as_the_reference IQ3_S,
}

reference_tests! { assert_encodes:
    f16_encodes_as_the_reference F16,
    bf16_encodes_as_the_reference BF16,
    q4_0_encodes_as_the_reference Q4_0,
    q4_1_encodes_as_the_reference Q4_1,
    q5_0_encodes_as_the_reference Q5_0,
    q5_1_encodes_as_the_reference Q5_1,
    q8_0_encodes_as_the_reference Q8_0,
    mxfp4_encodes_as_the_reference MXFP4,
    tq2_0_encodes_as_the_reference TQ2_0,
    tq1_0_encodes_as_the_reference TQ1_0,
}

/// Blocks of normal values, one block of zeros, one with a single value.
fn rows() -> Vec<f32> {
    let mut values = read_f32("normal.f32");
    values.truncate(8 * 256);
    values[256..512].fill(0.0);
    values[512..768].fill(0.0);
    values[700] = 3.5;
    values
}

#[test]
fn q8_1_is_q8_0_with_the_sum_of_the_block() {
    let values = rows();
    let bytes = encode(DType::Q8_1, &values);
    let plain = encode(DType::Q8_0, &values);
    let decoded = decode(DType::Q8_1, &bytes);
    for (index, block) in bytes.as_chunks::<{ q8_1::BYTES }>().0.iter().enumerate() {
        let values = &values[index * 32..][..32];
        let scale = values.iter().fold(0f32, |max, value| max.max(value.abs())) / 127.0;
        let mut sum = 0;
        for (element, value) in values.iter().enumerate() {
            let q = if scale == 0.0 { 0 } else { (value * (1.0 / scale)).round() as i8 };
            assert_eq!(block[4 + element] as i8, q);
            assert_eq!(decoded[index * 32 + element], f16::from_f32(scale).to_f32() * f32::from(q));
            sum += i32::from(q);
        }
        assert_eq!(block[..2], f16::from_f32(scale).to_le_bytes());
        assert_eq!(block[2..4], f16::from_f32(sum as f32 * scale).to_le_bytes());
        assert_eq!(block[..2], plain[index * 34..][..2]);
        assert_eq!(block[4..], plain[index * 34..][2..34]);
    }
}

#[test]
fn q8_k_has_a_wide_scale_and_sums_of_16() {
    let values = rows();
    let bytes = encode(DType::Q8_K, &values);
    let decoded = decode(DType::Q8_K, &bytes);
    for (index, block) in bytes.as_chunks::<{ q8_k::BYTES }>().0.iter().enumerate() {
        let values = &values[index * 256..][..256];
        let extreme =
            values.iter().fold(0f32, |best, value| if value.abs() > best.abs() { *value } else { best });
        let inverse = if extreme == 0.0 { 0.0 } else { -127.0 / extreme };
        let scale = if extreme == 0.0 { 0.0 } else { 1.0 / inverse };
        assert_eq!(block[..4], scale.to_le_bytes());
        let quants: Vec<i8> = values.iter().map(|v| (v * inverse).round_ties_even() as i8).collect();
        for (element, q) in quants.iter().enumerate() {
            assert_eq!(block[4 + element] as i8, *q);
            assert_eq!(decoded[index * 256 + element], scale * f32::from(*q));
        }
        let sums = q8_k::sums(block);
        for (group, quants) in quants.chunks(16).enumerate() {
            assert_eq!(sums[group], quants.iter().map(|q| i16::from(*q)).sum::<i16>());
        }
    }
}
