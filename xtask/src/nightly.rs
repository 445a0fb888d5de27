//! `cargo xtask nightly`: the suites that take too long for every change.

use anyhow::Result;
use clap::ValueEnum;

use crate::reproduce::{self, Reproduce};
use crate::{arm, fuzz, publish, python, sanitize, scripts, soak, test, test_ggml};

/// Cases of each property test; the default is 256.
const CASES: &str = "4096";

/// Runs every test with more cases and models of every architecture on a GPU, builds every package by itself, installs the
/// Python package with pip, runs tests under sanitizers, on 64-bit ARM and beside llama.cpp, builds the command twice, asks the
/// server for answers that match 1,000 schemas and uses it with clients of PyPI and npm, and then runs the soak and the fuzzer
/// for some minutes each.
pub(crate) fn run(minutes: u64) -> Result<()> {
    test::all(&[("PROPTEST_CASES", CASES), ("ORLOP_ALL_MODELS", "1")])?;
    publish::verify()?;
    python::install()?;
    sanitize::run(None)?;
    arm::run()?;
    test_ggml::run(None, None)?;
    reproduce::run(&Reproduce::default())?;
    scripts::schemas(&scripts::Schemas::default())?;
    scripts::clients()?;
    soak::run(minutes)?;
    let targets = fuzz::Target::value_variants();
    for target in targets {
        fuzz::run(*target, minutes.saturating_mul(60) / targets.len() as u64)?;
    }
    Ok(())
}
