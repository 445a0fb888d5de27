//! `orlop completions`: shell completion scripts.

use clap::Args;
use clap_complete::{Shell, generate};

use crate::arguments::definition;
use crate::failure::Failure;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop completions bash > orlop.bash
  orlop completions zsh > _orlop
  orlop completions fish > orlop.fish

Install the file as ~/.local/share/bash-completion/completions/orlop (bash), in a folder of $fpath (zsh), or in
~/.config/fish/completions (fish).";

/// Arguments of `orlop completions`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Prints a shell's completions.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut definition(), "orlop", &mut script);
    Printer::new().line(String::from_utf8_lossy(&script).trim_end())
}
