//! Steps of several nodes: they give what steps of one node give, to the bit, and nothing is fused away that is seen.

use std::sync::Arc;

use orlop_alloc::Sharing;
use orlop_backend::{Device, LowerOptions, Segment, StepValue, Steps};
use orlop_cpu::Isa;
use orlop_graph::{DType, FlashAttention, Glu, Graph, GraphBuilder, NodeId, Rope, RopeMode, TensorId};
use orlop_plan::Strategy;
use orlop_testkit::guard::Guarded;
use orlop_testkit::{Feeds, encode_elements, f32_bytes, generate, i32_bytes, run_planned};

use crate::graphs::{planned, unplanned};
use crate::{device, isas, lower, noise};

fn lowered(graph: &Graph, seen: &[TensorId]) -> Steps {
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let (types, mut escapes) = (vec![None; graph.tensors().len()], vec![false; graph.tensors().len()]);
    for id in graph.results().iter().chain(seen) {
        escapes[id.index()] = true;
        escapes[graph.tensor(*id).storage.root.index()] = true;
    }
    let segment = Segment { graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    device(Isa::detect()).lower(&segment, &lower(1)).unwrap()
}

fn kernels(graph: &Graph, seen: &[TensorId]) -> Vec<String> {
    lowered(graph, seen).steps.iter().map(|step| step.kernel.to_string()).collect()
}

/// Compares fused with unfused, planned in several ways, on any number of threads and under the guard.
fn agrees(what: &str, graph: &Graph, feeds: &Feeds) {
    for isa in isas() {
        let cpu: Arc<dyn Device> = device(isa);
        let expected = unplanned(&cpu, graph, feeds);
        for (threads, sharing) in
            [(1, Sharing::Full), (2, Sharing::Full), (5, Sharing::Full), (5, Sharing::None)]
        {
            let got = run_planned(&cpu, graph, feeds, &planned(threads, Strategy::Best, sharing)).unwrap();
            assert!(got == expected, "{what}: {isa}, {threads} threads, {sharing:?}");
        }
        let guarded = Guarded::new(Arc::clone(&cpu));
        let as_device: Arc<dyn Device> = Arc::clone(&guarded) as _;
        let options = planned(2, Strategy::Best, Sharing::Full);
        let got = run_planned(&as_device, graph, feeds, &options).unwrap();
        assert_eq!(guarded.trespasses(), [], "{what}");
        assert!(got == expected, "{what}: {isa}, guarded");
    }
}

#[test]
fn a_block_of_a_model_takes_a_dozen_steps() {
    let size = generate::BlockSize { weights: DType::Q4_1, ..generate::BlockSize::default() };
    let (graph, _) = generate::block(&size).unwrap();
    let expected = [
        "scaled norm in 16 bits",
        "mul_mats in 16 bits",
        "rope",
        "rope into rows",
        "set_rows",
        "flash_attention in 16 bits",
        "mul_mat and sums in 16 bits",
        "scaled norm in 16 bits",
        "mul_mats in 16 bits",
        "gated in 16 bits",
        "mul_mat and sums in 16 bits",
    ];
    assert_eq!(kernels(&graph, &[]), expected);
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let (types, escapes) = (vec![None; graph.tensors().len()], vec![false; graph.tensors().len()]);
    let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    let plain = LowerOptions { fusion: false, ..lower(1) };
    let plain = device(Isa::detect()).lower(&segment, &plain).unwrap();
    assert_eq!(plain.steps.iter().filter(|step| step.nodes.len() > 1).count(), 0);
}

#[test]
fn fused_blocks_give_the_bytes_of_unfused_ones() {
    let experts = Some(generate::ExpertShape { count: 4, used: 2 });
    for (weights, cache) in [
        (DType::Q4_1, DType::F16),
        (DType::Q8_0, DType::Q8_0),
        (DType::Q6_K, DType::F32),
        (DType::F16, DType::BF16),
        (DType::F32, DType::F16),
    ] {
        for (tokens, experts) in [(1, None), (3, None), (11, None), (1, experts), (6, experts)] {
            let size =
                generate::BlockSize { weights, cache, tokens, context: 16, experts, ..Default::default() };
            let size = generate::BlockSize { head: 64, heads: 4, kv_heads: 2, hidden: 256, ..size };
            let (graph, feeds) = generate::blocks(&size, 2).unwrap();
            agrees(&format!("{weights}, {cache}, {tokens} tokens, {experts:?}"), &graph, &feeds);
        }
    }
}

/// What leaves hold.
fn fill(graph: &Graph) -> Feeds {
    let leaves = graph.leaves().map(|(id, _)| {
        let desc = &graph.tensor(id).desc;
        let count = desc.extents.iter().product::<u64>();
        let bytes = if desc.dtype == DType::I32 {
            i32_bytes(&(0..count as i32).rev().collect::<Vec<i32>>())
        } else {
            encode_elements(desc.dtype, &noise(count, id.index() as u64 + 1)).unwrap()
        };
        (id, bytes)
    });
    leaves.collect()
}

fn check(what: &str, b: GraphBuilder, seen: &[TensorId], expected: &[&str]) {
    let graph = b.build().unwrap();
    assert_eq!(kernels(&graph, seen), expected, "{what}");
    agrees(what, &graph, &fill(&graph));
}

#[test]
fn norms_take_weight_and_bias_along() {
    for tokens in [1, 7] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[100, tokens]);
        let (weight, bias) = (b.weight("weight", DType::F32, &[100]), b.weight("bias", DType::F16, &[100]));
        let x = b.sqr(x);
        let normed = b.norm(x, 1e-5);
        let scaled = b.mul(normed, weight);
        let result = b.add(scaled, bias);
        b.output(result);
        check("norm, weight and bias", b, &[], &["sqr", "scaled norm"]);
    }
}

#[test]
fn a_norm_times_what_is_normed_stays_as_it_is() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 5]);
    let x = b.sqr(x);
    let normed = b.rms_norm(x, 1e-5);
    let result = b.mul(normed, x);
    b.output(result);
    check("norm times itself", b, &[], &["sqr", "rms_norm", "mul"]);
}

#[test]
fn what_a_step_takes_twice_is_not_fused_away() {
    let start = || {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[64, 5]);
        let normed = b.rms_norm(x, 1e-5);
        (b, normed)
    };
    let (mut b, normed) = start();
    let squared = b.mul(normed, normed);
    b.output(squared);
    check("a norm times itself", b, &[], &["rms_norm", "mul"]);

    let (mut b, normed) = start();
    let row = b.view(normed, [64, 1, 1, 1], [4, 256, 256, 256], 256);
    let result = b.mul(normed, row);
    b.output(result);
    check("a norm times a row of it", b, &[], &["rms_norm", "mul"]);

    let (mut b, normed) = start();
    let weight = b.weight("weight", DType::F32, &[64]);
    let scaled = b.mul(normed, weight);
    let twice = b.add(scaled, scaled);
    b.output(twice);
    check("a scaled norm and itself", b, &[], &["scaled norm", "add"]);
}

#[test]
fn what_is_read_twice_or_seen_is_not_fused_away() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 5]);
    let weight = b.weight("weight", DType::F32, &[64]);
    let normed = b.rms_norm(x, 1e-5);
    let scaled = b.mul(normed, weight);
    let row = b.view(normed, [64, 1, 1, 1], [4, 256, 256, 256], 256);
    let result = b.add(scaled, row);
    b.output(result);
    check("a view of what is normed", b, &[], &["rms_norm", "mul", "add"]);

    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 5]);
    let weight = b.weight("weight", DType::F32, &[64]);
    let matrix = b.weight("matrix", DType::Q8_0, &[64, 8]);
    let normed = b.rms_norm(x, 1e-5);
    let scaled = b.mul(normed, weight);
    let product = b.mul_mat(matrix, scaled);
    b.output(product);
    let graph = b.build().unwrap();
    assert_eq!(kernels(&graph, &[]), ["scaled norm in 16 bits", "mul_mat in 16 bits"]);
    assert_eq!(kernels(&graph, &[scaled]), ["scaled norm", "round in 16 bits", "mul_mat in 16 bits"]);
    assert_eq!(kernels(&graph, &[normed]), ["rms_norm", "mul", "round in 16 bits", "mul_mat in 16 bits"]);
}

#[test]
fn products_take_bias_and_residual_and_may_lie_on_the_residual() {
    for (tokens, dtype) in [(1, DType::Q4_1), (3, DType::Q4_0), (9, DType::Q8_0), (40, DType::Q5_K)] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[256, tokens]);
        let residual = b.input("residual", DType::F32, &[37, tokens]);
        let residual = b.sqr(residual);
        let matrix = b.weight("matrix", dtype, &[256, 37]);
        let bias = b.weight("bias", DType::F32, &[37]);
        let product = b.mul_mat(matrix, x);
        let biased = b.add(product, bias);
        let result = b.add(residual, biased);
        b.output(result);
        let graph = b.build().unwrap();
        let steps = lowered(&graph, &[]);
        let last = steps.steps.last().unwrap();
        assert_eq!(last.kernel, "mul_mat and sums in 16 bits");
        assert!(last.may_overwrite.iter().any(|pair| pair.read == 3));
        assert_eq!(last.reads[3], StepValue::Tensor(residual));
        agrees("bias and residual", &graph, &fill(&graph));
    }
}

#[test]
fn neighbouring_products_of_the_same_few_rows_are_one_step() {
    let [one, several, round] = ["mul_mat in 16 bits", "mul_mats in 16 bits", "round in 16 bits"];
    for tokens in [1, 2, 5, 8, 16, 17] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[256, tokens]);
        let types = [DType::Q4_0, DType::Q6_K, DType::Q8_0, DType::Q4_1];
        for (number, (dtype, rows)) in types.into_iter().zip([7, 16, 601, 32]).enumerate() {
            let weights = b.weight(&format!("w{number}"), dtype, &[256, rows]);
            let product = b.mul_mat(weights, x);
            b.output(product);
        }
        match tokens {
            17 => check("many rows", b, &[], &["round in 16 bits", one, one, one, one]),
            _ => check("few rows", b, &[], &[round, several]),
        }
    }
    // Other activations, something in between, and several matrices.
    let mut b = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, &[64, 2, 2]));
    let [a, c] = ["a", "c"].map(|name| b.weight(name, DType::Q4_0, &[64, 40]));
    let both = b.weight("both", DType::Q4_0, &[64, 40, 2]);
    let (first, second, other) = (b.mul_mat(a, x), b.mul_mat(c, x), b.mul_mat(a, y));
    let (third, fourth) = (b.mul_mat(both, x), b.mul_mat(c, x));
    let result = [second, other, third, fourth].into_iter().fold(first, |sum, product| b.mul(sum, product));
    b.output(result);
    let muls = ["mul"; 4];
    check("apart", b, &[], &[&[round, several, round, one, one, one][..], &muls].concat());
}

#[test]
fn attention_is_rounded_where_heads_are_whole_blocks() {
    for (head, tokens, kv, seqs, fused) in [
        (64, 1, 40, 1, true),
        (64, 1, 700, 1, true),
        (32, 7, 300, 1, true),
        (96, 2, 33, 2, true),
        (48, 1, 40, 1, false),
    ] {
        let mut b = GraphBuilder::new();
        let q = b.input("q", DType::F32, &[head, tokens, 4, seqs]);
        let [k, v] = ["k", "v"].map(|name| b.input(name, DType::F16, &[head, kv, 2, seqs]));
        let lengths = (tokens > 1).then(|| b.input("lengths", DType::I32, &[tokens]));
        let sinks = (kv == 700).then(|| b.weight("sinks", DType::F32, &[4]));
        let params = FlashAttention::scaled(0.2);
        let attended = b.flash_attention([q, k, v], lengths, None, sinks, params);
        let rows = b.reshape(attended, &[4 * head, tokens, seqs]);
        let weights = b.weight("w", DType::Q4_0, &[4 * head, 40]);
        let product = b.mul_mat(weights, rows);
        b.output(product);
        let product = "mul_mat in 16 bits";
        let expected: &[&str] = match fused {
            true => &["flash_attention in 16 bits", product],
            false => &["flash_attention", "round in 16 bits", product],
        };
        check("attention", b, &[], expected);
    }
    // Rows of heads are not rows of tokens.
    let mut b = GraphBuilder::new();
    let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, DType::F32, &[64, 3, 2]));
    let attended = b.flash_attention([q, k, v], None, None, None, FlashAttention::scaled(0.2));
    let weights = b.weight("w", DType::Q4_0, &[64, 40]);
    let product = b.mul_mat(weights, attended);
    b.output(product);
    check("heads", b, &[], &["flash_attention", "round in 16 bits", "mul_mat in 16 bits"]);
}

/// Weights of all types take the same rounded activations, however many rows these have.
#[test]
fn products_of_several_types_share_what_is_rounded() {
    for tokens in [1, 8, 16, 17] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[512, tokens]);
        let weight = b.weight("weight", DType::F32, &[512]);
        let normed = b.rms_norm(x, 1e-5);
        let scaled = b.mul(normed, weight);
        let [gate, up, down] = [
            ("gate", DType::Q4_K, [512, 1280]),
            ("up", DType::Q6_K, [512, 1280]),
            ("down", DType::Q6_K, [1280, 37]),
        ]
        .map(|(name, dtype, extents)| b.weight(name, dtype, &extents));
        let (gate, up) = (b.mul_mat(gate, scaled), b.mul_mat(up, scaled));
        let gated = b.gated(Glu::Silu, gate, up);
        let result = b.mul_mat(down, gated);
        b.output(result);
        let product = "mul_mat in 16 bits";
        let products = if tokens > 16 { vec![product, product] } else { vec!["mul_mats in 16 bits"] };
        let expected = [&["scaled norm in 16 bits"], &products[..], &["gated in 16 bits", product]].concat();
        check("shared", b, &[], &expected);
    }
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[512, 17]);
    let [first, second] = [("first", DType::Q8_0), ("second", DType::Q6_K)]
        .map(|(name, dtype)| b.weight(name, dtype, &[512, 8]));
    let (first, second) = (b.mul_mat(first, x), b.mul_mat(second, x));
    let sum = b.sub(first, second);
    b.output(sum);
    let product = "mul_mat in 16 bits";
    check("plain", b, &[], &["round in 16 bits", product, product, "sub"]);
}

#[test]
fn products_added_to_themselves_stay_products() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 3]);
    let matrix = b.weight("matrix", DType::Q4_1, &[64, 8]);
    let product = b.mul_mat(matrix, x);
    let twice = b.add(product, product);
    b.output(twice);
    check("twice", b, &[], &["round in 16 bits", "mul_mat in 16 bits", "add"]);
}

#[test]
fn gates_are_rounded_whether_they_come_in_one_tensor_or_two() {
    for (gate, swapped, tokens) in [(Glu::Silu, false, 1), (Glu::Gelu, true, 2), (Glu::GeluErf, false, 9)] {
        let mut b = GraphBuilder::new();
        let both = b.input("both", DType::F32, &[4096, tokens]);
        let gated = b.gated_fused(gate, both, swapped);
        let matrix = b.weight("matrix", DType::Q4_1, &[2048, 16]);
        let product = b.mul_mat(matrix, gated);
        b.output(product);
        check("one tensor", b, &[], &["gated in 16 bits", "mul_mat in 16 bits"]);
        let mut b = GraphBuilder::new();
        let (x, y) = (b.input("x", DType::F16, &[96, tokens]), b.input("y", DType::F16, &[96, tokens]));
        let gated = b.gated(gate, x, y);
        let matrix = b.weight("matrix", DType::Q4_1, &[96, 16]);
        let gated = b.cast(gated, DType::F32);
        let product = b.mul_mat(matrix, gated);
        b.output(product);
        let graph = b.build().unwrap();
        assert_eq!(kernels(&graph, &[])[1..], ["cast", "round in 16 bits", "mul_mat in 16 bits"]);
    }
}

fn rope(heads: u64) -> Rope {
    Rope { mode: RopeMode::Neox, dims: heads as u32, ..Rope::default() }
}

#[test]
fn turned_heads_go_to_the_cache_and_the_last_of_several_with_one_index_stays() {
    for (dtype, tokens, heads) in
        [(DType::F16, 1, 3), (DType::Q8_0, 4, 1), (DType::F32, 9, 5), (DType::BF16, 2, 2)]
    {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[64, heads, tokens]);
        let positions = b.input("positions", DType::I32, &[tokens]);
        let indices = b.input("indices", DType::I32, &[tokens]);
        let factors = b.weight("factors", DType::F32, &[16]);
        let cache = b.state("cache", dtype, &[64 * heads, 12]);
        let factors = (tokens > 1).then_some(factors);
        let turned = b.rope(x, positions, factors, rope(32));
        let rows = b.reshape(turned, &[64 * heads, tokens]);
        let written = b.set_rows(cache, rows, indices);
        b.output(written);
        let graph = b.build().unwrap();
        assert_eq!(kernels(&graph, &[]), ["rope into rows"]);
        let mut feeds = fill(&graph);
        agrees("rope", &graph, &feeds);
        let mut numbers = vec![3i32; tokens as usize];
        numbers[tokens as usize / 2] = -1;
        feeds.iter_mut().filter(|(id, _)| *id == indices).for_each(|(_, bytes)| *bytes = i32_bytes(&numbers));
        agrees("rope, one row", &graph, &feeds);
        numbers[0] = 12;
        feeds.iter_mut().filter(|(id, _)| *id == indices).for_each(|(_, bytes)| *bytes = i32_bytes(&numbers));
        let cpu: Arc<dyn Device> = device(Isa::detect());
        let refused =
            run_planned(&cpu, &graph, &feeds, &planned(2, Strategy::Best, Sharing::Full)).unwrap_err();
        assert!(
            refused.to_string().contains("set_rows") || format!("{refused:?}").contains("set_rows"),
            "{refused:?}"
        );
    }
}

#[test]
fn rows_of_the_cache_that_are_turned_and_written_back_are_all_read_first() {
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[32, 4]);
    let positions = b.input("positions", DType::I32, &[4]);
    let indices = b.input("indices", DType::I32, &[4]);
    let heads = b.reshape(cache, &[32, 1, 4]);
    let turned = b.rope(heads, positions, None, rope(32));
    let rows = b.reshape(turned, &[32, 4]);
    let written = b.set_rows(cache, rows, indices);
    b.output(written);
    check("its own rows", b, &[], &["rope", "set_rows"]);
}

#[test]
fn indices_that_lie_in_the_table_are_all_read_first() {
    let mut b = GraphBuilder::new();
    let table = b.state("table", DType::I32, &[32, 40]);
    let x = b.input("x", DType::F32, &[32, 1, 4]);
    let positions = b.input("positions", DType::I32, &[4]);
    // Each written row holds the index of the next.
    let indices = b.view(table, [4, 1, 1, 1], [4, 16, 16, 16], 0);
    let turned = b.rope(x, positions, None, rope(32));
    let rows = b.reshape(turned, &[32, 4]);
    let written = b.set_rows(table, rows, indices);
    b.output(written);
    let graph = b.build().unwrap();
    assert_eq!(kernels(&graph, &[]), ["rope", "set_rows"]);
    let mut feeds = fill(&graph);
    let numbers: Vec<i32> = (0..32 * 40).map(|number| (number * 7) % 40).collect();
    feeds.iter_mut().filter(|(id, _)| *id == table).for_each(|(_, bytes)| *bytes = i32_bytes(&numbers));
    agrees("indices in the table", &graph, &feeds);
}

#[test]
fn what_is_written_between_two_steps_keeps_them_apart() {
    let mut b = GraphBuilder::new();
    let x = b.state("x", DType::F32, &[64, 3]);
    let weight = b.weight("weight", DType::F32, &[64]);
    let rows = b.input("rows", DType::F32, &[64, 1]);
    let indices = b.input("indices", DType::I32, &[1]);
    let normed = b.rms_norm(x, 1e-5);
    let written = b.set_rows(x, rows, indices);
    let result = b.mul(normed, weight);
    b.output(written);
    b.output(result);
    let graph = b.build().unwrap();
    assert_eq!(kernels(&graph, &[]), ["rms_norm", "set_rows", "mul"]);
    let feeds = vec![
        (x, f32_bytes(&noise(192, 1).iter().map(|x| *x as f32).collect::<Vec<f32>>())),
        (weight, f32_bytes(&[2.0; 64])),
        (rows, f32_bytes(&[9.0; 64])),
        (indices, i32_bytes(&[1])),
    ];
    agrees("a write in between", &graph, &feeds);
}

#[test]
fn products_of_the_same_share_their_scratch_where_threads_need_not_meet_between_them() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 17]);
    let mut results = Vec::new();
    for (name, rows) in [("q", 64), ("k", 32), ("v", 32)] {
        let matrix = b.weight(name, DType::Q4_1, &[64, rows]);
        results.push(b.mul_mat(matrix, x));
    }
    let matrix = b.weight("next", DType::Q4_1, &[64, 16]);
    results.push(b.mul_mat(matrix, results[0]));
    results.iter().for_each(|result| _ = b.output(*result));
    let graph = b.build().unwrap();
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let (types, escapes) = (vec![None; graph.tensors().len()], vec![true; graph.tensors().len()]);
    let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    let scratch = |threads: usize| -> Vec<StepValue> {
        let steps = device(Isa::detect()).lower(&segment, &lower(threads)).unwrap();
        let products = steps.steps.iter().filter(|step| step.kernel.starts_with("mul_mat"));
        products.map(|step| step.writes[1]).collect()
    };
    let shared = scratch(2);
    assert!(shared[0] == shared[1] && shared[1] == shared[2] && shared[2] != shared[3], "{shared:?}");
    // One thread needs no barrier, and memory is given back sooner.
    let own = scratch(1);
    assert!(own[0] != own[1] && own[1] != own[2], "{own:?}");
    agrees("products of the same", &graph, &fill(&graph));
}
