//! Views as operands and as results.

use orlop_graph::DType;

use crate::conformance::Tolerance::{Elementwise, Exact};
use crate::conformance::case::{Table, shape};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    let x = [6, 5, 4, 2];
    for (detail, extents, offset) in [
        ("first row", [6, 1, 1, 1], [0, 0, 0, 0]),
        ("one element", [1, 1, 1, 1], [5, 4, 3, 1]),
        ("inner part", [3, 5, 4, 2], [2, 0, 0, 0]),
        ("middle", [3, 2, 2, 1], [2, 2, 1, 1]),
        ("last plane", [6, 5, 1, 1], [0, 0, 3, 1]),
        ("nothing", [6, 0, 1, 1], [0, 0, 0, 0]),
    ] {
        table.add("view", detail, Exact, |d| {
            let x = d.f32(&x);
            let strides = d.b.desc(x).strides;
            let offset = (0..4).map(|dim| offset[dim] * strides[dim]).sum();
            let view = d.b.view(x, extents, strides, offset);
            d.b.cont(view)
        });
    }
    table.add("view", "of a view", Exact, |d| {
        let x = d.f32(&[8, 6]);
        let rows = d.b.view(x, [8, 3, 1, 1], [4, 64, 192, 192], 32);
        let part = d.b.view(rows, [4, 3, 1, 1], [4, 64, 192, 192], 8);
        d.b.cont(part)
    });
    table.add("view", "as a result", Elementwise, |d| {
        let x = d.f32(&[8, 6]);
        let made = d.b.sqr(x);
        d.b.view(made, [3, 6, 1, 1], [4, 32, 192, 192], 12)
    });
    table.add("view", "of a weight", Exact, |d| {
        let x = d.weight(DType::Q8_0, &[64, 6], Fill::SIGNED);
        let rows = d.b.view(x, [64, 2, 1, 1], [34, 136, 272, 272], 68);
        d.b.cont(rows)
    });
    for extents in [&[240][..], &[30, 8], &[6, 20, 2], &[2, 3, 5, 8], &[1, 1, 1, 240]] {
        table.add("reshape", shape(extents), Elementwise, |d| {
            let x = d.f32(&x);
            let made = d.b.scale(x, 2.0);
            let reshaped = d.b.reshape(made, extents);
            d.b.sqr(reshaped)
        });
    }
    table.add("reshape", "as a result", Elementwise, |d| {
        let x = d.f32(&[8, 6]);
        let made = d.b.sqr(x);
        d.b.reshape(made, &[3, 16])
    });
    for axes in
        [[0, 2, 1, 3], [1, 0, 2, 3], [2, 0, 1, 3], [1, 2, 0, 3], [3, 2, 1, 0], [0, 3, 1, 2], [1, 2, 3, 0]]
    {
        let name = axes.map(|axis: u8| axis.to_string()).join("");
        for dtype in [DType::F32, DType::F16] {
            table.add("permute", format!("{name} {dtype}"), Exact, |d| {
                let x = d.input(dtype, &x, Fill::SIGNED);
                let permuted = d.b.permute(x, axes);
                d.b.cont(permuted)
            });
        }
    }
    for (extents, dtype) in
        [(&[1, 9][..], DType::F32), (&[7, 5], DType::F32), (&[4, 3, 2, 2], DType::F16), (&[6, 4], DType::I32)]
    {
        table.add("transpose", format!("{} {dtype}", shape(extents)), Exact, |d| {
            let x = d.input(dtype, extents, Fill::Whole { low: -50, high: 50 });
            let transposed = d.b.transpose(x);
            d.b.cont(transposed)
        });
    }
    table.add("transpose", "as a result", Elementwise, |d| {
        let x = d.f32(&[5, 3]);
        let made = d.b.sqr(x);
        d.b.transpose(made)
    });
}
