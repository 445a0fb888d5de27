//! Matrix products: weights of every type, int8 activations, experts, and shared memory.

use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, Role, RunOptions};
use orlop_graph::{DType, Glu, GraphBuilder, Op};
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::{Feeds, f32_bytes, i32_bytes};

use crate::Test;
use crate::support::{compare, error, expected, numbers, outputs, types, weights};

pub(crate) const TESTS: &[Test] = tests![
    fast_products_agree_with_the_reference,
    int8_products_have_no_error_beside_the_rounding,
    float_products_agree_with_the_reference,
    products_of_experts_agree_with_the_reference,
    mixtures_of_experts_agree_with_the_reference,
    programs_keep_their_shared_memory
];

/// A feed-forward block at sizes that use every path: norm, gate and up, down, sums.
fn fast_products_agree_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in types() {
        for (k, m, n) in [
            (512, 768, 1),
            (256, 300, 1),
            (512, 768, 5),
            (1024, 300, 20),
            (2048, 96, 50),
            (256, 300, 130),
            (512, 256, 200),
        ] {
            let mut b = GraphBuilder::new();
            let mut feeds: Feeds = Vec::new();
            let mut weight = |b: &mut GraphBuilder, name: &str, k: u64, m: u64| {
                let id = b.weight(name, dtype, &[k, m]);
                feeds.push((id, weights(dtype, k + m + name.len() as u64, k, m)));
                id
            };
            let hidden = if dtype.block_elements() == 256 || m % 32 != 0 { 512 } else { m };
            let gate = weight(&mut b, "gate", k, hidden);
            let up = weight(&mut b, "up-up", k, hidden);
            let down = weight(&mut b, "down.down", hidden, m);
            let x = b.input("x", DType::F32, &[k, n]);
            let scale = b.input("scale", DType::F32, &[k]);
            let kept = b.input("kept", DType::F32, &[m, n]);
            let normed = b.rms_norm(x, 1e-5);
            let normed = b.mul(normed, scale);
            let (gated, upped) = (b.mul_mat(gate, normed), b.mul_mat(up, normed));
            let activated = b.gated(Glu::Silu, gated, upped);
            let product = b.mul_mat(down, activated);
            let sum = b.add(product, kept);
            b.output(sum);
            for (id, count) in [(x, k * n), (scale, k), (kept, m * n)] {
                feeds.push((id, f32_bytes(&numbers(count, count as usize))));
            }
            let graph = b.build().unwrap();
            // Three products, each with int8 activations.
            let name = format!("{dtype} {k} {m} {n}");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 2e-4));
            // For many rows, weights in the file's layout are dequantized first.
            if n >= 32 {
                let name = format!("{name}, in the file's layout");
                failures.extend(compare(&name, (device, Role::Arena), &graph, &feeds, 2e-4));
            }
        }
    }
    failures
}

/// Numbers as int8 activations hold them: 32 at a time, as multiples of the largest's 127th part.
fn rounded_to_int8(values: &[f32]) -> Vec<f32> {
    let group = |values: &[f32]| {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let (scale, inverse) = (largest / 127.0, 127.0 / largest);
        values.iter().map(|value| (value * inverse).round_ties_even() * scale).collect::<Vec<f32>>()
    };
    values.chunks(32).flat_map(group).collect()
}

/// Rounding activations to int8 is the only error: it is the CPU's rounding.
fn int8_products_have_no_error_beside_the_rounding(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let sizes = [(512, 768, 1), (256, 300, 2), (512, 100, 3), (1280, 96, 4)];
    let many = [(512, 100, 7), (512, 768, 24), (256, 300, 33), (288, 64, 57), (1536, 320, 64)];
    // TQ2_0 is dequantized, so its activations are not rounded.
    let some = types().filter(|dtype| dtype.is_quantized() && *dtype != DType::TQ2_0);
    let some = some.flat_map(|dtype| sizes.map(|size| (dtype, size)));
    for (dtype, (k, m, n)) in some.chain(many.map(|size| (DType::Q8_0, size))) {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", dtype, &[k, m]);
        let x = b.input("x", DType::F32, &[k, n]);
        let kept = b.input("kept", DType::F32, &[m, n]);
        let product = b.mul_mat(w, x);
        let sum = b.add(product, kept);
        b.output(sum);
        let graph = b.build().unwrap();
        let values = numbers(k + n, (k * n) as usize);
        let feeds = |values: &[f32]| -> Feeds {
            let kept_values = f32_bytes(&numbers(m, (m * n) as usize));
            vec![(w, weights(dtype, k + m, k, m)), (x, f32_bytes(values)), (kept, kept_values)]
        };
        let found = outputs(device, Role::Weight, &graph, &feeds(&values));
        let wanted = expected(&graph, &feeds(&rounded_to_int8(&values)));
        let worst = error(&found[0], &wanted[0]);
        // NaN is a failure.
        if !matches!(worst.partial_cmp(&1e-11), Some(std::cmp::Ordering::Less)) {
            failures.push(format!("{dtype} {k} {m} {n}: error {worst:.2e}"));
        }
    }
    failures
}

/// Products with experts' matrices, for one token and for several, with activations per expert or shared.
fn products_of_experts_agree_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in types().chain([DType::F32]) {
        for (k, m, experts, used, inputs, tokens) in
            [(512, 96, 8, 3, 1, 1), (256, 70, 4, 2, 2, 5), (512, 300, 8, 3, 1, 40), (256, 130, 4, 2, 2, 300)]
        {
            for op in [Op::MulMatId, Op::MulMatSome] {
                // Of some experts, every third place has none.
                let expert = |slot: u64| match op {
                    Op::MulMatSome if slot % 3 == 1 => -1,
                    _ => (slot * 5 % experts) as i32,
                };
                let mut b = GraphBuilder::new();
                let w = b.weight("w", dtype, &[k, m, experts]);
                let x = b.input("x", DType::F32, &[k, inputs, tokens]);
                let ids = b.input("ids", DType::I32, &[used, tokens]);
                let y = b.node(op.clone(), &[w, x, ids]);
                b.output(y);
                let graph = b.build().unwrap();
                let count = (k * inputs * tokens) as usize;
                let feeds: Feeds = vec![
                    (w, weights(dtype, k + m, k, m * experts)),
                    (x, f32_bytes(&numbers(k, count))),
                    (ids, i32_bytes(&(0..used * tokens).map(expert).collect::<Vec<i32>>())),
                ];
                let name = format!("{dtype} {k} x {m}, {used} of {experts} experts, {tokens} tokens, {op:?}");
                failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-4));
            }
        }
    }
    failures
}

/// Products with a matrix that is an input, of few rows and of many, two of them with the same matrix.
fn float_products_agree_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for (k, m, heads, tokens) in
        [(128, 128, 32, 1), (64, 64, 9, 1), (256, 256, 4, 700), (36, 10, 3, 2), (300, 130, 1, 70)]
    {
        let mut b = GraphBuilder::new();
        let matrix = b.input("matrix", DType::F32, &[k, m]);
        let [x, z] = ["x", "z"].map(|name| b.input(name, DType::F32, &[k, heads, tokens]));
        let permuted = b.permute(z, [0, 2, 1, 3]);
        for y in [x, permuted] {
            let y = b.mul_mat(matrix, y);
            b.output(y);
        }
        let graph = b.build().unwrap();
        let count = (k * heads * tokens) as usize;
        let feeds: Feeds = vec![
            (matrix, f32_bytes(&numbers(1, (k * m) as usize))),
            (x, f32_bytes(&numbers(2, count))),
            (z, f32_bytes(&numbers(3, count))),
        ];
        let name = format!("{k} x {m}, {heads} heads, {tokens} tokens");
        failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-10));
    }
    failures
}

/// A whole mixture, from the router to the sum: few tokens go one by one, many in the order of their experts.
fn mixtures_of_experts_agree_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in [DType::Q4_0, DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::F16] {
        for (experts, used, tokens, some) in [
            (8, 2, 1, false),
            (40, 8, 1, false),
            (8, 2, 3, false),
            (8, 3, 33, false),
            (40, 8, 100, false),
            (4, 2, 300, false),
            (40, 8, 1, true),
            (4, 2, 3, true),
            (8, 3, 100, true),
        ] {
            let (width, hidden) = (256, 512);
            let mut b = GraphBuilder::new();
            let x = b.input("x", DType::F32, &[width, tokens]);
            let kept = b.input("kept", DType::F32, &[width, tokens]);
            let router = b.weight("router", DType::F32, &[width, experts]);
            let [gate, up] = ["gate", "up"].map(|name| b.weight(name, dtype, &[width, hidden, experts]));
            let down = b.weight("down", dtype, &[hidden, width, experts]);
            let scores = b.mul_mat(router, x);
            let sure = b.soft_max(scores, None, 1.0, 0.0);
            let chosen = b.top_k(sure, used);
            let sure = b.reshape(sure, &[1, experts, tokens]);
            let counts = b.get_rows(sure, chosen);
            let counts = b.reshape(counts, &[used, tokens]);
            let sum = b.sum_rows(counts);
            let sum = b.clamp(sum, 1e-4, f32::INFINITY);
            let counts = b.div(counts, sum);
            let counts = b.scale(counts, 1.5);
            let counts = b.reshape(counts, &[1, used, tokens]);
            let each = b.reshape(x, &[width, 1, tokens]);
            // Where only some experts are here, a table has their places.
            let places = b.input("places", DType::I32, &[1, experts]);
            let op = if some { Op::MulMatSome } else { Op::MulMatId };
            let ids = if some {
                let flat = b.reshape(chosen, &[used * tokens]);
                let here = b.get_rows(places, flat);
                b.reshape(here, &[used, tokens])
            } else {
                chosen
            };
            let [gated, upped] = [gate, up].map(|matrix| b.node(op.clone(), &[matrix, each, ids]));
            let activated = b.gated(Glu::Silu, gated, upped);
            let made = b.node(op, &[down, activated, ids]);
            let made = b.mul(made, counts);
            let desc = b.desc(made);
            let slices: Vec<_> = (0..used)
                .map(|expert| {
                    let strides = [4, desc.strides[2], desc.strides[3], desc.strides[3]];
                    b.view(made, [width, tokens, 1, 1], strides, expert * desc.strides[1])
                })
                .collect();
            let sum = slices.into_iter().reduce(|sum, slice| b.add(sum, slice)).unwrap();
            let result = b.add(kept, sum);
            b.output(result);
            let graph = b.build().unwrap();
            let floats = |seed: u64, count: u64| f32_bytes(&numbers(seed, count as usize));
            let place = |expert: u64| if expert % 3 == 1 { -1 } else { (experts - 1 - expert) as i32 };
            let feeds: Feeds = vec![
                (x, floats(1, width * tokens)),
                (places, i32_bytes(&(0..experts).map(place).collect::<Vec<i32>>())),
                (kept, floats(2, width * tokens)),
                (router, floats(3, width * experts)),
                (gate, weights(dtype, 4, width, hidden * experts)),
                (up, weights(dtype, 5, width, hidden * experts)),
                (down, weights(dtype, 6, hidden, width * experts)),
            ];
            let name = format!("{dtype}, {used} of {experts} experts, {tokens} tokens, some: {some}");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 3e-4));
        }
    }
    failures
}

/// Programs share kernels: one that is compiled later and needs less shared memory leaves the earlier one its share.
fn programs_keep_their_shared_memory(device: &Arc<dyn Device>) -> Vec<String> {
    // Rows in F32 that take 96, 56 and 80 KiB.
    let mut plans: Vec<_> = [24u64 << 10, 14 << 10, 20 << 10]
        .into_iter()
        .map(|k| {
            let mut b = GraphBuilder::new();
            let w = b.weight("w", DType::F32, &[k, 8]);
            let x = b.input("x", DType::F32, &[k]);
            let y = b.mul_mat(w, x);
            b.output(y);
            let graph = b.build().unwrap();
            let set = TensorSet::allocate(
                &device.buffer_types(Role::Arena)[0],
                &[SetTensor::new("w", graph.tensor(w).desc)],
            )
            .unwrap();
            set.tensors()[0].set(0, &f32_bytes(&vec![0.5; 8 * k as usize])).unwrap();
            let mut externals = Externals::new();
            externals.insert(w, set.tensors()[0].clone());
            let mut session =
                Session::new(Machine::new([Arc::clone(device)]).unwrap(), SessionOptions::default()).unwrap();
            let plan = session.prepare(&graph, &externals).unwrap();
            (k, session, plan, x, y)
        })
        .collect();
    let mut failures = Vec::new();
    for (k, session, plan, x, y) in &mut plans {
        let mut found = vec![0; 32];
        let run = session
            .set(*plan, *x, &f32_bytes(&vec![2.0; *k as usize]))
            .and_then(|()| session.run(*plan, &RunOptions::default()).map(|_| ()))
            .and_then(|()| session.get(*plan, *y, &mut found));
        if run.is_err() || found != f32_bytes(&[*k as f32; 8]) {
            failures.push(format!("rows of {k} elements gave {run:?}, {found:?}"));
        }
    }
    failures
}
