//! Developer tasks: `cargo xtask COMMAND`.
#![warn(clippy::unwrap_used)]

mod arm;
mod bench;
mod book;
mod busy;
mod cargo;
mod ci;
mod corpus;
mod cuda;
mod dependencies;
#[cfg(test)]
mod documents;
mod excerpts;
mod fuzz;
mod library;
mod mutants;
mod nightly;
mod packages;
mod peers;
mod planner;
mod publish;
mod python;
mod reference;
mod reproduce;
#[cfg(test)]
mod requirements;
mod rpc;
mod sanitize;
mod sbom;
mod scripts;
mod serve;
mod soak;
mod speculation;
#[cfg(test)]
mod standing;
mod test;
mod test_ggml;
mod tools;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer tasks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Run every test and fail if one was skipped; or, with --on, the tests that need another environment.
    Test(test::Test),
    /// Check format, lints, documentation, dependencies and packages, then run every test.
    Ci,
    /// Run the long suites: more property cases, sanitizers, 64-bit ARM, a reproduced build, the soak, and the fuzzer.
    Nightly {
        /// Time of the soak, and of all fuzz targets together.
        #[arg(long, value_name = "N", default_value_t = 10)]
        minutes: u64,
    },
    /// Compare with recorded results of other engines.
    #[command(subcommand)]
    Check(Check),
    /// Fuzz the reader of a file format, or the server, with libFuzzer and AddressSanitizer.
    Fuzz {
        #[arg(value_enum)]
        target: fuzz::Target,
        /// Fuzzing time.
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
    },
    /// Change a crate in one place at a time, and check that its tests notice.
    Mutants(mutants::Mutants),
    /// Build the command in two folders, and compare the results byte for byte.
    Reproduce(reproduce::Reproduce),
    /// List what the command is built from, in CycloneDX's form.
    Sbom {
        /// File to write.
        #[arg(value_name = "FILE", default_value = "orlop.cdx.json")]
        output: PathBuf,
    },
    /// Call random models on random machines at random, while devices fail, and check every token and the memory.
    Soak {
        /// Time it takes.
        #[arg(value_name = "MINUTES")]
        minutes: u64,
    },
    /// Build the Python package as a wheel that also carries the command, in `wheels` in cargo's target folder.
    Wheel,
    /// Build the C interface, and install its header, libraries and pkg-config file.
    Library {
        /// Folder to install under.
        #[arg(long, value_name = "FOLDER")]
        prefix: PathBuf,
    },
    /// Build the book in `docs` with mdBook.
    Book,
    /// Run every benchmark, or those of one kind.
    Bench {
        #[command(subcommand)]
        kind: Option<bench::Kind>,
        /// Arguments of the benchmarks.
        #[arg(last = true)]
        options: Vec<String>,
    },
}

/// Kinds of recorded results.
#[derive(Subcommand)]
enum Check {
    /// Plan every graph of a folder and compare with ggml's plans in the files.
    Corpus(corpus::Corpus),
    /// Run the models of a folder and compare with the results of another engine and of exact arithmetic.
    Reference(reference::Reference),
    /// Compare logits with those of F32 arithmetic, beside llama.cpp's: in a batch and one token at a time.
    Accuracy(peers::accuracy::Accuracy),
    /// Compare token ids with those of `tokenizers` and `sentencepiece`, for real vocabularies.
    Tokenizers(scripts::Tokenizers),
    /// Compare embeddings of all-MiniLM-L6-v2 with those of its weights in 64 bits.
    Embeddings,
    /// Compare perplexities and greedy tokens of trained models with llama.cpp's.
    Trained(scripts::Trained),
    /// Ask the default model for answers that match generated JSON schemas, and validate them.
    Schemas(scripts::Schemas),
    /// Use `orlop serve` with clients of PyPI and npm: streams, tools, schemas, cancelling.
    Clients,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test(arguments) => test::run(arguments),
        Task::Ci => ci::run(),
        Task::Nightly { minutes } => nightly::run(minutes),
        Task::Check(Check::Corpus(arguments)) => corpus::run(&arguments),
        Task::Check(Check::Reference(arguments)) => reference::run(&arguments),
        Task::Check(Check::Accuracy(arguments)) => peers::accuracy::run(&arguments),
        Task::Check(Check::Tokenizers(arguments)) => scripts::tokenizers(&arguments),
        Task::Check(Check::Embeddings) => scripts::embeddings(),
        Task::Check(Check::Trained(arguments)) => scripts::trained(&arguments),
        Task::Check(Check::Schemas(arguments)) => scripts::schemas(&arguments),
        Task::Check(Check::Clients) => scripts::clients(),
        Task::Fuzz { target, seconds } => fuzz::run(target, seconds),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Reproduce(arguments) => reproduce::run(&arguments),
        Task::Sbom { output } => sbom::run(&output),
        Task::Soak { minutes } => soak::run(minutes),
        Task::Wheel => wheel::run(),
        Task::Library { prefix } => library::run(&prefix),
        Task::Book => book::run(),
        Task::Bench { kind, options } => bench::run(kind.as_ref(), &options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
