//! `orlop man`: manual pages.

use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::Man;

use crate::arguments::definition;
use crate::failure::Failure;
use crate::output::Output;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop man > orlop.1
  orlop man run > orlop-run.1
  orlop man --output .

`orlop man run | man -l -` shows a page.";

/// Arguments of `orlop man`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArguments {
    /// Print the page of this command [default: orlop itself]
    command: Option<String>,
    /// Write all pages to a folder.
    #[arg(long, short, value_name = "FOLDER", conflicts_with = "command")]
    output: Option<PathBuf>,
}

/// Prints a manual page, or writes all of them.
pub(crate) fn run(arguments: &ManArguments) -> Result<(), Failure> {
    // Building fills in the display names, which name the pages.
    let mut program = definition();
    program.build();
    let commands = || program.get_subcommands().filter(|command| command.get_name() != "help");
    if let Some(folder) = &arguments.output {
        for command in std::iter::once(&program).chain(commands()) {
            let (name, page) = page(command)?;
            let mut file = Output::create(&folder.join(format!("{name}.1")))?;
            file.write(&page)?;
            file.finish()?;
        }
        return Ok(());
    }
    let command = match &arguments.command {
        None => &program,
        Some(name) => commands().find(|command| command.get_name() == name).ok_or_else(|| {
            let names: Vec<&str> = commands().map(Command::get_name).collect();
            Failure::BadInput(format!("unknown command `{name}`; commands: {}", names.join(", ")))
        })?,
    };
    Printer::new().line(page(command)?.1.trim_end())
}

/// The name and text of a page.
fn page(command: &Command) -> Result<(String, String), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    let written = Man::new(command.clone()).render(&mut page);
    written.map_err(|error| Failure::Other(error.into()))?;
    Ok((name, String::from_utf8_lossy(&page).into_owned()))
}
