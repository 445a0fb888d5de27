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
    /// Graphs as JSON, and their plans.
    Graph,
    /// Saved memory plans.
    Plan,
    /// Adapters.
    Lora,
    /// The reader and the writer of saved states: sequences and chats.
    State,
    /// Chat templates.
    Template,
    /// Texts, and vocabularies of files.
    Tokenizer,
    /// JSON schemas, regular expressions and grammars.
    Grammar,
    /// The messages of ggml's RPC protocol.
    Rpc,
    /// The endpoints of the server.
    Request,
}

impl Target {
    /// Its project, and its name there.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Target::Gguf => ("crates/gguf/fuzz", "read"),
            Target::Graph => ("crates/alloc/fuzz", "graph"),
            Target::Plan => ("crates/alloc/fuzz", "plan"),
            Target::Lora => ("crates/llm/fuzz", "lora"),
            Target::State => ("crates/llm/fuzz", "state"),
            Target::Template => ("crates/llm/fuzz", "template"),
            Target::Tokenizer => ("crates/llm/fuzz", "tokenizer"),
            Target::Grammar => ("crates/llm/fuzz", "grammar"),
            Target::Rpc => ("crates/rpc/fuzz", "message"),
            Target::Request => ("crates/http/fuzz", "request"),
        }
    }
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
    let (project, name) = target.place();
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

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_target_has_seeds_and_every_fuzz_target_is_one() {
        let root = cargo::workspace();
        let mut known: Vec<_> = Target::value_variants().iter().map(|target| target.place()).collect();
        for (project, name) in &known {
            let seeds = fs::read_dir(root.join(project).join("corpus").join(name)).expect("a corpus");
            assert!(seeds.count() > 0, "{project} {name}");
        }
        known.sort_unstable();
        let crates = fs::read_dir(root.join("crates")).expect("the crates").flatten();
        let mut files = 0;
        for folder in crates.map(|entry| entry.path().join("fuzz/fuzz_targets")).filter(|path| path.exists())
        {
            files += fs::read_dir(folder).expect("fuzz targets").count();
        }
        known.dedup();
        assert_eq!(files, known.len());
    }
}
