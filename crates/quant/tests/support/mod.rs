//! Reading fixtures.
#![allow(dead_code)] // every test file uses its own share

use std::path::PathBuf;

use orlop_graph::DType;

pub(crate) fn read_bytes(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "fixtures", name].iter().collect();
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn read_f32(name: &str) -> Vec<f32> {
    let bytes = read_bytes(name);
    assert!(bytes.len().is_multiple_of(4) && !bytes.is_empty(), "{name}");
    orlop_testkit::f32s(&bytes)
}

pub(crate) fn row_bytes(dtype: DType, elements: usize) -> usize {
    dtype.row_bytes(elements as u64).expect("whole blocks") as usize
}

pub(crate) fn encode(dtype: DType, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xa5; row_bytes(dtype, values.len())];
    orlop_quant::encode(dtype, values, &mut bytes).expect("an encoder and matching lengths");
    bytes
}

pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let elements = bytes.len() as u64 / dtype.block_bytes() * dtype.block_elements();
    let mut values = vec![f32::NAN; elements as usize];
    orlop_quant::decode(dtype, bytes, &mut values).expect("a decoder and matching lengths");
    values
}

pub(crate) fn round_trip(dtype: DType, values: &[f32]) -> Vec<f32> {
    decode(dtype, &encode(dtype, values))
}

/// Quantised types with a codec.
pub(crate) fn block_types() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| dtype.is_quantized() && orlop_quant::supports_encode(*dtype))
}
