//! `orlop plan`.

mod clock;
mod diff;
mod graph_picture;
mod graphs;
mod model;
mod model_picture;
mod pictures;
mod problem;

pub(crate) use pictures::PictureArguments;

use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::graph_file;
use crate::input::{Input, Kind};
use crate::problem_file::ProblemFile;

/// Plans a file.
pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let file = &arguments.file;
    if let Some(before) = &arguments.pictures.diff {
        return diff::run(before, file, arguments);
    }
    if file.extension().is_some_and(|extension| extension == "gguf") {
        return model::run(file, arguments);
    }
    let input = Input::read(file)?;
    match input.kind {
        Kind::Problem => problem::run(&ProblemFile::read(&input)?, arguments),
        Kind::Graphs => graphs::run(&graphs::chosen(&input, arguments)?, arguments),
        Kind::Graph if diff::is_saved(&input.text) => Err(Failure::BadInput(format!(
            "{0} is a saved plan; see what is in it with `orlop plan FILE --diff {0}`, where FILE is what was planned",
            input.name
        ))),
        Kind::Graph => graphs::run(&[graph_file::read_own(&input)?], arguments),
    }
}
