use std::sync::Arc;

use orlop_alloc::{Externals, Session, SessionOptions, SetTensor, TensorSet};
use orlop_backend::{Device, LowerOptions, Role, RunOptions};
use orlop_cuda::{CudaOptions, devices};
use orlop_graph::{DType, FlashAttention, Gate, GraphBuilder, Leaf, Op, Rope, RopeMode, TensorId, Unary};
use orlop_quant::encode;
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

/// The results of a graph's outputs on a device, with its weights in the kind of memory that the device likes best.
fn outputs(device: &Arc<dyn Device>, graph: &Arc<orlop_graph::Graph>, feeds: &Feeds) -> Vec<Vec<f32>> {
    let memory = device.buffer_types(Role::Weight)[0].clone();
    let plain = device.buffer_types(Role::Arena)[0].clone();
    let leafs: Vec<(TensorId, Leaf)> = graph.leafs().collect();
    let mut externals = Externals::new();
    for (leaf, kind) in &leafs {
        if !matches!(kind, Leaf::Weight | Leaf::State) {
            continue;
        }
        let tensor = graph.tensor(*leaf);
        let quantised = tensor.desc.dtype.is_quantized() && *kind == Leaf::Weight;
        let memory = if quantised { &memory } else { &plain };
        let set = TensorSet::allocate(memory, &[SetTensor::new(tensor.name.as_str(), tensor.desc)]).unwrap();
        let bytes = &feeds.iter().find(|(id, _)| id == leaf).unwrap().1;
        set.tensors()[0].set(0, bytes).unwrap();
        externals.insert(*leaf, set.tensors()[0].clone());
    }
    let mut session = Session::new(Arc::clone(device), SessionOptions::default()).unwrap();
    let plan = session.prepare(graph, &externals).unwrap();
    let mut results = Vec::new();
    // The third run is a replay of what the second recorded.
    for _ in 0..3 {
        for (leaf, bytes) in feeds {
            if leafs.contains(&(*leaf, Leaf::Input)) {
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
    device: &Arc<dyn Device>,
    graph: &Arc<orlop_graph::Graph>,
    feeds: &Feeds,
    limit: f64,
) -> Option<String> {
    let (found, wanted) = (outputs(device, graph, feeds), expected(graph, feeds));
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
            let activated = b.gated(Gate::Silu, gated, upped);
            let product = b.mul_mat(down, activated);
            let sum = b.add(product, kept);
            b.output(sum);
            for (id, count) in [(x, k * n), (scale, k), (kept, m * n)] {
                feeds.push((id, f32_bytes(&numbers(count, count as usize))));
            }
            let graph = Arc::new(b.build().unwrap());
            // Three products, each with activations in 8 bits.
            failures.extend(compare(&format!("{dtype} {k} {m} {n}"), device, &graph, &feeds, 2e-4));
        }
    }
    failures
}

/// Rotation, caches and attention, of one token and of many, at several lengths.
pub(super) fn fast_attention_agrees_with_the_reference(device: &Arc<dyn Device>) -> Vec<String> {
    let mut failures = Vec::new();
    for (head, heads, kv_heads, tokens, past, context, dtype) in [
        (64u64, 4u64, 2u64, 1u64, 0u64, 256u64, DType::F16),
        (64, 9, 3, 1, 77, 2048, DType::F16),
        (128, 4, 4, 1, 1500, 2048, DType::F16),
        (128, 8, 1, 1, 300, 4096, DType::BF16),
        (256, 2, 1, 1, 130, 1024, DType::F32),
        (64, 4, 2, 3, 5, 64, DType::F16),
        (64, 4, 2, 130, 0, 256, DType::F16),
        (128, 4, 2, 70, 100, 512, DType::F16),
        (96, 4, 2, 7, 3, 64, DType::F16),
        (96, 4, 2, 1, 40, 64, DType::F16),
    ] {
        for mode in [RopeMode::Normal, RopeMode::Neox] {
            let mut b = GraphBuilder::new();
            let q = b.input("q", DType::F32, &[head, heads, tokens]);
            let k = b.input("k", DType::F32, &[head, kv_heads, tokens]);
            let v = b.input("v", DType::F32, &[head * kv_heads, tokens]);
            let positions = b.input("positions", DType::I32, &[tokens]);
            let rows = b.input("rows", DType::I32, &[tokens]);
            let seen = b.input("seen", DType::I32, &[tokens]);
            let k_cache = b.state("k cache", dtype, &[head * kv_heads, context]);
            let v_cache = b.state("v cache", dtype, &[head * kv_heads, context]);
            let rope = Rope { mode, dims: head as u32, ..Rope::default() };
            let (q_turned, k_turned) = (b.rope(q, positions, None, rope), b.rope(k, positions, None, rope));
            let k_rows = b.reshape(k_turned, &[head * kv_heads, tokens]);
            let cached = [(k_cache, k_rows), (v_cache, v)].map(|(cache, new)| {
                let written = b.set_rows(cache, new, rows);
                let split = b.reshape(written, &[head, kv_heads, context]);
                b.permute(split, [0, 2, 1, 3])
            });
            let q_permuted = b.permute(q_turned, [0, 2, 1, 3]);
            let flash = FlashAttention { kv_len: true, ..FlashAttention::scaled(0.3) };
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
                feeds.push((cache, weights(dtype, cache.index() as u64 + 9, head * kv_heads, context)));
            }
            let count = |first: u64| (0..tokens).map(|token| (first + token) as i32).collect::<Vec<i32>>();
            for (id, first) in [(positions, past), (rows, past), (seen, past + 1)] {
                feeds.push((id, i32_bytes(&count(first))));
            }
            let name =
                format!("{dtype} {mode:?} head {head} heads {heads}/{kv_heads} tokens {tokens} past {past}");
            failures.extend(compare(&name, device, &graph, &feeds, 1e-4));
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
    let mut session = Session::new(Arc::clone(device), options).unwrap();
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
