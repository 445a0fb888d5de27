//! Runs a small graph on the CPU, all of its memory planned before.

use std::sync::Arc;

use orlop::alloc::{Externals, SetTensor, TensorSet};
use orlop::backend::{Device, LowerOptions, Role, RunOptions};
use orlop::cpu::{CpuDevice, ThreadPool};
use orlop::graph::{DType, GraphBuilder};
use orlop::sched::{Machine, Session, SessionOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let w = b.weight("w", DType::F32, &[2, 3]);
    let y = b.mul_mat(w, x);
    let y = b.relu(y);
    b.output(y);
    let graph = Arc::new(b.build()?);

    let device = CpuDevice::new(ThreadPool::for_machine()?);
    let memory = device.buffer_types(Role::Arena)[0].clone();
    let weights = TensorSet::allocate(&memory, &[SetTensor::new("w", graph.tensor(w).desc)])?;
    weights.tensors()[0].set(0, &bytes(&[1.0, 2.0, -1.0, 1.0, 0.5, -4.0]))?;

    // Scratch is sized for as many threads as a run may ask for.
    let lower = LowerOptions { max_threads: device.pool().threads(), ..LowerOptions::default() };
    let options = SessionOptions { lower, ..SessionOptions::default() };
    let mut session = Session::new(Machine::new([device as _])?, options)?;
    let plan = session.prepare(&graph, &Externals::by_name(&graph, weights.tensors()))?;
    session.set(plan, x, &bytes(&[3.0, 1.0]))?;
    session.run(plan, &RunOptions::default())?;
    let mut result = [0; 12];
    session.get(plan, y, &mut result)?;
    let values: Vec<f32> = result.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    println!("{values:?}");
    Ok(())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
