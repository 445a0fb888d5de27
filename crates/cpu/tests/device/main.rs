//! The CPU device as a whole: the conformance set, random graphs, the guard, runs and their errors.

mod allocations;
mod batch_invariance;
mod conformance;
mod fusion;
mod graphs;
mod observed;
mod products;
mod programs;
mod runs;

use std::sync::{Arc, LazyLock};

use orlop_backend::{LowerOptions, RunOptions};
use orlop_cpu::{CpuDevice, Isa, ThreadPool};
use orlop_testkit::Random;

/// Numbers from -1 to 1.
fn noise(count: u64, seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..count).map(|_| f64::from(random.signed())).collect()
}

static POOL: LazyLock<Arc<ThreadPool>> = LazyLock::new(|| ThreadPool::new(5).expect("five threads"));

fn device(isa: Isa) -> Arc<CpuDevice> {
    CpuDevice::with_isa("cpu", Arc::clone(&POOL), isa)
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn lower(threads: usize) -> LowerOptions {
    LowerOptions { max_threads: threads, ..LowerOptions::default() }
}

fn run(threads: usize) -> RunOptions {
    RunOptions { threads: Some(threads), ..RunOptions::default() }
}
