//! Calls of cargo, in the workspace's folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| workspace().join("target"))
}

/// A call of the cargo that called us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).args(arguments);
    command
}

/// Says what is called, and calls it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let line = format!("cargo {}", words.join(" "));
    eprintln!("xtask: {line}");
    let status = command.status().with_context(|| format!("starting {line}"))?;
    if !status.success() {
        bail!("{line} ended with {status}");
    }
    Ok(())
}

/// Where cargo puts the command.
pub(crate) fn orlop() -> PathBuf {
    target().join("release").join(format!("orlop{}", std::env::consts::EXE_SUFFIX))
}
