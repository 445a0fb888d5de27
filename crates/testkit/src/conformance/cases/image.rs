//! Pooling, upscaling and the embedding of timesteps.

use orlop_graph::{DType, Interpolation, Op, Pool, PoolKind};

use super::HALVES;
use crate::conformance::Tolerance::{Elementwise, Exact, Reduction, Rotation};
use crate::conformance::case::{Lie, Table, shape};
use crate::fill::Fill;

pub(super) fn add(table: &mut Table) {
    pool(table);
    upscale(table);
    timestep(table);
}

fn pool(table: &mut Table) {
    for (name, kind) in [("max", PoolKind::Max), ("mean", PoolKind::Mean)] {
        for (detail, kernel, stride, padding) in [
            ("of one", [1, 1], [1, 1], [0, 0]),
            ("side by side", [2, 3], [2, 3], [0, 0]),
            ("overlapping", [3, 2], [1, 1], [0, 0]),
            ("apart", [2, 2], [3, 4], [0, 0]),
            ("with padding", [3, 3], [2, 2], [1, 1]),
            ("unevenly padded", [4, 3], [3, 1], [2, 0]),
        ] {
            let pool = Pool { kind, kernel, stride, padding };
            table.add(&format!("pool_1d {name}"), detail, Reduction, |d| {
                let x = d.f32(&[13, 3, 2]);
                d.b.node(Op::Pool1d(pool), &[x])
            });
            table.add(&format!("pool_2d {name}"), detail, Reduction, |d| {
                let x = d.f32(&[13, 11, 3, 2]);
                d.b.pool_2d(x, pool)
            });
        }
        let pool = Pool { kind, kernel: [3, 2], stride: [2, 2], padding: [1, 0] };
        for lie in Lie::ODD {
            table.add(&format!("pool_1d {name}"), lie, Reduction, |d| {
                let x = d.lying(lie, DType::F32, &[9, 4, 2], Fill::SIGNED);
                d.b.node(Op::Pool1d(pool), &[x])
            });
            table.add(&format!("pool_2d {name}"), lie, Reduction, |d| {
                let x = d.lying(lie, DType::F32, &[9, 8, 2], Fill::SIGNED);
                d.b.pool_2d(x, pool)
            });
        }
        for dtype in HALVES {
            table.add(&format!("pool_2d {name}"), dtype, Reduction, |d| {
                let x = d.input(dtype, &[9, 8, 2], Fill::SIGNED);
                d.b.pool_2d(x, pool)
            });
        }
    }
}

fn upscale(table: &mut Table) {
    let source = [4, 3, 2, 2];
    for (name, mode, tolerance) in [
        ("upscale nearest", Interpolation::Nearest, Exact),
        ("upscale bilinear", Interpolation::Bilinear, Elementwise),
    ] {
        for extents in [
            [4, 3, 2, 2],
            [8, 6, 2, 2],
            [12, 3, 2, 2],
            [7, 5, 2, 2],
            [8, 6, 4, 6],
            [3, 2, 2, 2],
            [1, 1, 1, 1],
            [9, 0, 2, 2],
        ] {
            table.add(name, shape(&extents), tolerance, |d| {
                let x = d.f32(&source);
                d.b.upscale(x, extents, mode)
            });
        }
        for lie in Lie::ODD {
            table.add(name, lie, tolerance, |d| {
                let x = d.lying(lie, DType::F32, &source, Fill::SIGNED);
                d.b.upscale(x, [8, 9, 2, 2], mode)
            });
        }
        for dtype in HALVES {
            table.add(name, dtype, tolerance, |d| {
                let x = d.input(dtype, &source, Fill::SIGNED);
                d.b.upscale(x, [8, 9, 2, 2], mode)
            });
        }
    }
    table.add("upscale bilinear", "from one", Elementwise, |d| {
        let x = d.f32(&[1, 1, 3]);
        d.b.upscale(x, [5, 4, 3, 1], Interpolation::Bilinear)
    });
}

fn timestep(table: &mut Table) {
    for (dim, max_period, steps) in
        [(1, 10_000, 3), (2, 10_000, 1), (32, 10_000, 5), (33, 1000, 4), (64, 100, 0)]
    {
        table.add("timestep_embedding", format!("{dim} of {max_period} for {steps}"), Rotation, |d| {
            let times = d.input(DType::F32, &[steps], Fill::Whole { low: 0, high: 1000 });
            d.b.node(Op::TimestepEmbedding { dim, max_period }, &[times])
        });
    }
    table.add("timestep_embedding", "spread f16", Rotation, |d| {
        let times = d.lying(Lie::Spread, DType::F16, &[5], Fill::Whole { low: 0, high: 500 });
        d.b.node(Op::TimestepEmbedding { dim: 16, max_period: 10_000 }, &[times])
    });
}
