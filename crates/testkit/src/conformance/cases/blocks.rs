//! Several ops in one graph: chains that can be done in place, and what transformers are made of.

use orlop_graph::{DType, Glu, TensorId};

use crate::conformance::Tolerance::Composite;
use crate::conformance::case::{Draft, Table};
use crate::fill::Fill;
use crate::generate::{BlockSize, ExpertShape, draw};

pub(super) fn add(table: &mut Table) {
    table.add("chain", "in place from end to end", Composite, |d| {
        let mut x = d.f32(&[24, 5]);
        for _ in 0..4 {
            x = d.b.rms_norm(x, 1e-5);
            x = d.b.silu(x);
            x = d.b.scale(x, 1.5);
        }
        x
    });
    table.add("chain", "a value read at the end", Composite, |d| {
        let x = d.f32(&[24, 5]);
        let first = d.b.sqr(x);
        let mut y = d.b.gelu(first);
        for _ in 0..3 {
            y = d.b.add(y, first);
            y = d.b.norm(y, 1e-5);
        }
        d.b.mul(y, x)
    });
    table.add("chain", "through views", Composite, |d| {
        let x = d.f32(&[24, 6]);
        let made = d.b.scale(x, 0.5);
        let reshaped = d.b.reshape(made, &[12, 12]);
        let activated = d.b.silu(reshaped);
        let transposed = d.b.transpose(activated);
        let gathered = d.b.cont(transposed);
        d.b.add(gathered, transposed)
    });
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0, DType::Q4_1] {
        table.add("feed_forward", dtype, Composite, |d| feed_forward(d, dtype));
    }
    let dense = BlockSize::default();
    for weights in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
        for cache in [DType::F32, DType::F16, DType::Q8_0] {
            for tokens in [1, 4] {
                let (builder, fills) = draw(&BlockSize { tokens, weights, cache, ..dense });
                let detail = format!("{weights}, cache {cache}, {tokens} tokens");
                table.add_graph("block dense", detail, Composite, builder, fills);
            }
        }
    }
    for weights in [DType::F32, DType::Q8_0] {
        for (count, used) in [(4, 2), (3, 1)] {
            let experts = Some(ExpertShape { count, used });
            let (builder, fills) = draw(&BlockSize { weights, experts, ..dense });
            let detail = format!("{weights}, {used} of {count}");
            table.add_graph("block experts", detail, Composite, builder, fills);
        }
    }
    table.add("feed_forward", "q4_K", Composite, |d| feed_forward_sized(d, DType::Q4_K, 256));
}

fn feed_forward(d: &mut Draft, dtype: DType) -> TensorId {
    feed_forward_sized(d, dtype, 64)
}

fn feed_forward_sized(d: &mut Draft, dtype: DType, width: u64) -> TensorId {
    let x = d.f32(&[width, 3]);
    let norm = d.weight(DType::F32, &[width], Fill::SIGNED);
    let weights = [0, 1, 2].map(|_| d.weight(dtype, &[width, width], Fill::Uniform { low: -0.2, high: 0.2 }));
    let normed = d.b.rms_norm(x, 1e-5);
    let h = d.b.mul(normed, norm);
    let [gate, up] = [weights[0], weights[1]].map(|weight| d.b.mul_mat(weight, h));
    let gated = d.b.gated(Glu::Silu, gate, up);
    let down = d.b.mul_mat(weights[2], gated);
    d.b.add(x, down)
}
