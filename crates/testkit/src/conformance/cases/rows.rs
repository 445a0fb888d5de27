//! Rows of tables, read and written by index.

use orlop_graph::{DType, Leaf, TensorId};

use super::quantised;
use crate::conformance::Tolerance::{Elementwise, Encoded, Exact};
use crate::conformance::case::{Draft, Lie, Table};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    get_rows(table);
    set_rows(table);
}

fn row_length(dtype: DType) -> u64 {
    if dtype.is_quantized() { dtype.block_elements() * 2 } else { 9 }
}

fn get_rows(table: &mut Table) {
    for dtype in [DType::F32, DType::F16, DType::BF16].into_iter().chain(quantised()) {
        for (detail, extents, indices) in [
            ("one row", [7, 1, 1], [1, 1, 1]),
            ("some rows", [7, 1, 1], [12, 1, 1]),
            ("planes", [5, 3, 2], [4, 3, 2]),
        ] {
            table.add("get_rows", format!("{dtype} {detail}"), Elementwise, |d| {
                let [rows, b, c] = extents;
                let from = d.weight(dtype, &[row_length(dtype), rows, b, c], Fill::SIGNED);
                let indices = d.indices(&indices, rows as i64);
                d.b.get_rows(from, indices)
            });
        }
    }
    for (dtype, lie) in [
        (DType::F32, Lie::Padded),
        (DType::F32, Lie::Window),
        (DType::F32, Lie::Permuted),
        (DType::F32, Lie::Transposed),
        (DType::F16, Lie::Window),
        (DType::Q8_0, Lie::Padded),
        (DType::Q4_K, Lie::Permuted),
    ] {
        table.add("get_rows", format!("{dtype} {lie}"), Elementwise, |d| {
            let from = d.lying(lie, dtype, &[row_length(dtype), 5, 2], Fill::SIGNED);
            let indices = d.indices(&[4, 2], 5);
            d.b.get_rows(from, indices)
        });
    }
    table.add("get_rows", "i32", Exact, |d| {
        let from = d.input(DType::I32, &[5, 8], Fill::Whole { low: -1_000_000, high: 1_000_000 });
        let indices = d.indices(&[6], 8);
        d.b.get_rows(from, indices)
    });
    table.add("get_rows", "no rows", Exact, |d| {
        let from = d.f32(&[5, 8]);
        let indices = d.indices(&[0], 8);
        d.b.get_rows(from, indices)
    });
    table.add("get_rows", "indices in a window", Elementwise, |d| {
        let from = d.f32(&[5, 8]);
        let indices = d.lying(Lie::Spread, DType::I32, &[6], Fill::Whole { low: 0, high: 8 });
        d.b.get_rows(from, indices)
    });
}

/// Row indices, each at most once in a plane.
fn distinct(d: &mut Draft, dtype: DType, extents: &[u64], below: u64) -> TensorId {
    d.input(dtype, extents, Fill::Distinct { run: extents[0], below })
}

fn set_rows(table: &mut Table) {
    let plain = [DType::F32, DType::F16, DType::BF16];
    for dtype in plain.into_iter().chain(quantised()) {
        let tolerance = if dtype.is_quantized() { Encoded } else { Exact };
        for index in [DType::I32, DType::I64] {
            table.add("set_rows", format!("{dtype} at {index}"), tolerance, |d| {
                let into = d.state(dtype, &[row_length(dtype), 9], Fill::SIGNED);
                let rows = d.f32(&[row_length(dtype), 4]);
                let at = distinct(d, index, &[4], 9);
                d.b.set_rows(into, rows, at)
            });
        }
    }
    for (dtype, index) in [(DType::F32, DType::I32), (DType::F16, DType::I64), (DType::Q8_0, DType::I64)] {
        let tolerance = if dtype.is_quantized() { Encoded } else { Exact };
        table.add("set_rows", format!("{dtype} with skipped rows at {index}"), tolerance, |d| {
            let into = d.state(dtype, &[row_length(dtype), 6], Fill::SIGNED);
            let rows = d.f32(&[row_length(dtype), 5]);
            let at = d.input(index, &[5], Fill::Values(vec![3.0, -1.0, 0.0, -1.0, 5.0]));
            d.b.set_rows(into, rows, at)
        });
        table.add("set_rows", format!("{dtype} planes at {index}"), tolerance, |d| {
            let into = d.state(dtype, &[row_length(dtype), 6, 3, 2], Fill::SIGNED);
            let rows = d.f32(&[row_length(dtype), 4, 3, 2]);
            let at = distinct(d, index, &[4, 3, 2], 6);
            d.b.set_rows(into, rows, at)
        });
        table.add("set_rows", format!("{dtype} planes, repeated indices at {index}"), tolerance, |d| {
            let into = d.state(dtype, &[row_length(dtype), 6, 4, 2], Fill::SIGNED);
            let rows = d.f32(&[row_length(dtype), 4, 4, 2]);
            let at = distinct(d, index, &[4, 2, 1], 6);
            d.b.set_rows(into, rows, at)
        });
    }
    table.add("set_rows", "nothing but skipped rows", Exact, |d| {
        let into = d.state(DType::F32, &[5, 6], Fill::SIGNED);
        let rows = d.f32(&[5, 3]);
        let at = d.input(DType::I64, &[3], Fill::Values(vec![-1.0]));
        d.b.set_rows(into, rows, at)
    });
    table.add("set_rows", "no rows", Exact, |d| {
        let into = d.state(DType::F32, &[5, 6], Fill::SIGNED);
        let rows = d.f32(&[5, 0]);
        let at = d.input(DType::I64, &[0], Fill::SIGNED);
        d.b.set_rows(into, rows, at)
    });
    for from in [DType::F16, DType::BF16] {
        for into in plain {
            table.add("set_rows", format!("{from} into {into}"), Exact, |d| {
                let into = d.state(into, &[7, 6], Fill::SIGNED);
                let rows = d.input(from, &[7, 3], Fill::SIGNED);
                let at = distinct(d, DType::I32, &[3], 6);
                d.b.set_rows(into, rows, at)
            });
        }
    }
    for lie in Lie::ODD {
        table.add("set_rows", format!("into {lie}"), Exact, |d| {
            let into = d.lying_in(Leaf::State, lie, DType::F32, &[6, 5, 2], Fill::SIGNED);
            let rows = d.f32(&[6, 3, 2]);
            let at = distinct(d, DType::I64, &[3], 5);
            d.b.set_rows(into, rows, at)
        });
        table.add("set_rows", format!("from {lie}"), Exact, |d| {
            let into = d.state(DType::F16, &[6, 5, 2], Fill::SIGNED);
            let rows = d.lying(lie, DType::F32, &[6, 3, 2], Fill::SIGNED);
            let at = distinct(d, DType::I32, &[3], 5);
            d.b.set_rows(into, rows, at)
        });
    }
    table.add("set_rows", "into a persistent leaf, then read", Elementwise, |d| {
        let into = d.persistent(DType::F32, &[6, 5], Fill::SIGNED);
        let rows = d.f32(&[6, 3]);
        let at = distinct(d, DType::I32, &[3], 5);
        let written = d.b.set_rows(into, rows, at);
        d.b.sqr(written)
    });
    table.add("set_rows", "into an input, read before and after", Elementwise, |d| {
        let into = d.f32(&[6, 5]);
        let before = d.b.scale(into, 3.0);
        let rows = d.f32(&[6, 3]);
        let at = distinct(d, DType::I32, &[3], 5);
        let written = d.b.set_rows(into, rows, at);
        d.b.sub(before, written)
    });
    table.add("set_rows", "into a result", Elementwise, |d| {
        let x = d.f32(&[6, 5]);
        let into = d.b.sqr(x);
        let rows = d.f32(&[6, 3]);
        let at = distinct(d, DType::I32, &[3], 5);
        d.b.set_rows(into, rows, at)
    });
}
