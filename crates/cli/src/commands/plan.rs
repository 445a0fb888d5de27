//! `orlop plan`.

mod clock;
mod graphs;
mod model;
mod problem;

use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::graph_file;
use crate::input::{Input, Kind};
use crate::problem_file::ProblemFile;

/// Plans a file.
pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    if arguments.file.extension().is_some_and(|extension| extension == "gguf") {
        return model::run(arguments);
    }
    let input = Input::read(&arguments.file)?;
    match input.kind {
        Kind::Problem => problem::run(&ProblemFile::read(&input)?, arguments),
        Kind::Graphs => graphs::run(&graph_file::read_lines(&input)?, arguments),
        Kind::Graph => graphs::run(&[graph_file::read_own(&input)?], arguments),
    }
}
