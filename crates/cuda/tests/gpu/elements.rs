//! Single elements: rows and indices, conversions to blocks and integers, the largest of a row.

use std::sync::Arc;

use orlop_backend::{Device, DeviceError, Role};
use orlop_graph::{DType, GraphBuilder, Rope, RopeMode, Unary};
use orlop_quant::encode;
use orlop_testkit::{Feeds, f32_bytes, i32_bytes, run_planned};

use crate::Test;
use crate::support::{compare, numbers, outputs, weights};

pub(crate) const TESTS: &[Test] = tests![
    blocks_are_written_as_the_reference_does,
    bad_indices_are_errors,
    the_later_of_equal_rows_stays,
    numbers_saturate_as_the_reference_does,
    the_largest_element_is_found
];

/// Elements are quantized as the reference does it.
fn blocks_are_written_as_the_reference_does(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[128, 3]);
        let y = b.cast(x, dtype);
        b.output(y);
        let graph = b.build().unwrap();
        let values = numbers(7, 384);
        let found = run_planned(device, &graph, &[(x, f32_bytes(&values))], &Default::default()).unwrap();
        let mut wanted = vec![0; graph.tensor(y).desc.bytes() as usize];
        encode(dtype, &values, &mut wanted).unwrap();
        let other: Vec<String> = found[0]
            .1
            .iter()
            .zip(&wanted)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(at, (a, b))| format!("{at}: {a} for {b}"))
            .collect();
        if !other.is_empty() {
            failures.push(format!(
                "{dtype}: {} of {} bytes differ: {}",
                other.len(),
                wanted.len(),
                other[..other.len().min(8)].join(", ")
            ));
        }
    }
    failures
}

/// An index out of range is an error, and the device goes on.
fn bad_indices_are_errors(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let mut b = GraphBuilder::new();
    let table = b.input("table", DType::F32, &[4, 3]);
    let indices = b.input("indices", DType::I32, &[2]);
    let rows = b.get_rows(table, indices);
    let y = b.unary(Unary::Sqr, rows);
    b.output(y);
    let graph = b.build().unwrap();
    let feeds = |bad: i32| vec![(table, f32_bytes(&[2.0; 12])), (indices, i32_bytes(&[1, bad]))];
    let options = Default::default();
    match run_planned(device, &graph, &feeds(7), &options) {
        Err(error) if matches!(error.device_error(), Some(DeviceError::BadIndex { index: 7, .. })) => {}
        other => failures.push(format!("index 7 of 3 rows gave {other:?}")),
    }
    match run_planned(device, &graph, &feeds(2), &options) {
        Ok(found) if found[0].1 == f32_bytes(&[4.0; 8]) => {}
        other => failures.push(format!("after a bad index, a good one gave {other:?}")),
    }
    failures
}

/// What happens to rows on their way into a table.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Turned,
    Multiplied,
}

/// Of rows with the same index the last one stays: copied, quantized, rotated and multiplied on the way.
fn the_later_of_equal_rows_stays(device: &Arc<dyn Device>) -> Vec<String> {
    let (head, heads, tokens, rows) = (64, 4, 300, 7);
    let indices_of = |repeated: bool| -> Vec<i32> {
        let index = |token: i32| if token % 11 == 3 { -1 } else { token * 5 % rows };
        // Each row once, or many times.
        (0..tokens).map(|token| if repeated || token < rows { index(token) } else { -1 }).collect()
    };
    let mut failures = Vec::new();
    for (dtype, before) in [
        (DType::F32, Before::Nothing),
        (DType::Q8_0, Before::Nothing),
        (DType::Q4_0, Before::Nothing),
        (DType::Q5_1, Before::Nothing),
        (DType::F32, Before::Turned),
        (DType::F16, Before::Turned),
        (DType::Q8_0, Before::Turned),
        (DType::Q8_0, Before::Multiplied),
        (DType::Q4_0, Before::Multiplied),
        (DType::F16, Before::Multiplied),
    ] {
        for repeated in [false, true] {
            let mut b = GraphBuilder::new();
            let x = b.input("x", DType::F32, &[head, heads, tokens as u64]);
            let positions = b.input("positions", DType::I32, &[tokens as u64]);
            let indices = b.input("indices", DType::I32, &[tokens as u64]);
            let table = b.state("table", dtype, &[head, rows as u64, heads]);
            let rope = Rope { mode: RopeMode::Neox, dims: head as u32, ..Rope::default() };
            let matrix = b.input("matrix", DType::F32, &[head, head]);
            let new = match before {
                Before::Nothing => x,
                Before::Turned => b.rope(x, positions, None, rope),
                Before::Multiplied => b.mul_mat(matrix, x),
            };
            let new = b.permute(new, [0, 2, 1, 3]);
            let written = b.set_rows(table, new, indices);
            let y = b.cast(written, DType::F32);
            b.output(y);
            let graph = b.build().unwrap();
            let count = (head * heads) as usize;
            let feeds: Feeds = vec![
                (x, f32_bytes(&numbers(3, count * tokens as usize))),
                (matrix, f32_bytes(&numbers(4, (head * head) as usize))),
                (positions, i32_bytes(&(0..tokens).collect::<Vec<i32>>())),
                (indices, i32_bytes(&indices_of(repeated))),
                (table, weights(dtype, 5, head * heads, rows as u64)),
            ];
            let name = format!("{dtype}, {before:?} before, repeated {repeated}");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-6));
        }
    }
    failures
}

/// Numbers beyond an integer type's range become its ends, and a NaN or infinite activation shows in the results.
fn numbers_saturate_as_the_reference_does(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let values = [300.0, -300.0, 1e6, -1e6, 127.6, -128.9, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e20];
    for dtype in [DType::I8, DType::I16, DType::I32] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[values.len() as u64]);
        let y = b.cast(x, dtype);
        b.output(y);
        let graph = b.build().unwrap();
        let found = run_planned(device, &graph, &[(x, f32_bytes(&values))], &Default::default()).unwrap();
        let wanted: Vec<u8> = match dtype {
            DType::I8 => values.iter().flat_map(|value| (*value as i8).to_le_bytes()).collect(),
            DType::I16 => values.iter().flat_map(|value| (*value as i16).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect(),
        };
        if found[0].1 != wanted {
            failures.push(format!("{values:?} as {dtype} became {:?} for {wanted:?}", found[0].1));
        }
    }
    for (dtype, tokens, bad) in [DType::Q4_0, DType::Q6_K, DType::Q8_0]
        .into_iter()
        .flat_map(|dtype| [1, 3].map(|tokens| (dtype, tokens)))
        .flat_map(|(dtype, tokens)| [f32::NAN, f32::INFINITY].map(|bad| (dtype, tokens, bad)))
    {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", dtype, &[256, 32]);
        let x = b.input("x", DType::F32, &[256, tokens]);
        let y = b.mul_mat(w, x);
        b.output(y);
        let graph = b.build().unwrap();
        let mut activations = numbers(4, 256 * tokens as usize);
        activations[77] = bad;
        let feeds: Feeds = vec![(w, weights(dtype, 3, 256, 32)), (x, f32_bytes(&activations))];
        let found = &outputs(device, Role::Weight, &graph, &feeds)[0];
        if found[..32].iter().any(|value| value.is_finite()) {
            failures.push(format!("{dtype}, {tokens} tokens: {bad} became {:?}", &found[..4]));
        }
    }
    failures
}

/// The first of the largest elements, in rows as long as a vocabulary and in short ones.
fn the_largest_element_is_found(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let special = [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0, -2.5, 1.5, f32::INFINITY];
    for (k, rows) in
        [(1u64, 1u64), (5, 1), (33, 1), (1000, 3), (4096, 2), (49152, 1), (50257, 1), (256_000, 1)]
    {
        // How many of the special elements occur; with none, the numbers differ.
        for kinds in 0..=special.len() {
            let mut b = GraphBuilder::new();
            let x = b.input("x", DType::F32, &[k, rows]);
            let y = b.argmax(x);
            b.output(y);
            let graph = b.build().unwrap();
            let mut values = numbers(k + kinds as u64, (k * rows) as usize);
            if kinds > 0 {
                let index = |value: f32| ((value + 1.0) / 2.0 * kinds as f32) as usize;
                values.iter_mut().for_each(|value| *value = special[index(*value).min(kinds - 1)]);
            }
            let found = run_planned(device, &graph, &[(x, f32_bytes(&values))], &Default::default()).unwrap();
            let first_largest = |row: &[f32]| {
                let above = |a: f32, b: f32| a > b || (b.is_nan() && !a.is_nan());
                (1..row.len()).fold(0, |best, at| if above(row[at], row[best]) { at } else { best }) as i32
            };
            let wanted: Vec<i32> = values.chunks(k as usize).map(first_largest).collect();
            if found[0].1 != i32_bytes(&wanted) {
                failures.push(format!("{k} x {rows}, {kinds} kinds: not {wanted:?}"));
            }
        }
    }
    failures
}
