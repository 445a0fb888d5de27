//! `cargo xtask test`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::cargo::cargo;
use crate::packages::{has_vulkan_driver, install, runs};

/// What the test harnesses said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    not_run: u64,
    /// Names of tests that were not run, each with its reason.
    names: Vec<String>,
}

/// Runs every test of the workspace, those in the documentation included; what is not run counts as a failure.
pub(crate) fn run() -> Result<()> {
    install(
        &[("chromium", &|| runs("chromium", "--version")), ("mesa-vulkan-drivers", &has_vulkan_driver)],
        "`test`",
    )?;
    // The development profile is optimised enough for property tests, and builds in half the time.
    let arguments = ["test", "--workspace", "--all-features", "--no-fail-fast"];
    eprintln!("xtask: cargo {}", arguments.join(" "));
    let mut child = cargo(&arguments).stdout(Stdio::piped()).spawn().context("starting cargo test")?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading what the tests print")?;
            tally.read(&line);
            // Where nobody reads along, the tests still run.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
    let status = child.wait().context("waiting for cargo test")?;
    let not_run = tally.not_run;
    for name in &tally.names {
        println!("not run: {name}");
    }
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
    /// Takes in a line of a test harness's.
    fn read(&mut self, line: &str) {
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
            "test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            tally.read(line);
        }
        let names = ["a::slow (needs a model)", "src/lib.rs - example (line 3) (no reason given)"];
        let names = names.map(str::to_owned).to_vec();
        assert_eq!(tally, Tally { passed: 5, failed: 2, not_run: 2, names });
    }
}
