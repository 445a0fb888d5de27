//! `orlop plan`: memory plans of models, graphs and lists of buffers.

mod added_steps;
mod arguments;
mod clock;
mod diff;
mod fit;
mod graph_picture;
mod graphs;
mod model;
mod pictures;
mod problem;
mod trade_offs;

pub(crate) use arguments::PlanArguments;

use self::model::PlannedModel;
use crate::failure::Failure;
use crate::graph_file;
use crate::input::{Input, Kind};
use crate::load::model_file;
use crate::problem_file::ProblemFile;

/// Plans a file.
pub(crate) fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    if let Some(preset) = &arguments.prediction.preset {
        arguments.given.check(preset, &[Some(Kind::Model)])?;
        return model::run(PlannedModel::preset(preset, arguments)?, arguments);
    }
    let (file, kind) = match &arguments.file {
        Some(file) => (file.clone(), Kind::of(file)?),
        None => (model_file(arguments.model.as_deref())?, Kind::Model),
    };
    let file = file.as_path();
    if let Some(before) = &arguments.pictures.diff {
        return diff::run((before, Kind::of(before)?), (file, kind), arguments);
    }
    arguments.given.check(file.display(), &[Some(kind)])?;
    let input = || Input::read(file, kind);
    match kind {
        Kind::Model => model::run(PlannedModel::open(file, arguments)?, arguments),
        Kind::Problem => problem::run(&ProblemFile::read(&input()?)?, arguments),
        Kind::Graphs => graphs::run(&graphs::chosen(&input()?, arguments)?, arguments),
        Kind::Graph => {
            let input = input()?;
            if diff::is_saved(&input.text) {
                return Err(Failure::BadInput(format!(
                    "{0} is a saved plan; `orlop plan FILE --diff {0}` compares it with a plan of FILE",
                    input.name
                )));
            }
            graphs::run(&[graph_file::read_own(&input)?], arguments)
        }
    }
}
