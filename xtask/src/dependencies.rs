//! Checks of the dependencies: licenses, duplicate versions and sources, by
//! [cargo-deny](https://embarkstudios.github.io/cargo-deny/) and `deny.toml`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{cargo, packages};

const VERSION: &str = "0.20.2";

/// Fails if a dependency breaks a rule of `deny.toml`. Installs cargo-deny into cargo's target folder if it is missing,
/// which takes two to three minutes of CPU time.
pub(crate) fn check() -> Result<()> {
    let root = cargo::target().join("tools");
    let own = root.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    let program = if packages::runs("cargo-deny", "--version") {
        PathBuf::from("cargo-deny")
    } else {
        if !own.exists() {
            let mut command = cargo::cargo(&["install", "cargo-deny", "--locked", "--version", VERSION]);
            cargo::run(command.env("CARGO_TARGET_DIR", cargo::target()).arg("--root").arg(&root))?;
        }
        own
    };
    let mut command = Command::new(program);
    cargo::run(command.current_dir(cargo::workspace()).args(["check", "licenses", "bans", "sources"]))
}
