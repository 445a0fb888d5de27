//! `cargo xtask bench python`: speeds through the Python package beside those of the command, alternating. And the package as
//! pip installs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::cargo;
use crate::peers::measure::median;
use crate::peers::process::{ask, say};

/// What to measure.
#[derive(Args)]
pub(crate) struct Python {
    /// Model file (.gguf) [default: SmolLM2-135M-Instruct]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Number of threads.
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Rounds of alternating runs.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Tokens of the prompt.
    #[arg(long, value_name = "N", default_value_t = 512)]
    prompt: usize,
    /// Tokens to generate.
    #[arg(long, value_name = "N", default_value_t = 128)]
    tokens: usize,
}

/// Measures both, in turns.
pub(crate) fn bench(arguments: &Python) -> Result<()> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli"]))?;
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-python"]))?;
    let tools = cargo::target().join("tools");
    let python = environment(&tools.join("python"), &["numpy"])?;
    let site = tools.join("site");
    let package = site.join("orlop");
    fs::create_dir_all(&package)?;
    for entry in cargo::workspace().join("crates/python/python/orlop").read_dir()? {
        let from = entry?.path();
        if from.is_file() {
            fs::copy(&from, package.join(from.file_name().unwrap_or_default()))?;
        }
    }
    let library = format!("{}_orlop{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    fs::copy(cargo::target().join("release").join(library), package.join("_orlop.abi3.so"))?;

    let numbers = [arguments.threads, arguments.prompt, arguments.tokens].map(|number| number.to_string());
    let [threads, prompt, tokens] = &numbers;
    let model = arguments.model.as_deref().unwrap_or(Path::new(""));
    let by_python = || -> Result<[f64; 2]> {
        let mut command = Command::new(&python);
        command.arg(cargo::workspace().join("xtask/checks/python_speed.py")).arg(model);
        command.args(&numbers).env("PYTHONPATH", &site).stdin(Stdio::null());
        let found = ask(&mut command)?.json()?;
        let speed = |name: &str| number(&found[name]).with_context(|| format!("no {name} in {found}"));
        Ok([speed("prompt")?, speed("generate")?])
    };
    let by_command = || -> Result<[f64; 2]> {
        let mut command = Command::new(cargo::orlop());
        command.args(["bench", "--json", "-r", "1", "-t", threads, "-p", prompt, "-n", tokens]);
        if let Some(model) = &arguments.model {
            command.arg("-m").arg(model);
        }
        let found = ask(command.stdin(Stdio::null()))?.json()?;
        let speed = |test: usize| {
            number(&found[test]["tokens_per_second"]).with_context(|| format!("no test {test} in {found}"))
        };
        Ok([speed(0)?, speed(1)?])
    };
    let (mut command, mut ratios): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
    for round in 0..arguments.rounds {
        // Each goes first as often as the other.
        let first = (round % 2 == 0).then(&by_python).transpose()?;
        let theirs = by_command()?;
        let ours = first.map_or_else(&by_python, Ok)?;
        say(&format!("round {}: python {ours:.1?}, command {theirs:.1?} tokens/s", round + 1));
        for kind in [0, 1] {
            command[kind].push(theirs[kind]);
            ratios[kind].push(ours[kind] / theirs[kind]);
        }
    }
    for (kind, name) in ["prompt", "generation"].into_iter().enumerate() {
        let (speed, ratio) = (median(&command[kind]), median(&ratios[kind]));
        println!(
            "{name}, {threads} threads: {speed:.0} tokens/s by the command, {ratio:.3} × through Python"
        );
    }
    Ok(())
}

fn number(found: &Value) -> Option<f64> {
    found.as_f64().filter(|number| *number > 0.0)
}

/// Installs the package with pip in a fresh virtual environment, and runs the README's lines of Python there.
pub(crate) fn install() -> Result<()> {
    let folder = cargo::target().join("tools/installed");
    let _ = fs::remove_dir_all(&folder);
    let python = environment(&folder, &[])?;
    let workspace = cargo::workspace();
    cargo::run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).arg(&workspace))?;
    let readme = fs::read_to_string(workspace.join("README.md")).context("reading README.md")?;
    let lines = folder.join("readme.txt");
    fs::write(&lines, python_blocks(&readme))?;
    let checked = Command::new(&python)
        .args(["-m", "doctest", "-o", "ELLIPSIS", "-o", "NORMALIZE_WHITESPACE"])
        .arg(&lines)
        .current_dir(&folder)
        .status()
        .context("starting the installed Python")?;
    ensure!(
        checked.success(),
        "the README's lines of Python print something else where pip installed the package"
    );
    Ok(())
}

/// The lines of Python of a document.
fn python_blocks(text: &str) -> String {
    let blocks = text.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.collect::<Vec<_>>().join("\n")
}

/// Python of a virtual environment with some packages.
fn environment(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    let python = folder.join("bin/python");
    if !python.exists() {
        cargo::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    if !packages.is_empty() {
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        cargo::run(Command::new(&python).args(install).args(packages))?;
    }
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_python_are_found_between_others() {
        let text = "a\n```python\n>>> 1\n1\n```\nb\n```sh\nls\n```\n```python\n>>> 2\n2\n```\n";
        assert_eq!(python_blocks(text), ">>> 1\n1\n\n>>> 2\n2\n");
    }
}
