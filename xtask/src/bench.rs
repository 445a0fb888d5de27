//! `cargo xtask bench`.

use anyhow::Result;

use crate::cargo;

/// Runs every benchmark of the workspace.
pub(crate) fn run(options: &[String]) -> Result<()> {
    // The pattern leaves out the test harnesses of libraries, which know no options of benchmarks.
    let mut command = cargo::cargo(&["bench", "--workspace", "--bench", "*", "--"]);
    cargo::run(command.args(options))
}
