use orlop_graph::{DType, TensorDesc};
use orlop_testkit::Random;

use super::matrix_unit::MatrixUnit;
use super::*;
use crate::isa::Isa;
use crate::repack::{PackedLayout, ROWS as ROWS_OF_WEIGHTS};
use crate::simd::product::{self, BYTES_8, BYTES_16, Numbers as Kept};

/// Multiplies as AMX does, so that machines without it test all but the instructions.
struct Emulated;

impl MatrixUnit for Emulated {
    fn multiply<const PASSES: usize>(
        &self,
        numbers: &Numbers,
        column: usize,
        weights: &[[f32; 16]],
        products: &mut Products<PASSES>,
    ) {
        for (pass, products) in products.0.iter_mut().enumerate() {
            for (numbers, products) in numbers.0.iter().zip(products) {
                *products = std::array::from_fn(|row| {
                    let weight =
                        |k: usize| i32::from(weights[k / 4][row].to_bits().to_le_bytes()[k % 4] as i8);
                    let number = |k: usize| i32::from(numbers[32 * pass + column + k] as i8);
                    (0..4 * weights.len()).map(|k| number(k) * weight(k)).sum()
                });
            }
        }
    }
}

/// Panels of 16 random rows each.
fn panels(dtype: DType, length: usize) -> [Vec<f32>; 2] {
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
        let mut panel = vec![0.0; length / 32 * product::panel_floats(dtype)];
        product::expand(Isa::Scalar, dtype, &tiles, &mut panel);
        panel
    })
}

fn bits_are_those_of_avx512<const B: usize>(dtype: DType, length: usize, rows: usize) {
    let kind = product::panel_kind(dtype).unwrap();
    let panels = panels(dtype, length);
    let panels = panels.each_ref().map(Vec::as_slice);
    let mut random = Random::new(rows as u64);
    let values: Vec<Vec<f32>> =
        (0..rows).map(|_| (0..length).map(|_| random.signed().powi(3) * 30.0).collect()).collect();
    let rounded = |kept: Kept| -> Vec<Vec<Block<B>>> {
        let round = |values: &Vec<f32>| {
            let mut blocks = vec![[0; B]; length / 32];
            product::quantize(Isa::Scalar, values, kept, &mut blocks);
            blocks
        };
        values.iter().map(round).collect()
    };
    let mut products = [(); 2].map(|()| vec![[0.0; 16]; 2 * rows]);
    let acts = rounded(Kept::Biased);
    let acts: Vec<&[Block<B>]> = acts.iter().map(Vec::as_slice).collect();
    product::panel(Isa::Avx512, Kept::Biased, kind, panels, &acts, &[], &mut products[0]);
    let acts = rounded(Kept::Signed);
    let acts: Vec<&[Block<B>]> = acts.iter().map(Vec::as_slice).collect();
    // SAFETY: the test runs on machines with AVX-512 and VNNI alone.
    unsafe { with_passes(&Emulated, kind, panels, &acts, &[], &mut products[1]) };
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
