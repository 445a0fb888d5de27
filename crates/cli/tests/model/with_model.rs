use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::Run;

/// The cache folder of the tests.
fn cache() -> PathBuf {
    let cache = std::env::var_os("ORLOP_CACHE").map(PathBuf::from);
    cache.unwrap_or_else(|| concat!(env!("CARGO_TARGET_TMPDIR"), "/cache").into())
}

/// A program with the tests' cache folder.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("ORLOP_CACHE", cache());
    command
}

/// The command.
pub(crate) fn command() -> Command {
    program(env!("CARGO_BIN_EXE_orlop"))
}

/// The default model's file, downloaded if necessary.
pub(crate) fn default_model() -> String {
    json(&["tokenize", "--json", "a"]);
    let mut files = cache().read_dir().unwrap().map(|entry| entry.unwrap().path());
    files
        .find(|path| path.extension().is_some_and(|extension| extension == "gguf"))
        .unwrap()
        .display()
        .to_string()
}

/// Runs the command.
pub(crate) fn orlop(arguments: &[&str]) -> Run {
    let output = command().args(arguments).stdin(Stdio::null()).output().unwrap();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The JSON that a command prints.
pub(crate) fn json(arguments: &[&str]) -> Value {
    let run = orlop(arguments);
    assert_eq!(run.status, Some(0), "{arguments:?}: {run:?}");
    serde_json::from_str(&run.stdout).unwrap()
}

/// Prompts, their token ids, and the ten largest logits behind them in exact arithmetic.
pub(crate) fn prompts() -> Vec<Value> {
    let lines = include_str!("../fixtures/smollm2.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Ids of tokens as an argument.
pub(crate) fn ids(tokens: &Value) -> String {
    tokens.as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join(",")
}
