//! `cargo xtask bench rpc`: the example `peer` of `crates/rpc` with a built `orlop`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cargo;
use crate::peers::build;

/// What to compare with.
#[derive(Args)]
pub(crate) struct Rpc {
    /// Folder with llama.cpp's programs: `ggml-rpc-server` and `llama-bench`.
    #[arg(long, value_name = "FOLDER")]
    peer: PathBuf,
    /// Model file (.gguf).
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Rounds of alternating runs.
    #[arg(long, value_name = "N", default_value_t = 2)]
    rounds: usize,
}

/// Builds `orlop`, and runs the example.
pub(crate) fn run(rpc: &Rpc) -> Result<()> {
    let orlop = build::orlop()?;
    let mut command = cargo::cargo(&["run", "--release", "-p", "orlop-rpc", "--example", "peer", "--"]);
    command.arg(&rpc.peer).arg(orlop).arg(&rpc.model).arg(rpc.rounds.to_string());
    cargo::run(&mut command)
}
