//! Indices of elements by size.

use orlop_graph::{DType, Op, SortDirection};

use super::HALVES;
use crate::conformance::Tolerance::Exact;
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    sorting(table, "argmax", &|_| Op::ArgMax);
    sorting(table, "argsort ascending", &|_| Op::ArgSort { direction: SortDirection::Ascending });
    sorting(table, "argsort descending", &|_| Op::ArgSort { direction: SortDirection::Descending });
    sorting(table, "top_k", &|length| Op::TopK { k: length.div_ceil(2) });
    for k in [0, 1, 40] {
        table.add("top_k", format!("{k} of 40"), Exact, |d| {
            let x = d.f32(&[40, 3]);
            d.b.top_k(x, k)
        });
    }
}

fn sorting(table: &mut Table, kind: &str, op: &dyn Fn(u64) -> Op) {
    let special = vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.5, -2.5];
    let fills = [
        ("distinct", Fill::SIGNED),
        ("ties", Fill::Whole { low: 0, high: 3 }),
        ("all equal", Fill::Values(vec![0.25])),
        ("ascending", Fill::Values((0..1000).map(f64::from).collect())),
        ("infinities", Fill::OneOf(special[1..].to_vec())),
        ("not numbers", Fill::OneOf(special.clone())),
        ("nothing but not numbers", Fill::Values(vec![f64::NAN])),
    ];
    for (detail, fill) in &fills {
        table.add(kind, format!("{detail} 33x3"), Exact, |d| {
            let x = d.input(DType::F32, &[33, 3], fill.clone());
            d.b.node(op(33), &[x])
        });
    }
    for extents in [&[1][..], &[2, 5], &[64, 2, 2, 2], &[1000, 2], &[5, 0]] {
        table.add(kind, shape(extents), Exact, |d| {
            let x = d.f32(extents);
            d.b.node(op(extents[0]), &[x])
        });
    }
    for dtype in HALVES {
        table.add(kind, dtype, Exact, |d| {
            let x = d.input(dtype, &[17, 3], Fill::SIGNED);
            d.b.node(op(17), &[x])
        });
    }
    for lie in Lie::ODD {
        table.add(kind, lie, Exact, |d| {
            let x = d.lying(lie, DType::F32, &[12, 5, 2], Fill::Whole { low: 0, high: 8 });
            d.b.node(op(12), &[x])
        });
    }
}
