//! `cargo xtask test-cuda` and `cargo xtask bench cuda`: programs for machines with a card, which need not have Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo;

/// How the tests of a card are run.
#[derive(Args, Debug)]
pub(crate) struct TestCuda {
    /// Put the programs into this folder, and run nothing: they can then be taken to a machine with a card.
    #[arg(long, value_name = "FOLDER")]
    build: Option<PathBuf>,
    /// Run under compute-sanitizer, with this tool: memcheck, racecheck, initcheck or synccheck.
    #[arg(long, value_name = "TOOL")]
    sanitize: Option<String>,
    /// Which tests; without any, all.
    tests: Vec<String>,
}

/// The programs.
const PROGRAMS: [&str; 2] = ["cuda-tests", "cuda-bench"];

/// Builds the tests, and runs them unless they are to be taken elsewhere.
pub(crate) fn test(arguments: &TestCuda) -> Result<()> {
    let built = build()?;
    if let Some(folder) = &arguments.build {
        return copy(&built, folder);
    }
    let tests = &built[0];
    let mut command = match &arguments.sanitize {
        Some(tool) => {
            let mut command = Command::new("compute-sanitizer");
            command.args(["--tool", tool, "--error-exitcode", "1"]).arg(tests);
            command
        }
        None => Command::new(tests),
    };
    start(command.args(&arguments.tests))
}

/// Builds the benchmark and runs it.
pub(crate) fn bench(options: &[String]) -> Result<()> {
    let built = build()?;
    start(Command::new(&built[1]).args(options))
}

/// Where cargo put the programs and the command, and this program, which compares with references.
fn build() -> Result<Vec<PathBuf>> {
    let packages = ["build", "--release", "-p", "orlop-cuda", "-p", "orlop-cli", "--examples", "--bins"];
    cargo::run(cargo::cargo(&packages).args(["--features", "orlop-cli/cuda"]))?;
    let examples = cargo::target().join("release").join("examples");
    let program = |name: &str| examples.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let own = std::env::current_exe().context("finding this program")?;
    Ok(PROGRAMS.iter().map(|name| program(name)).chain([cargo::orlop(), own]).collect())
}

fn copy(built: &[PathBuf], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for program in built {
        let name = program.file_name().unwrap_or_default();
        fs::copy(program, folder.join(name)).with_context(|| format!("copying {}", program.display()))?;
        println!("{}", folder.join(name).display());
    }
    Ok(())
}

fn start(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("starting {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}
