//! Checks that the crates can be packaged for a registry.

use anyhow::Result;

use crate::cargo;

/// Crates that stay in the repository.
const PRIVATE: [&str; 8] = [
    "--exclude",
    "xtask",
    "--exclude",
    "orlop-testkit",
    "--exclude",
    "orlop-python",
    "--exclude",
    "orlop-capi",
];

/// Packages every public crate, without building the packages.
pub(crate) fn check() -> Result<()> {
    package(&["--no-verify", "--quiet"])
}

/// Packages every public crate, and builds each from its package alone.
pub(crate) fn verify() -> Result<()> {
    package(&[])
}

fn package(options: &[&str]) -> Result<()> {
    let mut command = cargo::cargo(&["package", "--workspace", "--allow-dirty"]);
    cargo::run(command.args(PRIVATE).args(options))
}
