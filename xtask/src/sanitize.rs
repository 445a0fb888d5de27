//! `cargo xtask sanitize`: tests of the crates that reach memory through pointers, while tools watch them do it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{cargo, packages};

const PACKAGES: [&str; 6] =
    ["--package", "orlop-cpu", "--package", "orlop-backend", "--package", "orlop-ggml"];

/// Left out under valgrind. The first two would take minutes each, and the conformance set is in another test as
/// well, which runs it with each set of instructions on two threads. Asking for absurd sizes, as the last does, is
/// an error to valgrind.
const NOT_UNDER_VALGRIND: [&str; 3] =
    ["conformance::every_case", "conformance::the_ops_page", "host_memory::absurd_sizes"];

/// Who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tool {
    /// Finds reads of bytes that nobody wrote, too. Has no AVX-512, so devices fall back to AVX2 and less.
    Valgrind,
    /// Runs on the processor itself, with all of its instructions.
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
    // Built anew with other flags, so in a folder of its own.
    let folder = cargo::target().join("sanitize");
    let mut command = cargo::cargo(&["test", "--tests", "--no-fail-fast", "--target", &target]);
    command.args(PACKAGES).env("CARGO_TARGET_DIR", folder);
    // Tests ask for more memory than there is; that is their right to be refused, and no mistake.
    command.env("ASAN_OPTIONS", "allocator_may_return_null=1");
    // The flag is one of the nightly compiler's; this variable makes every compiler take it.
    cargo::run(command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address"))
}

fn valgrind() -> Result<()> {
    packages::install(&[("valgrind", &|| packages::runs("valgrind", "--version"))], "`sanitize`")?;
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

/// A test binary, and the folder that it runs in.
#[derive(Debug, PartialEq, Eq)]
struct Test {
    binary: PathBuf,
    folder: PathBuf,
}

/// Builds the tests, and asks cargo where they are.
fn built_tests() -> Result<Vec<Test>> {
    let mut command = cargo::cargo(&["test", "--tests", "--no-run", "--message-format", "json"]);
    let output = command.args(PACKAGES).stderr(Stdio::inherit()).output().context("starting cargo test")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout).context("reading cargo's messages")?;
    let tests: Vec<Test> = text.lines().filter_map(test_of).collect();
    ensure!(!tests.is_empty(), "cargo names no tests");
    Ok(tests)
}

/// The test binary that a message of cargo's tells of, if it does.
fn test_of(message: &str) -> Option<Test> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let binary = message["executable"].as_str()?.into();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Test { binary, folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_built_tests_name_one() {
        let built = r#"{"reason": "compiler-artifact", "manifest_path": "/a/crates/b/Cargo.toml",
            "profile": {"test": true}, "executable": "/target/debug/deps/b-1"}"#;
        let expected = Test { binary: "/target/debug/deps/b-1".into(), folder: "/a/crates/b".into() };
        assert_eq!(test_of(built), Some(expected));
        assert_eq!(test_of(&built.replace("true", "false")), None);
        assert_eq!(test_of(&built.replace("\"/target/debug/deps/b-1\"", "null")), None);
        assert_eq!(test_of(r#"{"reason": "build-finished", "success": true}"#), None);
        assert_eq!(test_of("no message"), None);
    }
}
