//! Runs both programs.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The built programs.
pub(super) struct Programs {
    pub(super) ours: PathBuf,
    pub(super) theirs: PathBuf,
}

/// The output and wall time of a program.
pub(crate) struct Answer {
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) wall: Duration,
}

impl Answer {
    pub(crate) fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("reading the answer {:?}", self.stdout))
    }
}

/// A program with arguments and a model.
pub(crate) fn command(program: &Path, words: &[&str], model: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(words).arg("-m").arg(model).stdin(Stdio::null());
    command
}

/// Runs a program to its end.
pub(crate) fn ask(command: &mut Command) -> Result<Answer> {
    let begin = Instant::now();
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let wall = begin.elapsed();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !output.status.success() {
        let said = text(&output.stderr);
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        bail!("{command:?} ended with {}: {}", output.status, last.join(" / "));
    }
    Ok(Answer { stdout: text(&output.stdout), stderr: text(&output.stderr), wall })
}

/// The time until a program prints something or ends.
pub(super) fn first_output(command: &mut Command) -> Result<Duration> {
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let mut out = child.stdout.take().context("standard output is a pipe")?;
    let mut byte = [0];
    let _ = out.read(&mut byte)?;
    let elapsed = begin.elapsed();
    std::io::copy(&mut out, &mut std::io::sink())?;
    let status = child.wait()?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(elapsed)
}

/// Prints progress to standard error.
pub(crate) fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "xtask: {what}");
}
