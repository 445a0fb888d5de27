//! Runs cargo in the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The workspace's folder. Cargo names it when it starts this program; the compiled-in folder may be another clone's if
/// several clones share a target folder.
pub(crate) fn workspace() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().unwrap_or(&here).to_owned()
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| workspace().join("target"))
}

/// A command of the cargo that started this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).args(arguments);
    command
}

/// Prints and runs a command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = Path::new(command.get_program()).file_stem().unwrap_or_default().to_string_lossy();
    let line = format!("{program} {}", words.join(" "));
    eprintln!("xtask: {line}");
    let status = command.status().with_context(|| format!("starting {line}"))?;
    if !status.success() {
        bail!("{line} ended with {status}");
    }
    Ok(())
}

/// The path of the built `orlop` command.
pub(crate) fn orlop() -> PathBuf {
    target().join("release").join(format!("orlop{}", std::env::consts::EXE_SUFFIX))
}

/// A program that cargo built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// `bin`, `test`, `bench` or `lib` (the tests in a library).
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) binary: PathBuf,
    /// The folder of its package, in which tests run.
    pub(crate) folder: PathBuf,
    /// Whether it is built to be tested.
    pub(crate) test: bool,
}

/// The programs of a build. The command is a `cargo build` or `cargo test --no-run`.
pub(crate) fn artifacts(command: &mut Command) -> Result<Vec<Artifact>> {
    let output = command.args(["--message-format", "json-render-diagnostics"]).output();
    let output = output.context("starting cargo")?;
    ensure!(output.status.success(), "cargo ended with {}", output.status);
    let text = String::from_utf8(output.stdout).context("reading cargo's messages")?;
    Ok(text.lines().filter_map(artifact_of).collect())
}

/// The program of a cargo message, if any.
fn artifact_of(message: &str) -> Option<Artifact> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    Some(Artifact {
        kind: message["target"]["kind"][0].as_str()?.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        binary: message["executable"].as_str()?.into(),
        folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        test: message["profile"]["test"] == true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_built_programs_name_one() {
        let built = r#"{"reason": "compiler-artifact", "manifest_path": "/a/crates/b/Cargo.toml",
            "target": {"kind": ["test"], "name": "suite"}, "profile": {"test": true},
            "executable": "/target/debug/deps/b-1"}"#;
        let found = artifact_of(built).expect("an artifact");
        assert_eq!((found.kind.as_str(), found.name.as_str(), found.test), ("test", "suite", true));
        assert_eq!((found.binary, found.folder), ("/target/debug/deps/b-1".into(), "/a/crates/b".into()));
        assert!(artifact_of(&built.replace("true", "false")).is_some_and(|found| !found.test));
        assert_eq!(artifact_of(&built.replace("\"/target/debug/deps/b-1\"", "null")), None);
        assert_eq!(artifact_of(r#"{"reason": "build-finished", "success": true}"#), None);
        assert_eq!(artifact_of("no message"), None);
    }
}
