//! What holds for any row.

mod support;

use orlop_graph::DType;
use orlop_quant::{QuantError, decode_f64, encode_weighted, supports_decode, supports_encode};
use proptest::prelude::*;
use support::{block_types, decode, encode, round_trip};

/// One super-block of values of mixed magnitudes, signs and zeros.
fn row() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        6 => -1.0f32..1.0,
        2 => -30.0f32..30.0,
        1 => -1e-3f32..1e-3,
        1 => Just(0.0f32),
    ];
    proptest::collection::vec(value, 256)
}

/// The largest step between neighbouring levels, as a share of the spread of the values that share a scale:
/// largest magnitude for symmetric types, largest minus smallest (zero counts) for types with a minimum.
fn error_bound(dtype: DType, values: &[f32]) -> f32 {
    let magnitude = values.iter().fold(0f32, |max, value| max.max(value.abs()));
    let low = values.iter().fold(0f32, |min, value| min.min(*value));
    let high = values.iter().fold(0f32, |max, value| max.max(*value));
    let spread = high - low;
    // A share of the block's spread, with room for the rounding of scales and minima to 4, 6 or 16 bits.
    match dtype {
        DType::Q4_0 => magnitude / 8.0 * 1.01,
        DType::Q5_0 => magnitude / 16.0 * 1.01,
        DType::Q4_1 => spread / 15.0 * 0.51 + magnitude / 1024.0,
        DType::Q5_1 => spread / 31.0 * 0.51 + magnitude / 1024.0,
        DType::Q8_0 | DType::Q8_1 => magnitude / 127.0 * 0.58,
        DType::Q8_K => magnitude / 127.0 * 0.51,
        DType::MXFP4 => magnitude / 4.0 * 1.01,
        DType::IQ4_NL | DType::IQ4_XS => magnitude * 0.25,
        DType::Q2_K => spread * 0.5,
        DType::Q3_K => magnitude * 0.5,
        DType::Q4_K => spread * 0.1,
        DType::Q5_K => spread * 0.05,
        DType::Q6_K => magnitude * 0.05,
        DType::TQ1_0 | DType::TQ2_0 => magnitude * 0.501,
        DType::NVFP4 => magnitude / 4.0 * 1.01,
        DType::Q1_0 | DType::Q2_0 | DType::IQ1_S | DType::IQ1_M => magnitude * 1.01,
        DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S => magnitude * 1.01,
        DType::IQ3_XXS | DType::IQ3_S => magnitude * 0.7,
        _ => unreachable!("{dtype} has no bound"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn errors_are_bounded_by_the_spread_of_the_row(values in row()) {
        for dtype in block_types() {
            let bound = error_bound(dtype, &values);
            for (value, back) in values.iter().zip(round_trip(dtype, &values)) {
                prop_assert!((value - back).abs() <= bound + 1e-6, "{dtype}: {value} became {back}, bound {bound}");
            }
        }
    }

    #[test]
    fn decoded_values_of_single_scale_types_encode_to_themselves(values in row()) {
        let types =
            [DType::F16, DType::BF16, DType::Q4_0, DType::Q5_0, DType::Q8_0, DType::Q8_1, DType::MXFP4, DType::TQ2_0];
        for dtype in types {
            let once = round_trip(dtype, &values);
            prop_assert_eq!(&once, &round_trip(dtype, &once), "{}", dtype);
        }
    }

    #[test]
    fn blocks_are_encoded_independently(values in row(), other in row()) {
        for dtype in block_types() {
            let joined: Vec<f32> = values.iter().chain(&other).copied().collect();
            let parts = [encode(dtype, &values), encode(dtype, &other)].concat();
            prop_assert_eq!(encode(dtype, &joined), parts, "{}", dtype);
        }
    }

    #[test]
    fn any_bits_encode_without_a_panic(bits in proptest::collection::vec(any::<u32>(), 256)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for dtype in DType::all().filter(|dtype| supports_encode(*dtype)) {
            round_trip(dtype, &values);
        }
    }

    #[test]
    fn any_bytes_decode_the_same_in_f32_and_f64(bytes in proptest::collection::vec(any::<u8>(), 512)) {
        for dtype in DType::all().filter(|dtype| supports_decode(*dtype)) {
            let blocks = bytes.len() / dtype.block_bytes() as usize;
            let bytes = &bytes[..blocks * dtype.block_bytes() as usize];
            let narrow = decode(dtype, bytes);
            let mut wide = vec![0.0; narrow.len()];
            decode_f64(dtype, bytes, &mut wide).unwrap();
            for (narrow, wide) in narrow.iter().zip(wide) {
                prop_assert!(*narrow == wide as f32 || (narrow.is_nan() && wide.is_nan()), "{dtype}");
            }
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for dtype in block_types() {
        assert!(round_trip(dtype, &[0.0; 512]).iter().all(|value| *value == 0.0), "{dtype}");
        assert!(round_trip(dtype, &[-0.0; 256]).iter().all(|value| *value == 0.0), "{dtype}");
    }
}

#[test]
fn a_nan_or_an_infinity_spoils_its_block_and_no_other() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for dtype in block_types() {
            let block = dtype.block_elements() as usize;
            let mut values = vec![1.0; 3 * block];
            values[block + 7] = bad;
            let back = round_trip(dtype, &values);
            for (index, value) in back.iter().enumerate() {
                let spoiled = match dtype {
                    DType::MXFP4 => value.is_infinite(),
                    DType::NVFP4 => *value == 2688.0,
                    _ => value.is_nan(),
                };
                assert_eq!(spoiled, index / block == 1, "{dtype} element {index}: {value}");
            }
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let back = round_trip(dtype, &[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0]);
        assert!(back[0].is_nan());
        assert_eq!(back[1..], [f32::INFINITY, f32::NEG_INFINITY, 1.0]);
    }
}

/// Types whose scale reaches as far as `f32` does.
const WIDE_SCALES: [DType; 2] = [DType::Q8_K, DType::MXFP4];

fn mixed_signs(magnitude: f32) -> Vec<f32> {
    (0..256).map(|i| if i % 3 == 0 { -magnitude } else { magnitude }).collect()
}

#[test]
fn values_too_large_for_the_scale_do_not_decode_to_finite_ones() {
    for magnitude in [3e38, 1e30, 1e20, 3e12, 1e11] {
        let values = mixed_signs(magnitude);
        for dtype in block_types() {
            let back = round_trip(dtype, &values);
            if WIDE_SCALES.contains(&dtype) {
                let close = |(a, b): (&f32, &f32)| (a / magnitude - b / magnitude).abs() < 0.3;
                assert!(values.iter().zip(&back).all(close), "{dtype} {magnitude}");
            } else if dtype == DType::NVFP4 {
                assert!(values.iter().zip(&back).all(|(value, back)| *back == 2688f32.copysign(*value)));
            } else {
                assert!(back.iter().all(|value| !value.is_finite()), "{dtype} {magnitude}: {back:?}");
            }
        }
    }
}

#[test]
fn values_too_small_for_the_scale_decode_to_zero() {
    for magnitude in [1e-14, 1e-20, 1e-38, 1e-45] {
        let values = mixed_signs(magnitude);
        for dtype in block_types().filter(|dtype| !WIDE_SCALES.contains(dtype)) {
            assert!(round_trip(dtype, &values).iter().all(|value| *value == 0.0), "{dtype} {magnitude}");
        }
    }
    assert!(round_trip(DType::Q8_K, &mixed_signs(1e-38)).iter().all(|value| *value == 0.0));
    assert!(round_trip(DType::MXFP4, &mixed_signs(1e-40)).iter().all(|value| *value == 0.0));
}

#[test]
fn wide_numbers_keep_their_digits_in_f64() {
    let mut out = [0.0];
    decode_f64(DType::I64, &9_007_199_254_740_993i64.to_le_bytes(), &mut out).unwrap();
    assert_eq!(out, [9_007_199_254_740_992.0]);
    decode_f64(DType::I32, &(i32::MAX - 1).to_le_bytes(), &mut out).unwrap();
    assert_eq!(out, [2_147_483_646.0]);
    decode_f64(DType::F64, &0.1f64.to_le_bytes(), &mut out).unwrap();
    assert_eq!(out, [0.1]);
    assert_eq!(decode(DType::F64, &0.1f64.to_le_bytes()), [0.1f32]);
}

#[test]
fn integers_decode_to_their_numbers() {
    assert_eq!(decode(DType::I8, &[0x80, 0x7f]), [-128.0, 127.0]);
    assert_eq!(decode(DType::I16, &[0x00, 0x80, 0xff, 0x7f]), [-32768.0, 32767.0]);
    assert_eq!(decode(DType::I32, &(-70_000i32).to_le_bytes()), [-70_000.0]);
    assert_eq!(decode(DType::I64, &i64::MIN.to_le_bytes()), [i64::MIN as f32]);
}

#[test]
fn wrong_lengths_are_refused() {
    let error = orlop_quant::decode(DType::Q4_0, &[0; 18], &mut [0.0; 31]);
    assert_eq!(error, Err(QuantError::PartialBlock { dtype: DType::Q4_0, elements: 31 }));
    let error = orlop_quant::decode(DType::Q4_0, &[0; 17], &mut [0.0; 32]);
    assert_eq!(error, Err(QuantError::Length { dtype: DType::Q4_0, elements: 32, expected: 18, found: 17 }));
    for dtype in DType::all() {
        let (elements, bytes) = (2 * dtype.block_elements() as usize, 2 * dtype.block_bytes() as usize);
        for found in [0, bytes - 1, bytes + 1, bytes * 2] {
            if supports_decode(dtype) {
                assert!(orlop_quant::decode(dtype, &vec![0; found], &mut vec![0.0; elements]).is_err());
                assert!(decode_f64(dtype, &vec![0; found], &mut vec![0.0; elements]).is_err());
            }
            if supports_encode(dtype) {
                assert!(orlop_quant::encode(dtype, &vec![0.0; elements], &mut vec![0; found]).is_err());
            }
        }
    }
}

#[test]
fn an_empty_row_is_a_row() {
    for dtype in DType::all().filter(|dtype| supports_encode(*dtype)) {
        assert_eq!(orlop_quant::encode(dtype, &[], &mut []), Ok(()));
        assert_eq!(orlop_quant::decode(dtype, &[], &mut []), Ok(()));
        assert_eq!(decode_f64(dtype, &[], &mut []), Ok(()));
    }
}

#[test]
fn every_type_can_be_decoded_and_every_block_type_encoded() {
    assert!(DType::all().all(supports_decode));
    assert!(DType::all().filter(|dtype| dtype.is_quantized()).all(supports_encode));
}

#[test]
fn importance_is_one_number_for_each_element() {
    let (values, mut out) = ([1.0; 256], [0xa5; 66]);
    for importance in [&[1.0; 255][..], &[-1.0; 256], &[f32::NAN; 256]] {
        let error = encode_weighted(DType::IQ2_XXS, &values, importance, &mut out);
        assert_eq!(error, Err(QuantError::Importance { elements: 256, found: importance.len() }));
        assert_eq!(out, [0xa5; 66]);
    }
    // All zeros say nothing.
    encode_weighted(DType::IQ2_XXS, &values, &[0.0; 256], &mut out).unwrap();
    assert_eq!(out[..], encode(DType::IQ2_XXS, &values));
}

#[test]
fn integers_decode_but_do_not_encode() {
    for dtype in DType::all().filter(|dtype| dtype.is_integer()) {
        assert!(supports_decode(dtype) && !supports_encode(dtype));
        assert_eq!(orlop_quant::encode(dtype, &[], &mut []), Err(QuantError::DecodeOnly(dtype)));
    }
}
