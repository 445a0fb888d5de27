//! Copies, conversions and rearrangements.

use orlop_graph::{DType, Leaf, Op};

use super::{HALVES, quantised};
use crate::conformance::Tolerance::{Elementwise, Encoded, Exact};
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

const PLAIN: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

pub(super) fn add(table: &mut Table) {
    dup_and_cont(table);
    cast(table);
    copy(table);
    repeat(table);
    concat(table);
    pad(table);
    roll(table);
    arange(table);
}

fn row_length(dtype: DType) -> u64 {
    2 * dtype.block_elements().max(3)
}

fn dup_and_cont(table: &mut Table) {
    for op in [Op::Dup, Op::Cont] {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I64] {
            for lie in [Lie::Plain, Lie::Padded, Lie::Permuted, Lie::Transposed] {
                table.add(op.name(), format!("{dtype} {lie}"), Exact, |d| {
                    let x = d.lying(lie, dtype, &[7, 4, 3, 2], Fill::Whole { low: -99, high: 99 });
                    d.b.node(op.clone(), &[x])
                });
            }
        }
        for (dtype, lie) in [
            (DType::F32, Lie::Window),
            (DType::F32, Lie::Spread),
            (DType::Q8_0, Lie::Padded),
            (DType::Q4_K, Lie::Permuted),
        ] {
            table.add(op.name(), format!("{dtype} {lie}"), Exact, |d| {
                let x = d.lying(lie, dtype, &[row_length(dtype), 3, 2], Fill::SIGNED);
                d.b.node(op.clone(), &[x])
            });
        }
        for extents in [&[1][..], &[0, 3], &[129, 5]] {
            table.add(op.name(), shape(extents), Exact, |d| {
                let x = d.f32(extents);
                d.b.node(op.clone(), &[x])
            });
        }
    }
}

fn cast(table: &mut Table) {
    for from in PLAIN {
        for to in PLAIN {
            for lie in [Lie::Plain, Lie::Permuted] {
                table.add("cast", format!("{from} to {to} {lie}"), Exact, |d| {
                    let x = d.lying(lie, from, &[9, 3, 2], Fill::SIGNED);
                    d.b.cast(x, to)
                });
            }
        }
    }
    for (from, to) in [(DType::I32, DType::F32), (DType::F32, DType::I32), (DType::I32, DType::F16)] {
        table.add("cast", format!("{from} to {to}"), Exact, |d| {
            let x = d.input(from, &[11, 3], Fill::Whole { low: -1000, high: 1000 });
            d.b.cast(x, to)
        });
    }
    for dtype in quantised() {
        let extents = [row_length(dtype), 3];
        table.add("cast", format!("f32 to {dtype}"), Encoded, |d| {
            let x = d.f32(&extents);
            d.b.cast(x, dtype)
        });
        table.add("cast", format!("{dtype} to f32"), Elementwise, |d| {
            let x = d.input(dtype, &extents, Fill::SIGNED);
            d.b.cast(x, DType::F32)
        });
    }
    for (from, to) in [(DType::F16, DType::Q8_0), (DType::BF16, DType::Q4_0)] {
        table.add("cast", format!("{from} to {to} permuted"), Encoded, |d| {
            let x = d.lying(Lie::Permuted, from, &[64, 3, 2], Fill::SIGNED);
            d.b.cast(x, to)
        });
    }
    for to in HALVES {
        table.add("cast", format!("q8_0 to {to}"), Elementwise, |d| {
            let x = d.lying(Lie::Padded, DType::Q8_0, &[64, 3], Fill::SIGNED);
            d.b.cast(x, to)
        });
    }
}

fn copy(table: &mut Table) {
    for from in PLAIN {
        for to in PLAIN {
            table.add("copy", format!("{from} to {to}"), Exact, |d| {
                let source = d.input(from, &[9, 4], Fill::SIGNED);
                let target = d.state(to, &[9, 4], Fill::SIGNED);
                d.b.copy(source, target)
            });
        }
    }
    for lie in Lie::ODD {
        table.add("copy", format!("into {lie}"), Exact, |d| {
            let source = d.f32(&[6, 4, 2]);
            let target = d.lying_in(Leaf::State, lie, DType::F32, &[6, 4, 2], Fill::SIGNED);
            d.b.copy(source, target)
        });
        table.add("copy", format!("from {lie} to f16"), Exact, |d| {
            let source = d.lying(lie, DType::F32, &[6, 4, 2], Fill::SIGNED);
            let target = d.state(DType::F16, &[6, 4, 2], Fill::SIGNED);
            d.b.copy(source, target)
        });
    }
    table.add("copy", "into other extents", Exact, |d| {
        let source = d.lying(Lie::Transposed, DType::F32, &[6, 4], Fill::SIGNED);
        let target = d.lying_in(Leaf::State, Lie::Window, DType::F32, &[3, 8], Fill::SIGNED);
        d.b.copy(source, target)
    });
    table.add("copy", "into an input that is read before and after", Elementwise, |d| {
        let target = d.f32(&[5, 4]);
        let before = d.b.sqr(target);
        let source = d.f32(&[5, 4]);
        let copied = d.b.copy(source, target);
        d.b.add(before, copied)
    });
    table.add("copy", "into a row of a persistent leaf", Exact, |d| {
        let target = d.persistent(DType::F32, &[5, 4], Fill::SIGNED);
        let row = d.b.view(target, [5, 1, 1, 1], [4, 20, 20, 20], 40);
        let source = d.f32(&[5]);
        d.b.copy(source, row)
    });
    table.add("copy", "nothing", Exact, |d| {
        let source = d.f32(&[5, 0]);
        let target = d.state(DType::F32, &[0], Fill::SIGNED);
        d.b.copy(source, target)
    });
    for dtype in quantised() {
        let extents = [row_length(dtype), 3];
        table.add("copy", format!("f32 to {dtype}"), Encoded, |d| {
            let source = d.f32(&extents);
            let target = d.state(dtype, &extents, Fill::Values(vec![0.0]));
            d.b.copy(source, target)
        });
        table.add("copy", format!("{dtype} to f32"), Elementwise, |d| {
            let source = d.input(dtype, &extents, Fill::SIGNED);
            let target = d.state(DType::F32, &extents, Fill::Values(vec![0.0]));
            d.b.copy(source, target)
        });
    }
    table.add("copy", "f16 to q8_0 in a window", Encoded, |d| {
        let source = d.lying(Lie::Permuted, DType::F16, &[64, 3, 2], Fill::SIGNED);
        let target = d.lying_in(Leaf::State, Lie::Window, DType::Q8_0, &[64, 3, 2], Fill::SIGNED);
        d.b.copy(source, target)
    });
}

fn repeat(table: &mut Table) {
    let x = [3, 2, 2, 1];
    for (times, dtype) in [
        ([1, 1, 1, 1], DType::F32),
        ([4, 1, 1, 1], DType::F32),
        ([1, 3, 1, 1], DType::F32),
        ([1, 1, 3, 1], DType::F32),
        ([1, 1, 1, 5], DType::F32),
        ([2, 3, 2, 2], DType::F32),
        ([2, 3, 2, 2], DType::F16),
        ([2, 3, 1, 1], DType::I32),
        ([0, 1, 1, 1], DType::F32),
    ] {
        let extents = std::array::from_fn(|dim| x[dim] * times[dim]);
        table.add("repeat", format!("{dtype} {} times", shape(&times)), Exact, |d| {
            let x = d.input(dtype, &x, Fill::Whole { low: -9, high: 9 });
            d.b.repeat(x, extents)
        });
    }
    for lie in Lie::ODD {
        table.add("repeat", lie, Exact, |d| {
            let x = d.lying(lie, DType::F32, &[3, 2, 2], Fill::SIGNED);
            d.b.repeat(x, [6, 4, 2, 2])
        });
    }
}

fn concat(table: &mut Table) {
    for axis in 0..4_u8 {
        for dtype in [DType::F32, DType::F16, DType::I32] {
            for lie in [Lie::Plain, Lie::Permuted] {
                table.add("concat", format!("axis {axis} {dtype} {lie}"), Exact, |d| {
                    let mut longer = [4, 3, 2, 2];
                    longer[usize::from(axis)] += 3;
                    let fill = Fill::Whole { low: -9, high: 9 };
                    let a = d.lying(lie, dtype, &[4, 3, 2, 2], fill.clone());
                    let b = d.input(dtype, &longer, fill);
                    d.b.concat(&[a, b], axis)
                });
            }
        }
    }
    table.add("concat", "three, one of them empty", Exact, |d| {
        let parts = [[4, 2], [4, 0], [4, 5]].map(|extents| d.f32(&extents));
        d.b.concat(&parts, 1)
    });
    table.add("concat", "rows of blocks", Exact, |d| {
        let parts = [[64, 2], [64, 3]].map(|extents| d.input(DType::Q8_0, &extents, Fill::SIGNED));
        d.b.concat(&parts, 1)
    });
    table.add("concat", "one with itself", Exact, |d| {
        let x = d.f32(&[5, 3]);
        d.b.concat(&[x, x], 0)
    });
}

fn pad(table: &mut Table) {
    for dim in 0..4 {
        for (detail, counts) in [("before", [2, 0]), ("after", [0, 3]), ("around", [1, 2])] {
            table.add("pad", format!("{detail} dimension {dim}"), Exact, |d| {
                let x = d.f32(&[4, 3, 2, 2]);
                let [before, after] =
                    counts.map(|count| std::array::from_fn(|at| if at == dim { count } else { 0 }));
                d.b.pad(x, before, after)
            });
        }
    }
    for (lie, dtype) in [(Lie::Permuted, DType::F32), (Lie::Window, DType::F16), (Lie::Plain, DType::I32)] {
        table.add("pad", format!("everywhere {lie} {dtype}"), Exact, |d| {
            let x = d.lying(lie, dtype, &[4, 3, 2], Fill::Whole { low: 1, high: 9 });
            d.b.pad(x, [1, 2, 0, 1], [2, 0, 3, 0])
        });
    }
}

fn roll(table: &mut Table) {
    for shifts in [
        [1, 0, 0, 0],
        [-2, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 0, -1, 0],
        [0, 0, 0, 1],
        [3, -1, 2, 1],
        [17, -9, 0, 0],
    ] {
        let name = shifts.map(|shift: i64| shift.to_string()).join(" ");
        table.add("roll", format!("by {name}"), Exact, |d| {
            let x = d.f32(&[5, 4, 3, 2]);
            d.b.roll(x, shifts)
        });
    }
    for (lie, dtype) in
        [(Lie::Transposed, DType::F32), (Lie::Padded, DType::F16), (Lie::Permuted, DType::I32)]
    {
        table.add("roll", format!("{lie} {dtype}"), Exact, |d| {
            let x = d.lying(lie, dtype, &[5, 4, 3], Fill::Whole { low: 1, high: 99 });
            d.b.roll(x, [2, -1, 1, 0])
        });
    }
}

fn arange(table: &mut Table) {
    for (start, stop, step) in
        [(0.0, 10.0, 1.0), (3.0, -3.0, -0.5), (0.0, 1.0, 0.0625), (5.0, 5.0, 1.0), (-1.5, 100.0, 7.25)]
    {
        table.add("arange", format!("{start} to {stop} by {step}"), Elementwise, |d| {
            d.b.arange(start, stop, step)
        });
    }
}
