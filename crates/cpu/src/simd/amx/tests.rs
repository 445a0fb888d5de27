use orlop_graph::{DType, TensorDesc};
use orlop_testkit::Random;

use super::matrix_unit::MatrixUnit;
use super::*;
use crate::isa::Isa;
use crate::repack::{PackedLayout, ROWS as ROWS_OF_WEIGHTS};
use crate::simd::product::{self, BYTES_8, BYTES_16};

/// Multiplies as AMX does, so that machines without it test all but the instructions.
struct Emulated;

impl MatrixUnit for Emulated {
    fn multiply<const B: usize, const PASSES: usize>(
        &self,
        rows: SpacedRows<'_, B>,
        block: usize,
        column: usize,
        weights: &[[f32; 16]],
        products: &mut Products<PASSES>,
    ) {
        for (pass, products) in products.0.iter_mut().enumerate() {
            for (row, products) in products.iter_mut().enumerate().take(rows.rows.len()) {
                // As an address and a distance, which is what the instruction takes.
                let at = rows.rows[0].as_ptr().addr() + row * rows.distance;
                assert_eq!(at, rows.rows[row].as_ptr().addr());
                let numbers = &rows.rows[row][block][32 * pass + column..];
                *products = std::array::from_fn(|row| {
                    let weight =
                        |k: usize| i32::from(weights[k / 4][row].to_bits().to_le_bytes()[k % 4] as i8);
                    (0..4 * weights.len()).map(|k| i32::from(numbers[k] as i8) * weight(k)).sum()
                });
            }
        }
    }
}

/// Tiles of 16 random rows each.
fn tiles(dtype: DType, length: usize) -> [Vec<u8>; 2] {
    let desc = TensorDesc::contiguous(dtype, &[length as u64, ROWS_OF_WEIGHTS as u64]).unwrap();
    let layout = PackedLayout::of(&desc).unwrap();
    let mut random = Random::new(length as u64);
    [(); 2].map(|()| {
        let values: Vec<f32> = (0..length * ROWS_OF_WEIGHTS).map(|_| random.signed()).collect();
        let mut bytes = vec![0; desc.bytes() as usize];
        let rows = bytes.chunks_exact_mut(desc.row_bytes() as usize);
        for (row, values) in rows.zip(values.chunks(length)) {
            orlop_quant::encode(dtype, values, row).unwrap();
        }
        let mut tiles = vec![0; layout.bytes()];
        layout.pack_rows(Isa::Scalar, &bytes, 0, &mut tiles);
        tiles
    })
}

/// Tiles, taken apart for some instructions.
fn panel_of(isa: Isa, dtype: DType, length: usize, tiles: &[u8]) -> Vec<f32> {
    let mut panel = vec![0.0; length / 32 * product::panel_floats(dtype)];
    product::expand(isa, dtype, tiles, &mut panel);
    panel
}

fn bits_are_those_of_avx512<const B: usize>(dtype: DType, length: usize, rows: usize) {
    let kind = product::panel_kind(dtype).unwrap();
    let tiles = tiles(dtype, length);
    let mut random = Random::new(rows as u64);
    let values: Vec<f32> = (0..rows * length).map(|_| random.signed().powi(3) * 30.0).collect();
    let mut blocks = vec![[0; B]; rows * length / 32];
    product::quantize(Isa::Scalar, &values, &mut blocks);
    let acts: Vec<&[Block<B>]> = blocks.chunks(length / 32).collect();
    let mut products = [(); 2].map(|()| vec![[0.0; 16]; 2 * rows]);
    let [expected, got] = &mut products;
    let panels = tiles.each_ref().map(|tiles| panel_of(Isa::Avx512, dtype, length, tiles));
    product::panel(Isa::Avx512, kind, panels.each_ref().map(Vec::as_slice), &acts, &[], expected);
    let panels = tiles.each_ref().map(|tiles| panel_of(Isa::Amx, dtype, length, tiles));
    for (acts, got) in acts.chunks(ROWS).zip(got.chunks_mut(2 * ROWS)) {
        let rows = SpacedRows::of(acts).unwrap();
        // SAFETY: the test runs on machines with AVX-512 and VNNI alone.
        unsafe { with_passes(&Emulated, kind, panels.each_ref().map(Vec::as_slice), rows, &[], got) };
    }
    let [expected, got] =
        products.map(|products| products.as_flattened().iter().map(|x| x.to_bits()).collect());
    let [expected, got]: [Vec<u32>; 2] = [expected, got];
    assert!(got == expected, "{dtype}, {length} elements, {rows} rows of {B} bytes");
}

#[test]
fn products_have_the_bits_of_avx512() {
    if !Isa::Avx512.is_available() {
        return;
    }
    for dtype in DType::all().filter(|dtype| product::panel_kind(*dtype).is_some()) {
        for (length, rows) in [(256, 1), (768, 15), (1024, 16), (2304, 17), (512, 48)] {
            bits_are_those_of_avx512::<BYTES_8>(dtype, length, rows);
            bits_are_those_of_avx512::<BYTES_16>(dtype, length, rows);
        }
    }
}

#[test]
fn tiles_are_loaded_from_rows_the_same_distance_apart_alone() {
    let blocks = vec![[0; BYTES_8]; 40];
    let rows = |starts: &[usize]| -> bool {
        let acts: Vec<&[Block<BYTES_8>]> = starts.iter().map(|start| &blocks[*start..][..4]).collect();
        loads(&acts)
    };
    assert!(rows(&[0]) && rows(&[0, 4, 8, 12]) && rows(&[0, 8, 16]) && rows(&[8, 8]));
    assert!(!rows(&[0, 4, 12]) && !rows(&[8, 4, 12]));
    assert!(!loads(&[&blocks[..4], &blocks[4..7]]));
}
