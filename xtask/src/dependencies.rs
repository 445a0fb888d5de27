//! Checks of the dependencies: licenses, duplicate versions and sources, by
//! [cargo-deny](https://embarkstudios.github.io/cargo-deny/) and `deny.toml`.

use std::process::Command;

use anyhow::Result;

use crate::cargo;
use crate::tools::Tool;

const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2" };

/// Fails if a dependency breaks a rule of `deny.toml`.
pub(crate) fn check() -> Result<()> {
    let mut command = Command::new(DENY.program()?);
    cargo::run(command.current_dir(cargo::workspace()).args(["check", "licenses", "bans", "sources"]))
}
