use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Claims, Device, LowerOptions, Role, RunOptions};
use orlop_cuda::{CudaOptions, devices};
use orlop_graph::{
    AccessKind, DType, FlashAttention, Glu, GraphBuilder, Leaf, Op, Rope, RopeMode, TensorDesc, TensorId,
    Unary,
};
use orlop_quant::encode;
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::{Feeds, ReferenceDevice, f32_bytes, i32_bytes, run_planned, run_unplanned};

/// Numbers between -1 and 1 that follow from a seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// `Σ(x - y)² / Σy²`.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let difference: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    difference / expected.iter().map(|x| square(*x)).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// The results of a graph's outputs on a device, with its weights in the kind of memory that the device likes best, or as
/// they are in files.
fn outputs(
    device: &Arc<dyn Device>,
    role: Role,
    graph: &Arc<orlop_graph::Graph>,
    feeds: &Feeds,
) -> Vec<Vec<f32>> {
    let memory = device.buffer_types(role)[0].clone();
    let plain = device.buffer_types(Role::Arena)[0].clone();
    let leaves: Vec<(TensorId, Leaf)> = graph.leaves().collect();
    let mut externals = Externals::new();
    let mut states = Vec::new();
    for (leaf, kind) in &leaves {
        if !matches!(kind, Leaf::Weight | Leaf::State) {
            continue;
        }
        let tensor = graph.tensor(*leaf);
        let quantised = tensor.desc.dtype.is_quantized() && *kind == Leaf::Weight;
        let memory = if quantised { &memory } else { &plain };
        let set = TensorSet::allocate(memory, &[SetTensor::new(tensor.name.as_str(), tensor.desc)]).unwrap();
        let bytes = &feeds.iter().find(|(id, _)| id == leaf).unwrap().1;
        let stored = set.tensors()[0].clone();
        stored.set(0, bytes).unwrap();
        if *kind == Leaf::State {
            states.push((stored.clone(), bytes));
        }
        externals.insert(*leaf, stored);
    }
    let mut session =
        Session::new(Machine::new([Arc::clone(device)]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(graph, &externals).unwrap();
    let mut results = Vec::new();
    // The third run is a replay of what the second recorded.
    for _ in 0..3 {
        for (state, bytes) in &states {
            state.set(0, bytes).unwrap();
        }
        for (leaf, bytes) in feeds {
            if leaves.contains(&(*leaf, Leaf::Input)) {
                session.set(plan, *leaf, bytes).unwrap();
            }
        }
        session.run(plan, &RunOptions::default()).unwrap();
        results = graph
            .outputs()
            .iter()
            .map(|id| {
                let mut bytes = vec![0; graph.tensor(*id).desc.bytes() as usize];
                session.get(plan, *id, &mut bytes).unwrap();
                bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            })
            .collect();
    }
    results
}

/// The same by the reference.
fn expected(graph: &Arc<orlop_graph::Graph>, feeds: &Feeds) -> Vec<Vec<f32>> {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let outputs = run_unplanned(&device, graph, feeds).unwrap();
    graph.outputs().iter().map(|id| outputs.f32s(*id).unwrap()).collect()
}

fn compare(
    name: &str,
    (device, role): (&Arc<dyn Device>, Role),
    graph: &Arc<orlop_graph::Graph>,
    feeds: &Feeds,
    limit: f64,
) -> Option<String> {
    let (found, wanted) = (outputs(device, role, graph, feeds), expected(graph, feeds));
    let worst = found
        .iter()
        .zip(&wanted)
        .map(|(a, b)| error(a, b))
        .fold(0.0, |worst: f64, e| if e.is_nan() { f64::INFINITY } else { worst.max(e) });
    (worst > limit).then(|| format!("{name}: error {worst:.2e}, at most {limit:.0e} is allowed"))
}

const TYPES: [DType; 15] = [
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::MXFP4,
    DType::F16,
    DType::BF16,
];

fn weights(dtype: DType, seed: u64, k: u64, m: u64) -> Vec<u8> {
    let values = numbers(seed, (k * m) as usize);
    let mut bytes = vec![0; (dtype.row_bytes(k).unwrap() * m) as usize];
    encode(dtype, &values, &mut bytes).unwrap();
    bytes
}

/// A feed-forward part at sizes that use every path: norm, gate and up, down, sums.
pub(super) fn fast_products_agree_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in TYPES {
        for (k, m, n) in [(512, 768, 1), (256, 300, 1), (512, 768, 5), (256, 300, 130), (512, 256, 200)] {
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
            let graph = Arc::new(b.build().unwrap());
            // Three products, each with activations in 8 bits.
            let name = format!("{dtype} {k} {m} {n}");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 2e-4));
            // Many rows are worth opening weights for that lie as they are in files.
            if n >= 32 {
                let name = format!("{name}, as in files");
                failures.extend(compare(&name, (device, Role::Arena), &graph, &feeds, 2e-4));
            }
        }
    }
    failures
}

/// Numbers as they are in 8 bits: 32 at a time, as multiples of the largest's 127th part.
fn in_eight_bits(values: &[f32]) -> Vec<f32> {
    let group = |values: &[f32]| {
        let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let (scale, inverse) = (largest / 127.0, 127.0 / largest);
        values.iter().map(|value| (value * inverse).round_ties_even() * scale).collect::<Vec<f32>>()
    };
    values.chunks(32).flat_map(group).collect()
}

/// Where activations are rounded to 8 bits, that is all the error there is: as on the CPU, whose rounding is the same.
pub(super) fn eight_bit_products_are_exact_but_for_that(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let sizes = [(512, 768, 1), (256, 300, 2), (512, 100, 3), (1280, 96, 4)];
    let many = [(512, 100, 7), (512, 768, 24), (256, 300, 33), (288, 64, 57), (1536, 320, 64)];
    let some = TYPES.into_iter().filter(|dtype| dtype.is_quantized());
    let some = some.flat_map(|dtype| sizes.map(|size| (dtype, size)));
    for (dtype, (k, m, n)) in some.chain(many.map(|size| (DType::Q8_0, size))) {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", dtype, &[k, m]);
        let x = b.input("x", DType::F32, &[k, n]);
        let kept = b.input("kept", DType::F32, &[m, n]);
        let product = b.mul_mat(w, x);
        let sum = b.add(product, kept);
        b.output(sum);
        let graph = Arc::new(b.build().unwrap());
        let values = numbers(k + n, (k * n) as usize);
        let feeds = |values: &[f32]| -> Feeds {
            let kept_values = f32_bytes(&numbers(m, (m * n) as usize));
            vec![(w, weights(dtype, k + m, k, m)), (x, f32_bytes(values)), (kept, kept_values)]
        };
        let found = outputs(device, Role::Weight, &graph, &feeds(&values));
        let wanted = expected(&graph, &feeds(&in_eight_bits(&values)));
        let worst = error(&found[0], &wanted[0]);
        // Not a number is no success.
        if !matches!(worst.partial_cmp(&1e-11), Some(std::cmp::Ordering::Less)) {
            failures.push(format!("{dtype} {k} {m} {n}: error {worst:.2e}"));
        }
    }
    failures
}

/// Programs share kernels: one that is compiled later, and needs less shared memory, takes nothing from one before.
pub(super) fn programs_keep_their_shared_memory(device: &Arc<dyn Device>) -> Vec<String> {
    // Rows in F32 that take 96, 56 and 80 KiB.
    let mut plans: Vec<_> = [24u64 << 10, 14 << 10, 20 << 10]
        .into_iter()
        .map(|k| {
            let mut b = GraphBuilder::new();
            let w = b.weight("w", DType::F32, &[k, 8]);
            let x = b.input("x", DType::F32, &[k]);
            let y = b.mul_mat(w, x);
            b.output(y);
            let graph = Arc::new(b.build().unwrap());
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

/// Products with experts' matrices, of one token and of several, with activations of their own or shared.
pub(super) fn products_of_experts_agree_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in TYPES.into_iter().chain([DType::F32]) {
        for (k, m, experts, used, inputs, tokens) in [(512, 96, 8, 3, 1, 1), (256, 70, 4, 2, 2, 5)] {
            let mut b = GraphBuilder::new();
            let w = b.weight("w", dtype, &[k, m, experts]);
            let x = b.input("x", DType::F32, &[k, inputs, tokens]);
            let ids = b.input("ids", DType::I32, &[used, tokens]);
            let y = b.node(Op::MulMatId, &[w, x, ids]);
            b.output(y);
            let graph = Arc::new(b.build().unwrap());
            let chosen: Vec<i32> = (0..used * tokens).map(|slot| (slot * 5 % experts) as i32).collect();
            let count = (k * inputs * tokens) as usize;
            let feeds: Feeds = vec![
                (w, weights(dtype, k + m, k, m * experts)),
                (x, f32_bytes(&numbers(k, count))),
                (ids, i32_bytes(&chosen)),
            ];
            let name = format!("{dtype} {k} x {m}, {used} of {experts} experts, {tokens} tokens");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-4));
        }
    }
    failures
}

/// Rotation, caches and attention, of one token and of many, at several lengths.
pub(super) fn fast_attention_agrees_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
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
            let graph = Arc::new(b.build().unwrap());
            let mut feeds: Feeds = Vec::new();
            for (id, count) in
                [(q, head * heads * tokens), (k, head * kv_heads * tokens), (v, head * kv_heads * tokens)]
            {
                feeds.push((id, f32_bytes(&numbers(count + 3, count as usize))));
            }
            for cache in [k_cache, v_cache] {
                // Rows that nobody has written yet are not numbers.
                let mut values = numbers(cache.index() as u64 + 9, (head * kv_heads * context) as usize);
                for rows in values.chunks_mut((head * context) as usize) {
                    rows[(head * past) as usize..].fill(f32::NAN);
                }
                let mut bytes = vec![0; (dtype.block_bytes() as usize) * values.len()];
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

/// An index out of range is an error value, what was there stays, and the device goes on.
pub(super) fn bad_indices_are_values(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let mut b = GraphBuilder::new();
    let table = b.input("table", DType::F32, &[4, 3]);
    let indices = b.input("indices", DType::I32, &[2]);
    let rows = b.get_rows(table, indices);
    let y = b.unary(Unary::Sqr, rows);
    b.output(y);
    let graph = Arc::new(b.build().unwrap());
    let feeds = |bad: i32| vec![(table, f32_bytes(&[2.0; 12])), (indices, i32_bytes(&[1, bad]))];
    let options = Default::default();
    match run_planned(device, &graph, &feeds(7), &options) {
        Err(error) if error.to_string().contains('7') => {}
        other => failures.push(format!("index 7 of 3 rows gave {other:?}")),
    }
    match run_planned(device, &graph, &feeds(2), &options) {
        Ok(found) if found[0].1 == f32_bytes(&[4.0; 8]) => {}
        other => failures.push(format!("after a bad index, a good one gave {other:?}")),
    }
    failures
}

/// Of rows that go to the same place the last one stays: as they are, in blocks, and turned on their way.
pub(super) fn the_later_of_equal_rows_stays(device: &Arc<dyn Device>) -> Vec<String> {
    let (head, heads, tokens, rows) = (64, 4, 300, 7);
    let indices_of = |repeated: bool| -> Vec<i32> {
        let index = |token: i32| if token % 11 == 3 { -1 } else { token * 5 % rows };
        // Each row once, or many times.
        (0..tokens).map(|token| if repeated || token < rows { index(token) } else { -1 }).collect()
    };
    let mut failures = Vec::new();
    for (dtype, turned) in [(DType::F32, false), (DType::Q8_0, false), (DType::F32, true), (DType::F16, true)]
    {
        for repeated in [false, true] {
            let mut b = GraphBuilder::new();
            let x = b.input("x", DType::F32, &[head, heads, tokens as u64]);
            let positions = b.input("positions", DType::I32, &[tokens as u64]);
            let indices = b.input("indices", DType::I32, &[tokens as u64]);
            let table = b.state("table", dtype, &[head, rows as u64, heads]);
            let rope = Rope { mode: RopeMode::Neox, dims: head as u32, ..Rope::default() };
            let new = if turned { b.rope(x, positions, None, rope) } else { x };
            let new = b.permute(new, [0, 2, 1, 3]);
            let written = b.set_rows(table, new, indices);
            let y = b.cast(written, DType::F32);
            b.output(y);
            let graph = Arc::new(b.build().unwrap());
            let count = (head * heads) as usize;
            let feeds: Feeds = vec![
                (x, f32_bytes(&numbers(3, count * tokens as usize))),
                (positions, i32_bytes(&(0..tokens).collect::<Vec<i32>>())),
                (indices, i32_bytes(&indices_of(repeated))),
                (table, weights(dtype, 5, head * heads, rows as u64)),
            ];
            let name = format!("{dtype}, turned {turned}, repeated {repeated}");
            failures.extend(compare(&name, (device, Role::Weight), &graph, &feeds, 1e-6));
        }
    }
    failures
}

/// Attention to what lies oddly: no heads at all, and lengths and sinks with gaps between them.
pub(super) fn attention_takes_what_lies_oddly(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for (heads, tokens) in [(0u64, 1u64), (4, 1), (4, 20), (0, 20)] {
        let (head, context) = (64, 32);
        let mut b = GraphBuilder::new();
        let q = b.input("q", DType::F32, &[head, tokens, heads]);
        let [k, v] = ["k", "v"].map(|name| b.input(name, DType::F16, &[head, context, 2]));
        // Every second number counts.
        let seen_all = b.input("seen", DType::I32, &[2, tokens]);
        let seen = b.view(seen_all, [1, tokens, 1, 1], [4, 8, 8 * tokens, 8 * tokens], 0);
        let sinks_all = b.input("sinks", DType::F32, &[2 * heads]);
        let sinks = b.view(sinks_all, [heads, 1, 1, 1], [8, 8 * heads, 8 * heads, 8 * heads], 0);
        let flash = FlashAttention { kv_len: true, sinks: heads > 0, ..FlashAttention::scaled(0.3) };
        let operands = [q, k, v, seen, sinks];
        let operands = &operands[..if heads > 0 { 5 } else { 4 }];
        let attended = b.node(Op::FlashAttention(flash), operands);
        b.output(attended);
        let graph = Arc::new(b.build().unwrap());
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

/// Numbers beyond an integer type's end there, and activations that are no numbers give none.
pub(super) fn numbers_end_where_the_reference_says(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let values = [300.0, -300.0, 1e6, -1e6, 127.6, -128.9, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e20];
    for dtype in [DType::I8, DType::I16, DType::I32] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[values.len() as u64]);
        let y = b.cast(x, dtype);
        b.output(y);
        let graph = Arc::new(b.build().unwrap());
        let found = run_planned(device, &graph, &[(x, f32_bytes(&values))], &Default::default()).unwrap();
        let wanted: Vec<u8> = match dtype {
            DType::I8 => values.iter().flat_map(|value| (*value as i8).to_le_bytes()).collect(),
            DType::I16 => values.iter().flat_map(|value| (*value as i16).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect(),
        };
        if found[0].1 != wanted {
            failures.push(format!("{values:?} as {dtype} became {:?} for {wanted:?}", found[0].1));
        }
    }
    for (dtype, tokens, bad) in [DType::Q4_0, DType::Q6_K, DType::Q8_0]
        .into_iter()
        .flat_map(|dtype| [1, 3].map(|tokens| (dtype, tokens)))
        .flat_map(|(dtype, tokens)| [f32::NAN, f32::INFINITY].map(|bad| (dtype, tokens, bad)))
    {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", dtype, &[256, 32]);
        let x = b.input("x", DType::F32, &[256, tokens]);
        let y = b.mul_mat(w, x);
        b.output(y);
        let graph = Arc::new(b.build().unwrap());
        let mut activations = numbers(4, 256 * tokens as usize);
        activations[77] = bad;
        let feeds: Feeds = vec![(w, weights(dtype, 3, 256, 32)), (x, f32_bytes(&activations))];
        let found = &outputs(device, Role::Weight, &graph, &feeds)[0];
        if found[..32].iter().any(|value| value.is_finite()) {
            failures.push(format!("{dtype}, {tokens} tokens: {bad} became {:?}", &found[..4]));
        }
    }
    failures
}

/// A tensor that is bound off its alignment is refused by name, and the card goes on.
pub(super) fn what_is_bound_off_its_alignment_is_refused(device: &Arc<dyn Device>) -> Vec<String> {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[256, 8]);
    let x = b.input("x", DType::F32, &[256]);
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = Arc::new(b.build().unwrap());
    let desc = graph.tensor(w).desc;
    let more = TensorDesc::contiguous(DType::F32, &[desc.elements() + 64]).unwrap();
    let memory = &device.buffer_types(Role::Arena)[0];
    let set = TensorSet::allocate(memory, &[SetTensor::new("more", more)]).unwrap();
    let mut failures = Vec::new();
    for (offset, taken) in [(4, false), (2, false), (256, true)] {
        let mut externals = Externals::new();
        externals.insert(w, set.tensors()[0].view("w", desc, offset).unwrap());
        let mut session =
            Session::new(Machine::new([Arc::clone(device)]).unwrap(), SessionOptions::default()).unwrap();
        let run = session.prepare(&graph, &externals).and_then(|plan| {
            session.set(plan, x, &f32_bytes(&numbers(1, 256)))?;
            session.run(plan, &RunOptions::default())
        });
        if run.is_ok() != taken {
            failures.push(format!("offset {offset} gave {run:?}"));
        }
    }
    if device.facts().lost {
        failures.push("the card is lost".to_owned());
    }
    failures
}

/// Runs after the second are replays; they see new inputs.
pub(super) fn replays_compute_the_same(device: &Arc<dyn Device>) -> Vec<String> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1000]);
    let mut y = x;
    for step in 0..20 {
        y = b.scale(y, if step % 2 == 0 { 2.0 } else { 0.5 });
    }
    b.output(y);
    let graph = Arc::new(b.build().unwrap());
    let options = SessionOptions { lower: LowerOptions::default(), ..SessionOptions::default() };
    let mut session = Session::new(Machine::new([Arc::clone(device)]).unwrap(), options).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    let mut failures = Vec::new();
    for run in 0..5 {
        let bytes = f32_bytes(&numbers(run + 1, 1000));
        session.set(plan, x, &bytes).unwrap();
        session.run(plan, &RunOptions::default()).unwrap();
        let mut found = vec![0; 4000];
        session.get(plan, y, &mut found).unwrap();
        if found != bytes {
            failures.push(format!("run {run} computed something else"));
        }
    }
    failures
}

/// Bytes go from one device's memory to another's and back, on queues that wait for each other. Two devices of one card go
/// the way of two cards' devices.
pub(super) fn devices_copy_from_each_other(_: &Arc<dyn Device>) -> Vec<String> {
    let options = CudaOptions { libraries: vec!["/usr/local/cuda/lib64".into()], ..CudaOptions::default() };
    let open = || devices(&options).unwrap();
    let all: Vec<Arc<dyn Device>> = open().into_iter().chain(open()).collect();
    println!("  {} card(s), {} devices", all.len() / 2, all.len());
    let desc = TensorDesc::contiguous(DType::F32, &[1 << 20]).unwrap();
    let bytes = f32_bytes(&numbers(5, 1 << 20));
    let place = |device: &Arc<dyn Device>| {
        let set = TensorSet::allocate(&device.buffer_types(Role::Arena)[0], &[SetTensor::new("x", desc)]);
        set.unwrap().tensors()[0].clone()
    };
    let mut failures = Vec::new();
    for from in &all {
        for to in all.iter().filter(|to| !Arc::ptr_eq(from, to)) {
            let [first, second, third] = [place(from), place(to), place(from)];
            first.set(0, &bytes).unwrap();
            let buffers = [&first, &second, &third].map(|stored| (&stored.slot().buffer, AccessKind::Write));
            let claims = Claims::take(buffers).unwrap();
            let (mut there, mut back) = (to.queue().unwrap(), from.queue().unwrap());
            // SAFETY: `copy` asks that conflicting work is ordered: the second copy waits for the first, and nobody else
            // touches these buffers.
            unsafe { there.copy(&first, &second, &claims) }.unwrap();
            back.wait(&there.record().unwrap()).unwrap();
            // SAFETY: as above.
            unsafe { back.copy(&second, &third, &claims) }.unwrap();
            back.sync().unwrap();
            there.sync().unwrap();
            drop(claims);
            for (name, stored) in [("over", &second), ("back", &third)] {
                let mut found = vec![0; bytes.len()];
                stored.get(0, &mut found).unwrap();
                if found != bytes {
                    failures.push(format!("{from:?} to {to:?}: what came {name} is something else"));
                }
            }
        }
    }
    failures
}

/// Elements go into blocks as the reference puts them there.
pub(super) fn blocks_are_written_as_the_reference_does(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[128, 3]);
        let y = b.cast(x, dtype);
        b.output(y);
        let graph = Arc::new(b.build().unwrap());
        let values = numbers(7, 384);
        let found = run_planned(device, &graph, &[(x, f32_bytes(&values))], &Default::default()).unwrap();
        let mut wanted = vec![0; graph.tensor(y).desc.bytes() as usize];
        encode(dtype, &values, &mut wanted).unwrap();
        let other: Vec<String> = found[0]
            .1
            .iter()
            .zip(&wanted)
            .enumerate()
            .filter(|(_, (a, b))| a != b)
            .map(|(at, (a, b))| format!("{at}: {a} for {b}"))
            .collect();
        if !other.is_empty() {
            failures.push(format!(
                "{dtype}: {} of {} bytes differ: {}",
                other.len(),
                wanted.len(),
                other[..other.len().min(8)].join(", ")
            ));
        }
    }
    failures
}

/// The first of the largest elements, where a row is all of a vocabulary and where it is short.
pub(super) fn the_largest_element_is_found(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    let special = [f32::NAN, f32::NEG_INFINITY, -0.0, 0.0, -2.5, 1.5, f32::INFINITY];
    for (k, rows) in
        [(1u64, 1u64), (5, 1), (33, 1), (1000, 3), (4096, 2), (49152, 1), (50257, 1), (256_000, 1)]
    {
        // Of the special elements the first so many; none for numbers that differ.
        for kinds in 0..=special.len() {
            let mut b = GraphBuilder::new();
            let x = b.input("x", DType::F32, &[k, rows]);
            let y = b.argmax(x);
            b.output(y);
            let graph = Arc::new(b.build().unwrap());
            let mut values = numbers(k + kinds as u64, (k * rows) as usize);
            if kinds > 0 {
                let index = |value: f32| ((value + 1.0) / 2.0 * kinds as f32) as usize;
                values.iter_mut().for_each(|value| *value = special[index(*value).min(kinds - 1)]);
            }
            let found = run_planned(device, &graph, &[(x, f32_bytes(&values))], &Default::default()).unwrap();
            let first_largest = |row: &[f32]| {
                let above = |a: f32, b: f32| a > b || (b.is_nan() && !a.is_nan());
                (1..row.len()).fold(0, |best, at| if above(row[at], row[best]) { at } else { best }) as i32
            };
            let wanted: Vec<i32> = values.chunks(k as usize).map(first_largest).collect();
            if found[0].1 != i32_bytes(&wanted) {
                failures.push(format!("{k} x {rows}, {kinds} kinds: not {wanted:?}"));
            }
        }
    }
    failures
}

/// A kernel that fails costs the card, not the program: errors are values, and other devices go on.
pub(super) fn a_card_whose_kernel_fails_is_lost(_: &Arc<dyn Device>) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("orlop-kernels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let kernel = "extern \"C\" __global__ void op_unary(int) { asm(\"trap;\"); }";
    std::fs::write(folder.join("general.cu"), kernel).unwrap();
    let options = CudaOptions {
        sources: Some(folder.clone()),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        ..CudaOptions::default()
    };
    let device = Arc::clone(&devices(&options).unwrap()[0]);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8]);
    let y = b.unary(Unary::Sqr, x);
    b.output(y);
    let graph = Arc::new(b.build().unwrap());
    let feeds = [(x, f32_bytes(&[3.0; 8]))];
    let mut failures = Vec::new();
    for run in 0..2 {
        match run_planned(&device, &graph, &feeds, &Default::default()) {
            Err(error) if error.to_string().contains("lost") => {}
            other => failures.push(format!("run {run} of a kernel that fails gave {other:?}")),
        }
    }
    // Sources are read when a kernel is first used.
    std::fs::remove_dir_all(&folder).unwrap();
    if !device.facts().lost {
        failures.push("the card does not say that it is lost".to_owned());
    }
    let other: Arc<dyn Device> = ReferenceDevice::new();
    match run_planned(&other, &graph, &feeds, &Default::default()) {
        Ok(found) if found[0].1 == f32_bytes(&[9.0; 8]) => {}
        wrong => failures.push(format!("another device gave {wrong:?}")),
    }
    failures
}
