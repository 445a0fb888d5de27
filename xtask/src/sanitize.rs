//! `cargo xtask test --on sanitizers`: tests of the crates with unsafe code under valgrind and AddressSanitizer.

use std::process::{Command, Stdio};

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

fn address() -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Other flags, so a separate build folder.
    let folder = cargo::target().join("sanitize");
    let mut command = cargo::cargo(&["test", "--tests", "--no-fail-fast", "--target", &target]);
    command.args(PACKAGES).env("CARGO_TARGET_DIR", folder);
    // Tests expect allocations beyond the memory to fail.
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
    // Enables a flag of the nightly compiler on stable.
    cargo::run(command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address"))?;
    random_calls(&target)
}

/// Random calls of the C interface. Its programs in C would have to be compiled for AddressSanitizer, too.
fn random_calls(target: &str) -> Result<()> {
    let folder = cargo::target().join("sanitize");
    let mut command =
        cargo::cargo(&["test", "--package", "orlop-capi", "--test", "suite", "--target", target]);
    command.args(["calls", "--", "--nocapture"]).env("CARGO_TARGET_DIR", folder);
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1").env("ORLOP_CALL_SEQUENCES", "2000");
    cargo::run(command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address"))
}

fn valgrind() -> Result<()> {
    packages::install(
        &[("valgrind", &|| packages::runs("valgrind", "--version"))],
        "`test --on sanitizers`",
    )?;
    for test in built_tests()? {
        eprintln!("xtask: valgrind {}", test.binary.display());
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=1", "--fair-sched=yes", "--leak-check=full"]);
        command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
        command.arg(&test.binary).arg("--test-threads=1").current_dir(&test.folder);
        command.args(NOT_UNDER_VALGRIND.into_iter().flat_map(|name| ["--skip", name]));
        let status = command.status().context("starting valgrind")?;
        ensure!(status.success(), "{} under valgrind ended with {status}", test.binary.display());
    }
    Ok(())
}

/// Builds the tests and returns their paths.
fn built_tests() -> Result<Vec<Artifact>> {
    let mut command = cargo::cargo(&["test", "--tests", "--no-run"]);
    let built = cargo::artifacts(command.args(PACKAGES).stderr(Stdio::inherit()))?;
    let tests: Vec<Artifact> = built.into_iter().filter(|artifact| artifact.test).collect();
    ensure!(!tests.is_empty(), "cargo names no tests");
    Ok(tests)
}
