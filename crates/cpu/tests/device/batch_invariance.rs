//! A row of a product has the same bits whatever is multiplied beside it.

use std::sync::Arc;

use orlop_backend::{Device, LowerOptions, Precision};
use orlop_graph::{DType, Graph, GraphBuilder, TensorId};
use orlop_sched::SessionOptions;
use orlop_testkit::{Feeds, PlannedOptions, encode_elements, f32_bytes, run_planned};

use crate::{device, isas, lower, noise, run};

/// Different rows.
const ROWS: u64 = 41;
/// Rows at a time: all that loops take, and as many as make panels of floats worthwhile, for each expert too.
const COUNTS: [usize; 16] = [2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 25, 32, 41, 100, 300];
const DEPTH: u64 = 512;
const COLUMNS: u64 = 37;

fn weight_types() -> impl Iterator<Item = DType> {
    DType::all()
        .filter(|dtype| !dtype.is_integer() && orlop_quant::supports_encode(*dtype))
        .filter(|dtype| !matches!(dtype, DType::F64 | DType::Q8_1 | DType::Q8_K))
}

/// Rows of activations, of which some have outliers.
fn activations(each: u64) -> Vec<Vec<f32>> {
    let outlier = |row: u64, k: u64| if (k + row).is_multiple_of(97) { 50.0 } else { 1.0 };
    (0..ROWS)
        .map(|row| {
            let values = noise(DEPTH * each, 3 + row);
            values.iter().zip(0..).map(|(x, k)| (*x * outlier(row, k)) as f32).collect()
        })
        .collect()
}

/// The outputs of a graph.
fn outputs(
    device: &Arc<dyn Device>,
    graph: &Graph,
    feeds: &Feeds,
    precision: Precision,
    threads: usize,
) -> Vec<(TensorId, Vec<u8>)> {
    let lower = LowerOptions { precision, ..lower(threads) };
    let session = SessionOptions { lower, ..SessionOptions::default() };
    run_planned(device, graph, feeds, &PlannedOptions { session, run: run(threads), weights: None }).unwrap()
}

/// Compares every row of outputs for some rows with the outputs for that row alone. `graph` makes a graph and its feeds.
fn rows_are_independent(what: &str, precision: Precision, graph: impl Fn(&[usize]) -> (Graph, Feeds)) {
    for isa in isas() {
        let device: Arc<dyn Device> = device(isa);
        let outputs = |rows: &[usize], threads| {
            let (graph, feeds) = graph(rows);
            outputs(&device, &graph, &feeds, precision, threads)
        };
        let alone: Vec<_> = (0..ROWS as usize).map(|row| outputs(&[row], 1)).collect();
        for (count, threads) in COUNTS.into_iter().zip([1, 3].into_iter().cycle()) {
            // Not in their order: 7 and 41 have no common factor.
            let rows: Vec<usize> = (0..count).map(|place| 7 * place % ROWS as usize).collect();
            for (number, (_, bytes)) in outputs(&rows, threads).iter().enumerate() {
                for (row, bytes) in rows.iter().zip(bytes.chunks_exact(bytes.len() / count)) {
                    let same = alone[*row][number].1 == bytes;
                    assert!(same, "{what} {isa} {precision:?}: row {row} of {count}, output {number}");
                }
            }
        }
    }
}

const PRECISIONS: [Precision; 3] = [Precision::Int8, Precision::Int16, Precision::F32];

/// One product, two that are joined if there are few rows, and one with something added.
#[test]
fn a_row_of_a_product_does_not_depend_on_the_others() {
    let x = activations(1);
    for dtype in weight_types() {
        let weights = [1, 2, 3].map(|seed| encode_elements(dtype, &noise(DEPTH * COLUMNS, seed)).unwrap());
        for precision in PRECISIONS {
            rows_are_independent(&dtype.to_string(), precision, |rows| {
                let mut b = GraphBuilder::new();
                let names = ["a", "b", "c"].map(|name| b.weight(name, dtype, &[DEPTH, COLUMNS]));
                let input = b.input("x", DType::F32, &[DEPTH, rows.len() as u64]);
                let more = b.input("more", DType::F32, &[COLUMNS, rows.len() as u64]);
                let [first, second, third] = names.map(|weights| b.mul_mat(weights, input));
                let sum = b.add(third, more);
                [first, second, sum].into_iter().for_each(|output| {
                    b.output(output);
                });
                let chosen = |length: u64| -> Vec<f32> {
                    rows.iter().flat_map(|row| &x[*row][..length as usize]).copied().collect()
                };
                let mut feeds: Feeds = names.into_iter().zip(weights.iter().cloned()).collect();
                feeds.push((input, f32_bytes(&chosen(DEPTH))));
                feeds.push((more, f32_bytes(&chosen(COLUMNS))));
                (b.build().unwrap(), feeds)
            });
        }
    }
}

#[test]
fn a_token_of_a_product_with_experts_does_not_depend_on_the_others() {
    const EXPERTS: u64 = 5;
    let x = activations(1);
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q4_1, DType::Q4_K, DType::Q6_K] {
        let values = noise(DEPTH * COLUMNS * EXPERTS, 9);
        let weights = encode_elements(dtype, &values).unwrap();
        for precision in PRECISIONS {
            rows_are_independent(&format!("experts of {dtype}"), precision, |rows| {
                let mut b = GraphBuilder::new();
                let matrices = b.weight("w", dtype, &[DEPTH, COLUMNS, EXPERTS]);
                let input = b.input("x", DType::F32, &[DEPTH, 1, rows.len() as u64]);
                let ids = b.input("ids", DType::I32, &[2, rows.len() as u64]);
                let product = b.mul_mat_id(matrices, input, ids);
                b.output(product);
                // One expert has many rows where the others have few.
                let chosen = rows.iter().flat_map(|row| [0, 1 + row % 4]);
                let feeds = vec![
                    (matrices, weights.clone()),
                    (input, f32_bytes(&rows.iter().flat_map(|row| x[*row].clone()).collect::<Vec<f32>>())),
                    (ids, chosen.flat_map(|id| (id as i32).to_le_bytes()).collect()),
                ];
                (b.build().unwrap(), feeds)
            });
        }
    }
}
