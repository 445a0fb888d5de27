//! `cargo xtask fuzz`: [libFuzzer](https://llvm.org/docs/LibFuzzer.html) with AddressSanitizer on readers of untrusted files,
//! messages and requests.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{cargo, packages};

/// What is fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// The reader and the writer of GGUF files.
    Gguf,
    /// The reader and the writer of saved states: sequences and chats.
    State,
    /// The messages of ggml's RPC protocol.
    Rpc,
    /// The endpoints of the server.
    Request,
}

/// Instrumentation flags of cargo-fuzz.
const FLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Ccodegen-units=1 -Cdebug-assertions -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0";

/// Builds and runs a fuzz target; new inputs go to the build folder, not to the corpus.
pub(crate) fn run(target: Target, seconds: u64) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "the fuzzer is set up for Linux only");
    packages::install(&[("g++", &|| packages::runs("c++", "--version"))], "`fuzz`")?;
    let (project, name) = match target {
        Target::Gguf => ("crates/gguf/fuzz", "read"),
        Target::State => ("crates/llm/fuzz", "state"),
        Target::Rpc => ("crates/rpc/fuzz", "message"),
        Target::Request => ("crates/http/fuzz", "request"),
    };
    let project = cargo::workspace().join(project);
    let found = cargo::target().join("fuzz").join("found").join(name);
    fs::create_dir_all(&found).with_context(|| format!("making {}", found.display()))?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = cargo::cargo(&["run", "--release", "--bin", name, "--target", &triple]);
    command.current_dir(&project).env("CARGO_TARGET_DIR", cargo::target().join("fuzz"));
    // Enables flags of the nightly compiler on stable.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
    command.arg("--").arg(&found).arg(project.join("corpus").join(name));
    command.arg(format!("-max_total_time={seconds}")).arg("-malloc_limit_mb=64");
    cargo::run(command.arg(format!("-artifact_prefix={}/", found.display())))
}
