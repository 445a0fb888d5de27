//! `orlop inspect`.

mod json;
mod text;

use std::error::Error as _;
use std::path::Path;

use orlop::gguf::{Error, GgufFile};

use crate::arguments::InspectArguments;
use crate::failure::Failure;
use crate::load::model_file;
use crate::printer::Printer;

/// Says what is in a model file.
pub(crate) fn run(arguments: &InspectArguments) -> Result<(), Failure> {
    let file = model_file(arguments.file.as_deref().or(arguments.model.as_deref()))?;
    let model = GgufFile::open(&file).map_err(|error| refused(&file, &error))?;
    let mut printer = Printer::new();
    if arguments.json {
        return printer.json(&json::Report { model: &model, full: arguments.full });
    }
    printer.line(text::Summary { path: &file, model: &model, full: arguments.full })?;
    if arguments.tensors {
        printer.line(text::Listing(&model))?;
    }
    Ok(())
}

/// Why a file is no model, and what to do about it.
pub(crate) fn refused(path: &Path, error: &Error) -> Failure {
    let mut what = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        what = format!("{what}: {error}");
        source = error.source();
    }
    let (names_itself, advice) = match error {
        Error::Open { .. } => (true, "check the path"),
        Error::MissingPart { .. } => (true, "put it beside the others"),
        Error::SplitName { .. } => (true, "give it that name again"),
        Error::SplitMismatch { .. } => (true, "check that all parts are of one model"),
        Error::SplitTensors { .. } => (false, "check that all parts are of one model"),
        Error::NotGguf(_) => (false, "give a .gguf file"),
        Error::Version(_)
        | Error::BigEndian { .. }
        | Error::MissingKey(_)
        | Error::WrongType { .. }
        | Error::IntegerRange { .. } => (false, "convert the model anew"),
        Error::UnknownElementType { .. } => (false, "the file may be newer than this program, or damaged"),
        _ => (false, "the file is damaged or cut short, get it anew"),
    };
    let path = path.display();
    Failure::BadInput(if names_itself {
        format!("{what}; {advice}")
    } else {
        format!("{path}: {what}; {advice}")
    })
}
