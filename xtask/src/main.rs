//! What developers run: `cargo xtask COMMAND`.

mod arm;
mod bench;
mod book;
mod cargo;
mod ci;
mod corpus;
mod cuda;
#[cfg(test)]
mod documents;
mod packages;
mod peers;
mod planner;
mod reference;
#[cfg(test)]
mod requirements;
mod sanitize;
mod test;
mod test_ggml;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// What developers run.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Run every test, and count what was not run.
    Test,
    /// Check format, lints and documentation, then run every test.
    Ci,
    /// Build the book in `docs` with mdBook.
    Book,
    /// Plan every graph of a folder and compare with what the files say of them.
    Corpus {
        /// Searched for *.jsonl.gz, folders in it included.
        folder: PathBuf,
        /// How many of the graphs furthest from the bound to list.
        #[arg(long, default_value_t = 10)]
        worst: usize,
        /// Passed on to `orlop plan`.
        #[arg(last = true)]
        options: Vec<String>,
    },
    /// Run the models of a folder and compare with what another engine, and exact arithmetic, gave.
    Reference(reference::Reference),
    /// Run the tests of code that reaches memory through pointers under valgrind and AddressSanitizer.
    Sanitize {
        /// Under one of them.
        #[arg(long)]
        only: Option<sanitize::Tool>,
    },
    /// Run a model under llama.cpp with and without Orlop's allocator in the place of ggml's, and compare.
    TestGgml {
        /// Holds `smollm2`, as that of `reference`; without it, a few prompts have to do.
        folder: Option<PathBuf>,
        /// Jobs of the build of llama.cpp; without it, as many as there are threads.
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
    },
    /// Run the CPU device's tests on 64-bit ARM, under an emulator if need be.
    TestArm,
    /// Build what tests an NVIDIA card, and run it, or put it into a folder to be run where there is one.
    TestCuda(cuda::TestCuda),
    /// Run every benchmark, or those of one kind.
    Bench {
        #[command(subcommand)]
        kind: Option<bench::Kind>,
        /// Passed on to the benchmarks.
        #[arg(last = true)]
        options: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test => test::run(),
        Task::Ci => ci::run(),
        Task::Book => book::run(),
        Task::Corpus { folder, worst, options } => corpus::run(&folder, worst, &options),
        Task::Reference(arguments) => reference::run(&arguments),
        Task::Sanitize { only } => sanitize::run(only),
        Task::TestGgml { folder, jobs } => test_ggml::run(folder, jobs),
        Task::TestArm => arm::run(),
        Task::TestCuda(arguments) => cuda::test(&arguments),
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
