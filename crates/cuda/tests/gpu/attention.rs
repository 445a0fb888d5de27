//! Attention: caches, windows, one token and many, and operands with gaps.

use std::sync::Arc;

use orlop_backend::{Device, Role};
use orlop_graph::{DType, FlashAttention, GraphBuilder, Op, Rope, RopeMode};
use orlop_quant::encode;
use orlop_testkit::{Feeds, f32_bytes, i32_bytes};

use crate::Test;
use crate::support::{compare, numbers, weights};

pub(crate) const TESTS: &[Test] =
    tests![fast_attention_agrees_with_the_reference, attention_takes_operands_with_gaps_and_no_heads];

/// Rotation, caches and attention, of one token and of many, at several lengths.
fn fast_attention_agrees_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for (head, heads, kv_heads, tokens, past, context, dtype, window) in [
        (64u64, 4u64, 2u64, 1u64, 0u64, 256u64, DType::F16, 0u32),
        (64, 9, 3, 1, 77, 2048, DType::F16, 0),
        (128, 4, 4, 1, 1500, 2048, DType::F16, 0),
        (128, 8, 1, 1, 300, 4096, DType::BF16, 0),
        (256, 2, 1, 1, 130, 1024, DType::F32, 0),
        (64, 4, 2, 3, 5, 64, DType::F16, 0),
        (64, 4, 2, 130, 0, 256, DType::F16, 0),
        (128, 4, 2, 70, 100, 512, DType::F16, 0),
        (96, 4, 2, 7, 3, 64, DType::F16, 0),
        (96, 4, 2, 1, 40, 64, DType::F16, 0),
        (80, 4, 4, 65, 20, 128, DType::F16, 0),
        (80, 4, 4, 1, 90, 128, DType::BF16, 0),
        (112, 6, 2, 40, 0, 64, DType::F16, 0),
        (256, 4, 2, 70, 33, 256, DType::F16, 0),
        (72, 4, 2, 9, 3, 64, DType::F16, 0),
        // With a window: shorter than what there is, longer, and one row.
        (64, 4, 2, 130, 100, 256, DType::F16, 50),
        (128, 4, 2, 70, 100, 512, DType::F16, 64),
        (256, 4, 1, 40, 300, 512, DType::F16, 100),
        (256, 4, 1, 20, 30, 512, DType::F32, 9),
        (64, 4, 2, 1, 1500, 2048, DType::F16, 700),
        (256, 4, 1, 1, 700, 1024, DType::F16, 512),
        (128, 4, 4, 1, 20, 64, DType::F16, 1000),
        (96, 4, 2, 1, 40, 64, DType::F16, 1),
        // In blocks.
        (128, 4, 4, 1, 1500, 2048, DType::Q8_0, 0),
        (64, 9, 3, 1, 77, 256, DType::Q4_0, 0),
        (256, 8, 2, 1, 700, 1024, DType::Q8_0, 0),
        (256, 2, 1, 1, 130, 1024, DType::Q4_0, 0),
        (96, 4, 2, 1, 40, 64, DType::Q4_0, 1),
        (32, 4, 1, 1, 0, 64, DType::Q8_0, 0),
        (128, 4, 1, 1, 1500, 2048, DType::Q4_0, 700),
        (128, 8, 2, 70, 100, 512, DType::Q8_0, 0),
        (64, 4, 2, 130, 100, 256, DType::Q4_0, 50),
        (32, 4, 1, 9, 3, 64, DType::Q8_0, 0),
        (96, 4, 2, 33, 20, 72, DType::Q4_0, 0),
        (256, 4, 2, 70, 33, 256, DType::Q8_0, 0),
        (256, 4, 1, 40, 300, 512, DType::Q4_0, 100),
    ] {
        for mode in [RopeMode::Normal, RopeMode::Neox] {
            let mut b = GraphBuilder::new();
            let q = b.input("q", DType::F32, &[head, heads, tokens]);
            let k = b.input("k", DType::F32, &[head, kv_heads, tokens]);
            let v = b.input("v", DType::F32, &[head, kv_heads, tokens]);
            let positions = b.input("positions", DType::I32, &[tokens]);
            let rows = b.input("rows", DType::I32, &[tokens]);
            let seen = b.input("seen", DType::I32, &[tokens]);
            let k_cache = b.state("k cache", dtype, &[head, context, kv_heads]);
            let v_cache = b.state("v cache", dtype, &[head, context, kv_heads]);
            let rope = Rope { mode, dims: head as u32, ..Rope::default() };
            let (q_turned, k_turned) = (b.rope(q, positions, None, rope), b.rope(k, positions, None, rope));
            let cached = [(k_cache, k_turned), (v_cache, v)].map(|(cache, new)| {
                let new = b.permute(new, [0, 2, 1, 3]);
                b.set_rows(cache, new, rows)
            });
            let q_permuted = b.permute(q_turned, [0, 2, 1, 3]);
            let flash = FlashAttention { kv_len: true, window, ..FlashAttention::scaled(0.3) };
            let attended = b.node(Op::FlashAttention(flash), &[q_permuted, cached[0], cached[1], seen]);
            b.output(attended);
            let graph = b.build().unwrap();
            let mut feeds: Feeds = Vec::new();
            for (id, count) in
                [(q, head * heads * tokens), (k, head * kv_heads * tokens), (v, head * kv_heads * tokens)]
            {
                feeds.push((id, f32_bytes(&numbers(count + 3, count as usize))));
            }
            for cache in [k_cache, v_cache] {
                // Rows that are not written yet are NaN.
                let mut values = numbers(cache.index() as u64 + 9, (head * kv_heads * context) as usize);
                for rows in values.chunks_mut((head * context) as usize) {
                    rows[(head * past) as usize..].fill(f32::NAN);
                }
                let mut bytes = vec![0; dtype.row_bytes(values.len() as u64).unwrap() as usize];
                encode(dtype, &values, &mut bytes).unwrap();
                feeds.push((cache, bytes));
            }
            let count = |first: u64| (0..tokens).map(|token| (first + token) as i32).collect::<Vec<i32>>();
            for (id, first) in [(positions, past), (rows, past), (seen, past + 1)] {
                feeds.push((id, i32_bytes(&count(first))));
            }
            let name = format!(
                "{dtype} {mode:?} head {head} heads {heads}/{kv_heads} tokens {tokens} past {past} window {window}"
            );
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-4));
        }
    }
    failures
}

/// Attention without heads, and with gaps between lengths and between sinks.
fn attention_takes_operands_with_gaps_and_no_heads(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for (heads, tokens) in [(0u64, 1u64), (4, 1), (4, 20), (0, 20)] {
        let (head, context) = (64, 32);
        let mut b = GraphBuilder::new();
        let q = b.input("q", DType::F32, &[head, tokens, heads]);
        let [k, v] = ["k", "v"].map(|name| b.input(name, DType::F16, &[head, context, 2]));
        // Every second number is used.
        let seen_all = b.input("seen", DType::I32, &[2, tokens]);
        let seen = b.view(seen_all, [1, tokens, 1, 1], [4, 8, 8 * tokens, 8 * tokens], 0);
        let sinks_all = b.input("sinks", DType::F32, &[2 * heads]);
        let sinks = b.view(sinks_all, [heads, 1, 1, 1], [8, 8 * heads, 8 * heads, 8 * heads], 0);
        let flash = FlashAttention { kv_len: true, sinks: heads > 0, ..FlashAttention::scaled(0.3) };
        let operands = [q, k, v, seen, sinks];
        let operands = &operands[..if heads > 0 { 5 } else { 4 }];
        let attended = b.node(Op::FlashAttention(flash), operands);
        b.output(attended);
        let graph = b.build().unwrap();
        let mut feeds: Feeds = vec![
            (q, f32_bytes(&numbers(3, (head * tokens * heads) as usize))),
            (seen_all, i32_bytes(&(0..2 * tokens as i32).map(|n| 5 + n / 2).collect::<Vec<i32>>())),
            (sinks_all, f32_bytes(&numbers(4, 2 * heads as usize))),
        ];
        for cache in [k, v] {
            feeds.push((cache, weights(DType::F16, cache.index() as u64 + 9, head, 2 * context)));
        }
        let name = format!("{heads} heads, {tokens} tokens");
        failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-4));
    }
    failures
}
