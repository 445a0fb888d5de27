//! Rust numbers as bytes of tensors.

use std::fmt::Debug;

use orlop_graph::{DType, Element};

/// Numbers become these bytes, and the bytes these numbers.
fn both_ways<T: Element + PartialEq + Debug>(dtype: DType, values: &[T], bytes: &[u8]) {
    assert_eq!(T::DTYPE, dtype);
    assert_eq!(T::to_bytes(values), bytes);
    assert_eq!(T::from_bytes(bytes), values);
    let mut longer = vec![9];
    T::extend_bytes(values, &mut longer);
    assert_eq!(longer, [&[9], bytes].concat());
    // A part of an element is left out.
    assert_eq!(T::from_bytes(&bytes[..bytes.len() - 1]), values[..values.len() - 1]);
}

#[test]
fn numbers_are_little_endian() {
    both_ways(DType::F32, &[1.0f32, -2.0], &[0, 0, 128, 63, 0, 0, 0, 192]);
    both_ways(DType::F64, &[1.0f64], &[0, 0, 0, 0, 0, 0, 240, 63]);
    both_ways(DType::I8, &[1i8, -1], &[1, 255]);
    both_ways(DType::I16, &[258i16, -2], &[2, 1, 254, 255]);
    both_ways(DType::I32, &[258i32, -2], &[2, 1, 0, 0, 254, 255, 255, 255]);
    both_ways(DType::I64, &[258i64], &[2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!((f32::to_bytes(&[]), f32::from_bytes(&[])), (vec![], vec![]));
}
