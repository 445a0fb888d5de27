//! `cargo xtask test --on sanitizers`: tests of the crates with unsafe code under valgrind and AddressSanitizer.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

use anyhow::{Context, Result, ensure};

use crate::cargo::{self, Artifact};
use crate::packages;

const PACKAGES: [&str; 6] =
    ["--package", "orlop-cpu", "--package", "orlop-backend", "--package", "orlop-ggml"];

/// Tests skipped under valgrind. The first two take minutes each, and another test runs the conformance set with each
/// instruction set on two threads. The last requests absurd sizes, which valgrind reports as an error.
const NOT_UNDER_VALGRIND: [&str; 3] =
    ["conformance::every_case", "conformance::the_ops_page", "host_memory::absurd_sizes"];

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tool {
    /// Also finds reads of uninitialized bytes. Has no AVX-512, so devices fall back to AVX2.
    Valgrind,
    /// Runs natively, with all instruction sets.
    Address,
}

/// Runs the tests under one tool, or under both.
pub(crate) fn run(only: Option<Tool>) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "these tools are set up for Linux only");
    for tool in [Tool::Valgrind, Tool::Address] {
        if only.is_none_or(|only| only == tool) {
            match tool {
                Tool::Valgrind => valgrind()?,
                Tool::Address => address()?,
            }
        }
    }
    Ok(())
}

/// The tests with random calls of the C interface. Its programs in C run under valgrind in every test of it.
const RANDOM_CALLS: [&str; 4] = ["--package", "orlop-capi", "--test", "suite"];

/// Sequences of random calls.
const SEQUENCES: usize = 2_000;

/// Sequences of one process.
const SEQUENCES_EACH: usize = 100;

fn address() -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Other flags, so a separate build folder.
    let folder = cargo::target().join("sanitize");
    let test = |arguments: &[&str]| {
        let mut command = cargo::cargo(&["test", "--target", &target]);
        command.args(arguments).env("CARGO_TARGET_DIR", &folder);
        // Tests expect allocations beyond the memory to fail.
        command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
        // Enables a flag of the nightly compiler on stable.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
        command
    };
    cargo::run(test(&["--tests", "--no-fail-fast"]).args(PACKAGES))?;
    for suite in built(test(&["--no-run"]).args(RANDOM_CALLS))? {
        random_calls(&suite, || {
            let mut command = Command::new(&suite.binary);
            command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
            command
        })?;
    }
    Ok(())
}

fn valgrind() -> Result<()> {
    packages::install(
        &[("valgrind", &|| packages::runs("valgrind", "--version"))],
        "`test --on sanitizers`",
    )?;
    for test in built(cargo::cargo(&["test", "--tests", "--no-run"]).args(PACKAGES))? {
        eprintln!("xtask: valgrind {}", test.binary.display());
        let mut command = under_valgrind(&test);
        command.arg("--test-threads=1").current_dir(&test.folder);
        command.args(NOT_UNDER_VALGRIND.into_iter().flat_map(|name| ["--skip", name]));
        let status = command.status().context("starting valgrind")?;
        ensure!(status.success(), "{} under valgrind ended with {status}", test.binary.display());
    }
    for suite in built(cargo::cargo(&["test", "--no-run"]).args(RANDOM_CALLS))? {
        random_calls(&suite, || under_valgrind(&suite))?;
    }
    Ok(())
}

fn under_valgrind(test: &Artifact) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=1", "--fair-sched=yes", "--leak-check=full"]);
    command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    let known = cargo::workspace().join("xtask/checks/valgrind.supp");
    command.arg(format!("--suppressions={}", known.display())).arg(&test.binary);
    command
}

/// Random calls of the C interface: as many processes at a time as there are cores.
fn random_calls(suite: &Artifact, program: impl Fn() -> Command + Sync) -> Result<()> {
    eprintln!("xtask: {SEQUENCES} sequences of random calls, {}", suite.binary.display());
    let parts = (0..SEQUENCES).step_by(SEQUENCES_EACH);
    let parts: Vec<String> = parts.map(|from| format!("{from}..{}", from + SEQUENCES_EACH)).collect();
    let succeeds = |seeds: &&String| {
        let mut command = program();
        command.args(["random_calls", "--nocapture"]).current_dir(&suite.folder);
        command.env("ORLOP_CALL_SEQUENCES", seeds).status().is_ok_and(|status| status.success())
    };
    let next = AtomicUsize::new(0);
    let take = || parts.get(next.fetch_add(1, Ordering::Relaxed));
    let work = || std::iter::from_fn(take).filter(|seeds| !succeeds(seeds)).cloned().collect::<Vec<String>>();
    let cores = available_parallelism().map_or(1, usize::from);
    let failed: Vec<String> = scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")).collect()
    });
    ensure!(failed.is_empty(), "random calls failed: sequences {}", failed.join(", "));
    Ok(())
}

/// The tests of a `cargo test --no-run`.
fn built(command: &mut Command) -> Result<Vec<Artifact>> {
    let built = cargo::artifacts(command.stderr(Stdio::inherit()))?;
    let tests: Vec<Artifact> = built.into_iter().filter(|artifact| artifact.test).collect();
    ensure!(!tests.is_empty(), "cargo names no tests");
    Ok(tests)
}
