//! Cargo's subcommands of other projects, in fixed versions.

use std::path::PathBuf;

use anyhow::Result;

use crate::{cargo, packages};

/// A subcommand on crates.io.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// The program: the system's, or one in cargo's target folder, where it is installed if it is missing. That takes one to
    /// two minutes of CPU time.
    pub(crate) fn program(self) -> Result<PathBuf> {
        if packages::runs(self.name, "--version") {
            return Ok(self.name.into());
        }
        self.own()
    }

    /// The program in this version.
    pub(crate) fn own(self) -> Result<PathBuf> {
        let root = cargo::target().join("tools");
        let program = root.join("bin").join(format!("{}{}", self.name, std::env::consts::EXE_SUFFIX));
        if !program.exists() {
            // They take longer to build than to run.
            let quick = ["install", "--debug", "--config", "profile.dev.debug=0"];
            let mut command =
                cargo::cargo(&[&quick[..], &[self.name, "--locked", "--version", self.version]].concat());
            cargo::run(command.env("CARGO_TARGET_DIR", cargo::target()).arg("--root").arg(&root))?;
        }
        Ok(program)
    }
}
