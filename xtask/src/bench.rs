//! `cargo xtask bench`.

use anyhow::Result;
use clap::Subcommand;

use crate::{cargo, cuda, peers, planner};

/// Benchmarks that are more than a function of the workspace.
#[derive(Subcommand)]
pub(crate) enum Kind {
    /// Measure the CPU's kernels against the most operations and bytes a second that this machine gives.
    Kernels,
    /// Measure the kernels of every GPU adapter, software adapters included and named as such.
    Gpu,
    /// Measure an NVIDIA card's kernels against what its memory and its tensor cores give.
    Cuda,
    /// Compare with llama.cpp, which is built for it in a project of its own (needs cmake, clang and libclang).
    Peers(peers::Peers),
    /// Plan problems of buffers: how close to the bound, and how fast.
    Planner(planner::Planner),
}

/// Runs the benchmarks of a kind, or all those of the workspace.
pub(crate) fn run(kind: Option<&Kind>, options: &[String]) -> Result<()> {
    match kind {
        Some(Kind::Kernels) => {
            let mut command =
                cargo::cargo(&["bench", "-p", "orlop-cpu", "--bench", "kernels", "--bench", "ops", "--"]);
            return cargo::run(command.args(options));
        }
        Some(Kind::Gpu) => {
            let mut command = cargo::cargo(&["bench", "-p", "orlop-wgpu", "--bench", "kernels", "--"]);
            return cargo::run(command.args(options));
        }
        Some(Kind::Cuda) => return cuda::bench(options),
        Some(Kind::Peers(peers)) => return peers::run(peers),
        Some(Kind::Planner(planner)) => return planner::run(planner),
        None => {}
    }
    // The pattern leaves out the test harnesses of libraries, which know no options of benchmarks.
    let mut command = cargo::cargo(&["bench", "--workspace", "--bench", "*", "--"]);
    cargo::run(command.args(options))
}
