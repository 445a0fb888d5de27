//! Patches laid over a base, or added to it.

use orlop_graph::{DType, Op, Patch};

use super::HALVES;
use crate::conformance::Tolerance::{Elementwise, Exact};
use crate::conformance::case::{Lie, Table};
use crate::fill::Fill;

/// An op for a place.
type Patching = fn(Patch) -> Op;

pub(super) fn add(table: &mut Table) {
    // Extents of the patch, and where in a base of 6 x 5 x 3 x 2 it begins.
    let places = [
        ("at the beginning", [6, 5, 1, 1], [0, 0, 0, 0]),
        ("a row", [6, 1, 1, 1], [0, 3, 1, 1]),
        ("an element", [1, 1, 1, 1], [5, 4, 2, 1]),
        ("a column", [1, 5, 1, 1], [2, 0, 1, 0]),
        ("a block", [3, 2, 2, 2], [2, 1, 1, 0]),
        ("everything", [6, 5, 3, 2], [0, 0, 0, 0]),
        ("nothing", [0, 1, 1, 1], [0, 0, 0, 0]),
    ];
    let ops: [(&str, Patching); 2] = [("set", Op::Set), ("acc", Op::Acc)];
    for (kind, op) in ops {
        let tolerance = if kind == "set" { Exact } else { Elementwise };
        for (detail, extents, at) in places {
            table.add(kind, detail, tolerance, |d| {
                let base = d.f32(&[6, 5, 3, 2]);
                let patch = d.f32(&extents);
                d.b.node(op(place(4, at)), &[base, patch])
            });
        }
        for lie in Lie::ODD {
            table.add(kind, format!("{lie} patch"), tolerance, |d| {
                let base = d.f32(&[6, 5, 3, 2]);
                let patch = d.lying(lie, DType::F32, &[3, 2, 2], Fill::SIGNED);
                d.b.node(op(place(4, [1, 1, 1, 1])), &[base, patch])
            });
        }
        for dtype in HALVES {
            table.add(kind, dtype, tolerance, |d| {
                let base = d.input(dtype, &[6, 5, 3, 2], Fill::SIGNED);
                let patch = d.input(dtype, &[4, 2], Fill::SIGNED);
                d.b.node(op(place(2, [2, 2, 0, 1])), &[base, patch])
            });
        }
        table.add(kind, "in place", Elementwise, |d| {
            let base = d.f32(&[6, 5, 3, 2]);
            let made = d.b.scale(base, 2.0);
            let patch = d.f32(&[4, 2]);
            d.b.node(op(place(4, [0, 2, 0, 1])), &[made, patch])
        });
        table.add(kind, "base still read", Elementwise, |d| {
            let base = d.f32(&[6, 5, 3, 2]);
            let made = d.b.scale(base, 2.0);
            let patch = d.f32(&[4, 2]);
            let result = d.b.node(op(place(4, [0, 2, 0, 1])), &[made, patch]);
            d.b.mul(result, made)
        });
    }
    table.add("set", "i32", Exact, |d| {
        let base = d.input(DType::I32, &[6, 5, 3, 2], Fill::Whole { low: -9, high: 9 });
        let patch = d.input(DType::I32, &[2, 3], Fill::Whole { low: 90, high: 99 });
        d.b.set(base, patch, place(4, [1, 1, 1, 1]))
    });
}

/// A place in a base of 6 x 5 x 3 x 2 elements.
fn place(element: u64, at: [u64; 4]) -> Patch {
    let [s0, s1, s2, s3] = [1, 6, 30, 90].map(|elements| elements * element);
    Patch { strides: [s1, s2, s3], offset: at[0] * s0 + at[1] * s1 + at[2] * s2 + at[3] * s3 }
}
