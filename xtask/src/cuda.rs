//! `cargo xtask test --on cuda` and `cargo xtask bench cuda`: programs that run on machines with an NVIDIA GPU, without Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cargo;
use crate::cargo::Artifact;

/// How to run the tests on a GPU.
#[derive(Debug)]
pub(crate) struct GpuTests {
    /// Put the programs into this folder and run nothing.
    pub(crate) build: Option<PathBuf>,
    /// Run under compute-sanitizer, with this tool.
    pub(crate) sanitizer: Option<String>,
    /// Parts of the names of the tests to run; without any, all.
    pub(crate) tests: Vec<String>,
}

/// Builds the tests, and runs or packs them.
pub(crate) fn test(arguments: &GpuTests) -> Result<()> {
    let programs = build()?;
    if let Some(folder) = &arguments.build {
        return copy(&programs, folder);
    }
    let mut command = match &arguments.sanitizer {
        Some(tool) => {
            let mut command = Command::new("compute-sanitizer");
            command.args(["--tool", tool, "--error-exitcode", "1"]).arg(&programs.tests);
            command
        }
        None => Command::new(&programs.tests),
    };
    start(command.arg("--required").args(&arguments.tests))
}

/// Builds the benchmark and runs it.
pub(crate) fn bench(options: &[String]) -> Result<()> {
    start(Command::new(build()?.bench).args(options))
}

/// The built programs.
struct Programs {
    tests: PathBuf,
    bench: PathBuf,
    orlop: PathBuf,
}

fn build() -> Result<Programs> {
    let mut command = cargo::cargo(&["build", "--release", "-p", "orlop-cuda", "--test", "gpu"]);
    command.args(["--bench", "kernels", "-p", "orlop-cli", "--bin", "orlop", "--features", "orlop-cli/cuda"]);
    let artifacts = cargo::artifacts(command.stderr(Stdio::inherit()))?;
    let find = |kind: &str, name: &str| {
        let found = artifacts.iter().find(|artifact| artifact.kind == kind && artifact.name == name);
        found
            .map(|Artifact { binary, .. }| binary.clone())
            .with_context(|| format!("cargo built no {kind} {name}"))
    };
    Ok(Programs {
        tests: find("test", "gpu")?,
        bench: find("bench", "kernels")?,
        orlop: find("bin", "orlop")?,
    })
}

/// Copies the programs into a folder, with this one, which compares with references.
fn copy(programs: &Programs, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let own = std::env::current_exe().context("finding this program")?;
    let Programs { tests, bench, orlop } = programs;
    for (program, name) in [(tests, "cuda-tests"), (bench, "cuda-bench"), (orlop, "orlop"), (&own, "xtask")] {
        let target = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        fs::copy(program, &target).with_context(|| format!("copying {}", program.display()))?;
        println!("{}", target.display());
    }
    Ok(())
}

fn start(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("starting {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}
