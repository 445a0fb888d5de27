//! `cargo xtask bench`.

use anyhow::Result;
use clap::Subcommand;

use crate::{busy, cargo, cuda, peers, planner, python, rpc, serve, speculation};

/// The kinds of benchmarks.
#[derive(Subcommand)]
pub(crate) enum Kind {
    /// Measure CPU kernels against the peak operations and bandwidth of this machine.
    Kernels,
    /// Measure the kernels of every wgpu adapter, including software adapters.
    Gpu,
    /// Measure CUDA kernels against the peak bandwidth and tensor core throughput of the GPU.
    Cuda,
    /// Compare with llama.cpp, built in a separate project (needs cmake, clang and libclang).
    Peers(peers::Peers),
    /// Measure threads beside busy loops, against another build or llama.cpp.
    Busy(busy::Busy),
    /// Measure the quality and speed of the planner.
    Planner(planner::Planner),
    /// Compare with llama.cpp's client on ggml's RPC servers, and run the conformance set there.
    Rpc(rpc::Rpc),
    /// Measure generation with and without speculative decoding.
    Speculation(speculation::Speculation),
    /// Compare prompts and generation through the Python package with those of the command.
    Python(python::Python),
    /// Measure `orlop serve` under load, beside llama.cpp's server.
    Serve(serve::Serve),
}

/// Runs the benchmarks of a kind, or all of the workspace.
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
        Some(Kind::Busy(busy)) => return busy::run(busy),
        Some(Kind::Planner(planner)) => return planner::run(planner),
        Some(Kind::Rpc(rpc)) => return rpc::run(rpc),
        Some(Kind::Speculation(speculation)) => return speculation::run(speculation),
        Some(Kind::Python(arguments)) => return python::bench(arguments),
        Some(Kind::Serve(serve)) => return serve::run(serve),
        None => {}
    }
    // Excludes the test harnesses of libraries, which reject benchmark options.
    let mut command = cargo::cargo(&["bench", "--workspace", "--bench", "*", "--"]);
    cargo::run(command.args(options))
}
