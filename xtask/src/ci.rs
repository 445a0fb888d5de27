//! `cargo xtask ci`.

use anyhow::Result;

use crate::{cargo, dependencies, publish, test};

/// All checks required before a merge, the quickest first.
pub(crate) fn run() -> Result<()> {
    cargo::run(&mut cargo::cargo(&["fmt", "--all", "--check"]))?;
    let lints = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    cargo::run(&mut cargo::cargo(&lints))?;
    let documentation = ["doc", "--workspace", "--all-features", "--no-deps"];
    cargo::run(cargo::cargo(&documentation).env("RUSTDOCFLAGS", "-D warnings"))?;
    dependencies::check()?;
    publish::check()?;
    test::all(&[])
}
