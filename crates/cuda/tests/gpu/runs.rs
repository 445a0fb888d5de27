//! Programs and memory: alignment, CUDA graphs, copies between devices, bytes on queues, and a kernel that traps.

use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Bindings, Claims, Device, DeviceError, LowerOptions, Role, RunOptions, Segment, Slot};
use orlop_cuda::{CudaOptions, devices};
use orlop_graph::{AccessKind, DType, GraphBuilder, NodeId, TensorDesc, Unary};
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::{ReferenceDevice, check_queue, f32_bytes, run_planned};

use crate::Test;
use crate::support::{numbers, options};

// The trap is last: nothing runs on the GPU after it.
pub(crate) const TESTS: &[Test] = tests![
    misaligned_tensors_are_refused,
    replays_compute_the_same,
    devices_copy_from_each_other,
    queues_set_and_get_bytes_in_order_with_their_work,
    bytes_are_set_and_read_while_the_gpu_is_at_work,
    queues_see_what_other_queues_set,
    a_gpu_whose_kernel_traps_is_lost
];

/// A tensor that is bound off its alignment is refused by name, and the GPU goes on.
fn misaligned_tensors_are_refused(device: &Arc<dyn Device>) -> Vec<String> {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[256, 8]);
    let x = b.input("x", DType::F32, &[256]);
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = b.build().unwrap();
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
        failures.push("the GPU is lost".to_owned());
    }
    failures
}

/// Runs after the second are replays; they see new inputs.
fn replays_compute_the_same(device: &Arc<dyn Device>) -> Vec<String> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[1000]);
    let mut y = x;
    for step in 0..20 {
        y = b.scale(y, if step % 2 == 0 { 2.0 } else { 0.5 });
    }
    b.output(y);
    let graph = b.build().unwrap();
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

/// Bytes go from one device's memory to another's and back, on queues that wait for each other. Two devices of one GPU
/// take the same path as those of two GPUs.
fn devices_copy_from_each_other(_: &Arc<dyn Device>) -> Vec<String> {
    let open = || devices(&CudaOptions { cache: None, sources: None, ..options() }).unwrap();
    let all: Vec<Arc<dyn Device>> = open().into_iter().chain(open()).collect();
    println!("  {} GPU(s), {} devices", all.len() / 2, all.len());
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
            // SAFETY: `copy` asks that conflicting work is ordered: the second copy waits for the first, and
            // these buffers are used here alone.
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

/// Bytes of any number and place, in order with the queue's own runs.
fn queues_set_and_get_bytes_in_order_with_their_work(device: &Arc<dyn Device>) -> Vec<String> {
    check_queue(device)
}

/// A set and a get behind long runs that hold their buffer return before those are done.
fn bytes_are_set_and_read_while_the_gpu_is_at_work(device: &Arc<dyn Device>) -> Vec<String> {
    const SIDE: u64 = 4096;
    let mut b = GraphBuilder::new();
    let w = b.input("w", DType::F32, &[SIDE, SIDE]);
    let x = b.input("x", DType::F32, &[SIDE, SIDE]);
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = b.build().unwrap();
    let memory = &device.buffer_types(Role::Arena)[0];
    let [w, x, y] = [w, x, y].map(|id| {
        let set = TensorSet::allocate(memory, &[SetTensor::new("x", graph.tensor(id).desc)]).unwrap();
        set.tensors()[0].clone()
    });
    for zeros in [&w, &x] {
        zeros.memset(0, zeros.desc().bytes(), 0).unwrap();
    }
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_types = [(); 3].map(|()| Some(Arc::clone(memory)));
    let segment = Segment { graph: &graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &[true; 3] };
    let steps = device.lower(&segment, &LowerOptions::default()).unwrap();
    let allocate = |bytes| Slot { buffer: Arc::clone(memory).allocate(bytes).unwrap(), offset: 0 };
    let bindings = Bindings {
        graph: graph.clone(),
        tensors: graph.tensor_ids().zip([&w, &x, &y].map(|stored| stored.slot().clone())).collect(),
        temporaries: steps.temporaries.iter().map(|temporary| allocate(temporary.bytes)).collect(),
    };
    let program = device.compile(&steps, &bindings).unwrap();
    let mut queue = device.queue().unwrap();
    let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind))).unwrap();
    for _ in 0..100 {
        // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none; and that results lie
        // on nothing that is needed: each tensor has a buffer.
        unsafe { queue.submit(&program, &claims, &RunOptions::default()) }.unwrap();
    }
    drop(claims);
    let run = queue.record().unwrap();
    let before = queue.get(&y, 0, 1 << 20).unwrap();
    let arrived = queue.set(&y, 0, &vec![7; 1 << 20]).unwrap();
    let after = queue.get(&y, 0, 1 << 20).unwrap();
    let mut failures = Vec::new();
    if run.is_done() {
        failures.push("the host waited for the run".to_owned());
    }
    for (read, value) in [(before, 0), (after, 7)] {
        let mut found = vec![1; 1 << 20];
        read.wait(&mut found).unwrap();
        if found.iter().any(|byte| *byte != value) {
            failures.push(format!("a read has bytes other than {value}"));
        }
    }
    if !arrived.is_done() {
        failures.push("what came back has not arrived".to_owned());
    }
    failures
}

/// Work of one queue comes behind what another has set, and what another reads comes before it.
fn queues_see_what_other_queues_set(device: &Arc<dyn Device>) -> Vec<String> {
    let desc = TensorDesc::contiguous(DType::F32, &[1 << 20]).unwrap();
    let place = || {
        let set = TensorSet::allocate(&device.buffer_types(Role::Arena)[0], &[SetTensor::new("x", desc)]);
        set.unwrap().tensors()[0].clone()
    };
    let (x, y) = (place(), place());
    let (mut first, mut second) = (device.queue().unwrap(), device.queue().unwrap());
    let mut failures = Vec::new();
    let mut reads = Vec::new();
    for round in 1..=20 {
        let bytes = f32_bytes(&numbers(round, 1 << 20));
        first.set(&x, 0, &bytes).unwrap();
        let claims =
            Claims::take([(&x.slot().buffer, AccessKind::Read), (&y.slot().buffer, AccessKind::Write)])
                .unwrap();
        // SAFETY: `copy` asks that conflicting work under the same claims is ordered: there is none.
        unsafe { second.copy(&x, &y, &claims) }.unwrap();
        drop(claims);
        second.sync().unwrap();
        reads.push((first.get(&y, 0, desc.bytes()).unwrap(), bytes));
    }
    for (round, (read, bytes)) in reads.iter().enumerate() {
        let mut found = vec![0; bytes.len()];
        read.wait(&mut found).unwrap();
        if &found != bytes {
            failures.push(format!("round {round} has other bytes"));
        }
    }
    failures
}

/// A kernel that traps costs the GPU, and the program gets errors; other devices go on.
fn a_gpu_whose_kernel_traps_is_lost(_: &Arc<dyn Device>) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("orlop-kernels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let kernel = "extern \"C\" __global__ void op_unary(int) { asm(\"trap;\"); }";
    std::fs::write(folder.join("general.cu"), kernel).unwrap();
    let options = CudaOptions { sources: Some(folder.clone()), cache: None, ..options() };
    let device = Arc::clone(&devices(&options).unwrap()[0]);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8]);
    let y = b.unary(Unary::Sqr, x);
    b.output(y);
    let graph = b.build().unwrap();
    let feeds = [(x, f32_bytes(&[3.0; 8]))];
    let mut failures = Vec::new();
    for run in 0..2 {
        match run_planned(&device, &graph, &feeds, &Default::default()) {
            Err(error) if matches!(error.device_error(), Some(DeviceError::Lost { .. })) => {}
            other => failures.push(format!("run {run} of a kernel that fails gave {other:?}")),
        }
    }
    // Sources are read when a kernel is first used.
    std::fs::remove_dir_all(&folder).unwrap();
    if !device.facts().lost {
        failures.push("the GPU does not report that it is lost".to_owned());
    }
    let other: Arc<dyn Device> = ReferenceDevice::new();
    match run_planned(&other, &graph, &feeds, &Default::default()) {
        Ok(found) if found[0].1 == f32_bytes(&[9.0; 8]) => {}
        wrong => failures.push(format!("another device gave {wrong:?}")),
    }
    failures
}
