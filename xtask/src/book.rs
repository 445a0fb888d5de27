//! `cargo xtask book`.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::{target, workspace};
use crate::packages::runs;

/// Builds the book in `docs` into cargo's target folder.
pub(crate) fn run() -> Result<()> {
    ensure!(runs("mdbook", "--version"), "mdBook is not installed; `cargo install mdbook` installs it");
    let folder = target().join("book");
    let status = Command::new("mdbook")
        .args(["build", "--dest-dir"])
        .arg(&folder)
        .arg(workspace().join("docs"))
        .status()
        .context("starting mdbook")?;
    ensure!(status.success(), "mdbook ended with {status}");
    println!("{}", folder.join("index.html").display());
    Ok(())
}
