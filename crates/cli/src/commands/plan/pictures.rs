//! `--svg`, `--html`, `--map` and `--diff`: pictures of plans.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use orlop::view::{Error, MapStyle, Picture, block_map, page, svg};

use crate::failure::Failure;
use crate::output::Output;
use crate::printer::Printer;

/// Options for pictures of any plan.
#[derive(Debug, Args)]
pub(crate) struct PictureArguments {
    /// Write an interactive, self-contained HTML page of the plan: time against address.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the plan as SVG.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Print the plan as a text map: rows are addresses, columns are steps.
    #[arg(long, conflicts_with = "json")]
    pub(super) map: bool,
    /// Show the differences from the plan of OTHER: any file that FILE can be, or a saved plan.
    #[arg(long, value_name = "OTHER", conflicts_with_all = ["save", "output", "capacity", "explain", "map", "svg"])]
    pub(super) diff: Option<PathBuf>,
}

/// Rows of a map's largest chunk.
const MAP_LINES: usize = 16;

impl PictureArguments {
    /// Whether any picture is requested.
    pub(super) fn are_wanted(&self) -> bool {
        self.html.is_some() || self.svg.is_some() || self.map
    }

    /// Writes and prints the requested pictures: a page has all of them, SVG and maps only the plans.
    pub(super) fn deliver(&self, printer: &mut Printer, pictures: &Pictures) -> Result<(), Failure> {
        if let Some(path) = &self.html {
            let all = [&pictures.plans[..], &pictures.others].concat();
            write(path, &page(&all).map_err(refused)?)?;
        }
        if let Some(path) = &self.svg {
            if let [first, second, ..] = &pictures.plans[..] {
                return Err(Failure::BadInput(format!(
                    "--svg needs a single graph, but there are `{}` and `{}`; select one with --graph",
                    first.title, second.title
                )));
            }
            pictures.plans.iter().try_for_each(|picture| write(path, &svg(picture).map_err(refused)?))?;
        }
        for picture in pictures.plans.iter().filter(|_| self.map) {
            printer.line(format_args!("\n{}", picture.title))?;
            let text = block_map(picture, map_style()).map_err(refused)?;
            printer.line(text.trim_end())?;
        }
        Ok(())
    }
}

/// Pictures of plans.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    /// One per graph.
    pub(super) plans: Vec<Picture>,
    /// For comparison: ggml's plan, or another batch size of the same model.
    pub(super) others: Vec<Picture>,
}

/// The style of maps for this terminal.
fn map_style() -> MapStyle {
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100);
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    MapStyle { width, height: MAP_LINES, colour }
}

/// The failure for a plan that cannot be drawn.
pub(super) fn refused(error: Error) -> Failure {
    match error {
        Error::Empty { .. } => Failure::BadInput(format!("{error}; use a graph with tensors")),
        error => Failure::internal_error(error),
    }
}

/// Writes a complete file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut output = Output::create(path)?;
    output.write(text)?;
    output.finish()
}
