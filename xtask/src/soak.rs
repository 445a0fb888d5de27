//! `cargo xtask soak`.

use anyhow::{Result, ensure};

use crate::cargo;

/// Runs the soak of `orlop-llm` for some minutes: random models, machines, calls, cancels and faults.
pub(crate) fn run(minutes: u64) -> Result<()> {
    ensure!(minutes > 0, "a soak takes at least a minute");
    let mut command =
        cargo::cargo(&["test", "--workspace", "--all-features", "--test", "soak", "--", "--nocapture"]);
    cargo::run(command.env("ORLOP_SOAK_MINUTES", minutes.to_string()))
}
