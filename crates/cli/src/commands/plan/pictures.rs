//! `--svg`, `--html`, `--map`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use orlop::view::{Error, MapStyle, Picture, block_map, page, svg};

use crate::failure::Failure;
use crate::output::Output;
use crate::printer::Printer;

/// What to draw, and where to.
#[derive(Debug, Args)]
pub(crate) struct PictureArguments {
    /// Draw the plan, time against address, as one page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Draw the plan as SVG.
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Print the plan as a map: lines are addresses, columns steps.
    #[arg(long, conflicts_with = "json")]
    pub(super) map: bool,
    /// Say what is different from the plan of OTHER: a file as FILE may be, or what --save wrote.
    #[arg(long, value_name = "OTHER", conflicts_with_all = ["save", "output", "capacity", "explain", "map", "svg"])]
    pub(super) diff: Option<PathBuf>,
    /// Of a file of graphs, only those whose labels hold TEXT.
    #[arg(long, value_name = "TEXT")]
    pub(super) graph: Option<String>,
}

/// Lines of a map's largest chunk.
const MAP_LINES: usize = 16;

impl PictureArguments {
    /// Whether any picture was asked for.
    pub(super) fn are_wanted(&self) -> bool {
        self.html.is_some() || self.svg.is_some() || self.map
    }

    /// Writes and prints what was asked for: pages have all pictures, drawings and maps those of each graph's plan.
    pub(super) fn deliver(&self, printer: &mut Printer, drawn: &Drawn) -> Result<(), Failure> {
        if let Some(path) = &self.html {
            let all = [&drawn.plans[..], &drawn.others].concat();
            write(path, &page(&all).map_err(refused)?)?;
        }
        if let Some(path) = &self.svg {
            if let [first, second, ..] = &drawn.plans[..] {
                return Err(Failure::BadInput(format!(
                    "a drawing is of one graph, but there is `{}` beside `{}`; choose one with --graph",
                    second.title, first.title
                )));
            }
            drawn.plans.iter().try_for_each(|picture| write(path, &svg(picture).map_err(refused)?))?;
        }
        for picture in drawn.plans.iter().filter(|_| self.map) {
            printer.line(format_args!("\n{}", picture.title))?;
            let text = block_map(picture, map_style()).map_err(refused)?;
            printer.line(text.trim_end())?;
        }
        Ok(())
    }
}

/// Pictures of plans.
#[derive(Debug, Default)]
pub(super) struct Drawn {
    /// One for each graph.
    pub(super) plans: Vec<Picture>,
    /// What else there is to see: another engine's plan, another shape of the same model.
    pub(super) others: Vec<Picture>,
}

/// What the terminal can show.
fn map_style() -> MapStyle {
    let width = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(100);
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    MapStyle { width, height: MAP_LINES, colour }
}

/// What cannot be drawn.
pub(super) fn refused(error: Error) -> Failure {
    match error {
        Error::Empty { .. } => Failure::BadInput(format!("{error}; give a graph with tensors in it")),
        error => Failure::our_mistake(error),
    }
}

/// Writes a file as a whole.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut output = Output::create(path)?;
    output.write(text)?;
    output.finish()
}
