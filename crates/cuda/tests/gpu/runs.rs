//! Programs and memory: alignment, CUDA graphs, copies between devices, and a kernel that traps.

use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Claims, Device, DeviceError, LowerOptions, Role, RunOptions};
use orlop_cuda::{CudaOptions, devices};
use orlop_graph::{AccessKind, DType, GraphBuilder, TensorDesc, Unary};
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::{ReferenceDevice, f32_bytes, run_planned};

use crate::Test;
use crate::support::{numbers, options};

// The trap is last: nothing runs on the GPU after it.
pub(crate) const TESTS: &[Test] = tests![
    misaligned_tensors_are_refused,
    replays_compute_the_same,
    devices_copy_from_each_other,
    a_gpu_whose_kernel_traps_is_lost
];

/// A tensor that is bound off its alignment is refused by name, and the GPU goes on.
fn misaligned_tensors_are_refused(device: &Arc<dyn Device>) -> Vec<String> {
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
    let graph = Arc::new(b.build().unwrap());
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
