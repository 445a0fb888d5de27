//! Products of matrices, of every weight type.

use orlop_graph::{DType, Leaf};

use super::quantised;
use crate::conformance::Tolerance::Product;
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

const PLAIN: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

pub(super) fn add(table: &mut Table) {
    mul_mat(table);
    mul_mat_quantised(table);
    mul_mat_id(table);
    mul_mat_some(table);
    out_prod(table);
}

fn mul_mat(table: &mut Table) {
    let sizes = [
        [1, 1, 1],
        [7, 5, 3],
        [32, 16, 1],
        [33, 17, 9],
        [64, 32, 2],
        [128, 3, 40],
        [256, 8, 5],
        [5, 1, 7],
        [40, 70, 1],
        [96, 4, 17],
        [3, 0, 2],
        [3, 2, 0],
        [0, 3, 2],
    ];
    for dtype in PLAIN {
        for [k, m, n] in sizes {
            table.add("mul_mat", format!("{dtype} {k} {m} {n}"), Product, |d| {
                let a = d.weight(dtype, &[k, m], Fill::SIGNED);
                let b = d.f32(&[k, n]);
                d.b.mul_mat(a, b)
            });
        }
        for other in [DType::F16, DType::BF16] {
            table.add("mul_mat", format!("{dtype} by {other}"), Product, |d| {
                let a = d.weight(dtype, &[48, 7], Fill::SIGNED);
                let b = d.input(other, &[48, 5], Fill::SIGNED);
                d.b.mul_mat(a, b)
            });
        }
        for [a, b] in [[[1, 1], [3, 2]], [[3, 2], [3, 2]], [[2, 1], [6, 2]], [[2, 2], [2, 4]]] {
            table.add("mul_mat", format!("{dtype} planes {} by {}", shape(&a), shape(&b)), Product, |d| {
                let a = d.input(dtype, &[20, 6, a[0], a[1]], Fill::SIGNED);
                let b = d.f32(&[20, 5, b[0], b[1]]);
                d.b.mul_mat(a, b)
            });
        }
        for lie in Lie::ODD {
            table.add("mul_mat", format!("{dtype} {lie} by plain"), Product, |d| {
                let a = d.lying(lie, dtype, &[20, 6, 2], Fill::SIGNED);
                let b = d.f32(&[20, 5, 2]);
                d.b.mul_mat(a, b)
            });
            table.add("mul_mat", format!("{dtype} plain by {lie}"), Product, |d| {
                let a = d.input(dtype, &[20, 6, 2], Fill::SIGNED);
                let b = d.lying(lie, DType::F32, &[20, 5, 4], Fill::SIGNED);
                d.b.mul_mat(a, b)
            });
        }
    }
    table.add("mul_mat", "one operand for several products", Product, |d| {
        let x = d.f32(&[64, 3]);
        let made = d.b.scale(x, 0.5);
        let products = [0, 1].map(|_| {
            let w = d.weight(DType::F32, &[64, 8], Fill::SIGNED);
            d.b.mul_mat(w, made)
        });
        d.b.add(products[0], products[1])
    });
}

/// Two blocks a row, but no fewer than 64 elements.
fn row_length(dtype: DType) -> u64 {
    2 * dtype.block_elements()
}

fn mul_mat_quantised(table: &mut Table) {
    for dtype in quantised() {
        let k = row_length(dtype);
        for [m, n] in [[16, 1], [12, 7], [33, 4], [35, 40]] {
            table.add("mul_mat quantised", format!("{dtype} {k} {m} {n}"), Product, |d| {
                let a = d.weight(dtype, &[k, m], Fill::SIGNED);
                let b = d.f32(&[k, n]);
                d.b.mul_mat(a, b)
            });
        }
        table.add("mul_mat quantised", format!("{dtype} one block"), Product, |d| {
            let a = d.weight(dtype, &[dtype.block_elements(), 24], Fill::SIGNED);
            let b = d.f32(&[dtype.block_elements(), 3]);
            d.b.mul_mat(a, b)
        });
        table.add("mul_mat quantised", format!("{dtype} by f16"), Product, |d| {
            let a = d.weight(dtype, &[k, 12], Fill::SIGNED);
            let b = d.input(DType::F16, &[k, 5], Fill::SIGNED);
            d.b.mul_mat(a, b)
        });
        table.add("mul_mat quantised", format!("{dtype} planes"), Product, |d| {
            let a = d.weight(dtype, &[k, 6, 2], Fill::SIGNED);
            let b = d.f32(&[k, 3, 4]);
            d.b.mul_mat(a, b)
        });
        table.add("mul_mat quantised", format!("{dtype} by permuted"), Product, |d| {
            let a = d.weight(dtype, &[k, 8], Fill::SIGNED);
            let b = d.lying(Lie::Permuted, DType::F32, &[k, 3, 2], Fill::SIGNED);
            d.b.mul_mat(a, b)
        });
    }
    for (dtype, lie) in [
        (DType::Q8_0, Lie::Padded),
        (DType::Q4_0, Lie::Window),
        (DType::Q8_0, Lie::Permuted),
        (DType::Q6_K, Lie::Padded),
    ] {
        table.add("mul_mat quantised", format!("{dtype} {lie} rows"), Product, |d| {
            let k = row_length(dtype);
            let a = d.lying_in(Leaf::State, lie, dtype, &[k, 6, 2], Fill::SIGNED);
            let b = d.f32(&[k, 4, 2]);
            d.b.mul_mat(a, b)
        });
    }
    for lie in [Lie::Padded, Lie::Window, Lie::Spread, Lie::Transposed] {
        table.add("mul_mat quantised", format!("q4_0 by {lie}"), Product, |d| {
            let a = d.weight(DType::Q4_0, &[64, 8], Fill::SIGNED);
            let b = d.lying(lie, DType::F32, &[64, 3, 2], Fill::SIGNED);
            d.b.mul_mat(a, b)
        });
    }
}

fn mul_mat_id(table: &mut Table) {
    for dtype in PLAIN.into_iter().chain(quantised()) {
        let k = if dtype.is_quantized() { row_length(dtype) } else { 24 };
        let kind = if dtype.is_quantized() { "mul_mat_id quantised" } else { "mul_mat_id" };
        for (detail, each, used, tokens) in
            [("one row a token", 1, 2, 5), ("a row an expert", 3, 3, 4), ("one token", 1, 2, 1)]
        {
            table.add(kind, format!("{dtype} {detail}"), Product, |d| {
                let a = d.weight(dtype, &[k, 10, 4], Fill::SIGNED);
                let b = d.f32(&[k, each, tokens]);
                let ids = d.input(DType::I32, &[used, tokens], Fill::Distinct { run: used, below: 4 });
                d.b.mul_mat_id(a, b, ids)
            });
        }
    }
    table.add("mul_mat_id", "every token the same expert", Product, |d| {
        let a = d.weight(DType::F32, &[24, 10, 4], Fill::SIGNED);
        let b = d.f32(&[24, 1, 9]);
        let ids = d.input(DType::I32, &[1, 9], Fill::Values(vec![2.0]));
        d.b.mul_mat_id(a, b, ids)
    });
    table.add("mul_mat_id", "no tokens", Product, |d| {
        let a = d.weight(DType::F32, &[24, 10, 4], Fill::SIGNED);
        let b = d.f32(&[24, 1, 0]);
        let ids = d.indices(&[2, 0], 4);
        d.b.mul_mat_id(a, b, ids)
    });
    table.add("mul_mat_id", "ids within longer rows", Product, |d| {
        let a = d.weight(DType::F16, &[24, 10, 4], Fill::SIGNED);
        let b = d.lying(Lie::Padded, DType::F32, &[24, 1, 5], Fill::SIGNED);
        let order = d.input(DType::I32, &[4, 5], Fill::Distinct { run: 4, below: 4 });
        let ids = d.b.view(order, [2, 5, 1, 1], [4, 16, 80, 80], 0);
        d.b.mul_mat_id(a, b, ids)
    });
}

/// Ids of tokens that miss one matrix, all, and none.
fn mul_mat_some(table: &mut Table) {
    let ids = || Fill::Values([1, -1, -1, -1, 0, 3, -1, 2].map(f64::from).to_vec());
    for dtype in [DType::F32, DType::F16].into_iter().chain(quantised()) {
        let k = if dtype.is_quantized() { row_length(dtype) } else { 24 };
        for (detail, each, tokens) in
            [("one row a token", 1, 4), ("a row an expert", 2, 4), ("one token", 1, 1)]
        {
            table.add("mul_mat_some", format!("{dtype} {detail}"), Product, |d| {
                let a = d.weight(dtype, &[k, 37, 4], Fill::SIGNED);
                let b = d.f32(&[k, each, tokens]);
                let ids = d.input(DType::I32, &[2, tokens], ids());
                d.b.mul_mat_some(a, b, ids)
            });
        }
    }
    table.add("mul_mat_some", "many tokens", Product, |d| {
        let a = d.weight(DType::Q8_0, &[64, 70, 4], Fill::SIGNED);
        let b = d.f32(&[64, 1, 40]);
        let ids = d.input(DType::I32, &[2, 40], ids());
        d.b.mul_mat_some(a, b, ids)
    });
    table.add("mul_mat_some", "no matrix at all", Product, |d| {
        let a = d.weight(DType::Q8_0, &[64, 10, 4], Fill::SIGNED);
        let b = d.f32(&[64, 1, 3]);
        let ids = d.input(DType::I32, &[2, 3], Fill::Values(vec![-1.0]));
        d.b.mul_mat_some(a, b, ids)
    });
}

fn out_prod(table: &mut Table) {
    for [m, n, k] in [[1, 1, 1], [5, 3, 7], [32, 9, 4], [4, 6, 0]] {
        for dtype in PLAIN {
            table.add("out_prod", format!("{dtype} {m} {n} {k}"), Product, |d| {
                let a = d.input(dtype, &[m, k], Fill::SIGNED);
                let b = d.f32(&[n, k]);
                d.b.out_prod(a, b)
            });
        }
    }
    for [a, b] in [[[1, 1], [3, 2]], [[2, 2], [4, 2]]] {
        table.add("out_prod", format!("planes {} by {}", shape(&a), shape(&b)), Product, |d| {
            let a = d.f32(&[6, 5, a[0], a[1]]);
            let b = d.f32(&[4, 5, b[0], b[1]]);
            d.b.out_prod(a, b)
        });
    }
    for lie in Lie::ODD {
        table.add("out_prod", format!("{lie} by {lie}"), Product, |d| {
            let a = d.lying(lie, DType::F32, &[6, 5, 2], Fill::SIGNED);
            let b = d.lying(lie, DType::F32, &[4, 5, 2], Fill::SIGNED);
            d.b.out_prod(a, b)
        });
    }
    for dtype in [DType::Q8_0, DType::Q4_0] {
        table.add("out_prod", dtype, Product, |d| {
            let a = d.weight(dtype, &[64, 5], Fill::SIGNED);
            let b = d.f32(&[6, 5]);
            d.b.out_prod(a, b)
        });
    }
}
