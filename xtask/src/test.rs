//! `cargo xtask test`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::cargo::cargo;
use crate::cuda::{self, GpuTests};
use crate::packages::{has_vulkan_driver, install, runs};
use crate::{arm, sanitize, test_ggml};

/// Which tests to run, and how.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Run the tests that need more than this machine's CPU and a software GPU.
    #[arg(long, value_enum, value_name = "WHAT")]
    on: Option<Place>,
    /// With `--on cuda`: copy the programs into this folder instead of running them, for a machine with a GPU.
    #[arg(long, value_name = "FOLDER")]
    build: Option<PathBuf>,
    /// With `--on cuda`: run under compute-sanitizer with this tool (memcheck, racecheck, initcheck or synccheck).
    /// With `--on sanitizers`: run only this one (valgrind or address).
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// With `--on ggml`: the folder of `check reference` with `smollm2` [default: a few built-in prompts]
    #[arg(long, value_name = "FOLDER")]
    references: Option<PathBuf>,
    /// With `--on ggml`: build jobs of llama.cpp [default: number of threads]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// With `--on cuda`: parts of test names [default: all tests]
    tests: Vec<String>,
}

/// Environments of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    /// 64-bit ARM, under QEMU on other machines: the CPU device.
    Arm,
    /// An NVIDIA GPU: the CUDA device.
    Cuda,
    /// llama.cpp with Orlop's allocator instead of ggml's.
    Ggml,
    /// Valgrind and AddressSanitizer: the crates with unsafe code.
    Sanitizers,
}

/// Runs the tests of an environment, or every test of the workspace.
pub(crate) fn run(arguments: Test) -> Result<()> {
    let Test { on, build, tool, references, jobs, tests } = arguments;
    let only = |option: &str, given: bool, place: &[Place]| {
        ensure!(!given || on.is_some_and(|on| place.contains(&on)), "{option} does not go with these tests");
        Ok(())
    };
    only("--build", build.is_some(), &[Place::Cuda])?;
    only("--tool", tool.is_some(), &[Place::Cuda, Place::Sanitizers])?;
    only("--references", references.is_some(), &[Place::Ggml])?;
    only("--jobs", jobs.is_some(), &[Place::Ggml])?;
    only("a name", !tests.is_empty(), &[Place::Cuda])?;
    match on {
        None => all(&[]),
        Some(Place::Arm) => arm::run(),
        Some(Place::Cuda) => cuda::test(&GpuTests { build, sanitizer: tool, tests }),
        Some(Place::Ggml) => test_ggml::run(references, jobs),
        Some(Place::Sanitizers) => {
            let tool = tool.map(|name| sanitize::Tool::from_str(&name, true));
            sanitize::run(tool.transpose().map_err(anyhow::Error::msg)?)
        }
    }
}

/// The output of the test harnesses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    not_run: u64,
    /// Names of skipped tests, each with its reason.
    names: Vec<String>,
    /// Lines about tests that need another machine.
    elsewhere: Vec<String>,
}

/// Runs every test of the workspace, including doc tests; skipped tests count as failures.
/// `environment` is set for the tests.
pub(crate) fn all(environment: &[(&str, &str)]) -> Result<()> {
    install(
        &[
            ("chromium", &|| runs("chromium", "--version")),
            ("gcc", &|| runs("cc", "--version")),
            ("mesa-vulkan-drivers", &has_vulkan_driver),
            ("pkg-config", &|| runs("pkg-config", "--version")),
            ("valgrind", &|| runs("valgrind", "--version")),
        ],
        "`test`",
    )?;
    // The development profile is optimized enough for property tests, and builds in half the time.
    let arguments = ["test", "--workspace", "--all-features", "--no-fail-fast"];
    eprintln!("xtask: cargo {}", arguments.join(" "));
    let mut child = cargo(&arguments)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo test")?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading what the tests print")?;
            tally.read(&line);
            // With a closed output, the tests still run.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
    let status = child.wait().context("waiting for cargo test")?;
    let not_run = tally.not_run;
    tally.elsewhere.iter().for_each(|line| println!("{line}"));
    tally.names.iter().for_each(|name| println!("not run: {name}"));
    println!("{} passed, {} failed, {not_run} not run", tally.passed, tally.failed);
    if tally.failed > 0 {
        bail!("{} tests failed", tally.failed);
    }
    if !status.success() {
        bail!("cargo test ended with {status}, so tests may be missing from these counts");
    }
    if not_run > 0 {
        bail!("{not_run} tests were not run");
    }
    Ok(())
}

impl Tally {
    /// Parses a line of a test harness.
    fn read(&mut self, line: &str) {
        if line.starts_with("not run on this machine: ") {
            self.elsewhere.push(line.to_owned());
        }
        let test = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ignored"));
        if let Some((name, reason)) = test {
            let reason = reason.strip_prefix(", ").unwrap_or("no reason given");
            self.names.push(format!("{name} ({reason})"));
        }
        let result = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
        if let Some((_, counts)) = result {
            let count = |what: &str| {
                let part = counts.split("; ").find_map(|part| part.strip_suffix(what));
                part.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
            };
            self.passed += count("passed");
            self.failed += count("failed");
            self.not_run += count("ignored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_harnesses_add_up() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test a::slow ... ignored, needs a model",
            "test src/lib.rs - example (line 3) ... ignored",
            "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "not run on this machine: 18 tests on a GPU: there is none",
            "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            tally.read(line);
        }
        let names = ["a::slow (needs a model)", "src/lib.rs - example (line 3) (no reason given)"];
        let names = names.map(str::to_owned).to_vec();
        let elsewhere = vec!["not run on this machine: 18 tests on a GPU: there is none".to_owned()];
        assert_eq!(tally, Tally { passed: 5, failed: 2, not_run: 2, names, elsewhere });
    }
}
