//! `orlop inspect`: metadata and tensors of a model file.

mod json;
mod text;
mod types;

use std::error::Error as _;
use std::path::{Path, PathBuf};

use clap::Args;
use orlop::gguf::{Error, GgufFile};
use orlop::llm::Architecture;
use serde::Serialize;

use self::types::TypeSums;
use crate::failure::Failure;
use crate::load::model_file;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop inspect
  orlop synth random.gguf --preset smollm2-135m
  orlop inspect random.gguf
  orlop inspect random.gguf --tensors
  orlop inspect random.gguf --types
  orlop inspect --architectures

Exit status: 0 success; 2 invalid arguments or file; 1 other errors.";

/// Arguments of `orlop inspect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InspectArguments {
    /// Model file (.gguf), or any part of a split model [default: SmolLM2-135M-Instruct]
    file: Option<PathBuf>,
    /// Model file, as in other commands.
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    model: Option<PathBuf>,
    /// List the architectures that can be run, with well-known models of each.
    #[arg(long, conflicts_with_all = ["file", "model", "tensors", "types", "full"])]
    architectures: bool,
    /// Print one JSON object: `version`, `metadata`, `tensors`; with --architectures, a list of `name` and `models`; with
    /// --types, a list of `type`, `tensors`, `parameters` and `bytes`.
    #[arg(long)]
    json: bool,
    /// List every tensor.
    #[arg(long)]
    tensors: bool,
    /// Print only how many tensors, parameters and bytes each element type has.
    #[arg(long, conflicts_with_all = ["tensors", "full"])]
    types: bool,
    /// Print long arrays and strings in full.
    #[arg(long)]
    full: bool,
}

/// Prints the contents of a model file.
pub(crate) fn run(arguments: &InspectArguments) -> Result<(), Failure> {
    if arguments.architectures {
        return list_architectures(arguments.json);
    }
    let file = model_file(arguments.file.as_deref().or(arguments.model.as_deref()))?;
    let model = GgufFile::open(&file).map_err(|error| refused(&file, &error))?;
    let mut printer = Printer::new();
    if arguments.types {
        let sums = TypeSums::of(&model);
        return if arguments.json { printer.json(&sums.each) } else { printer.line(sums) };
    }
    if arguments.json {
        return printer.json(&json::Report { model: &model, full: arguments.full });
    }
    printer.line(text::Summary { path: &file, model: &model, full: arguments.full })?;
    if arguments.tensors {
        printer.line(text::Listing(&model))?;
    }
    Ok(())
}

fn list_architectures(json: bool) -> Result<(), Failure> {
    let mut printer = Printer::new();
    let known = Architecture::ALL
        .iter()
        .map(|known| KnownArchitecture { name: known.name(), models: known.models() });
    if json {
        return printer.json(&known.collect::<Vec<_>>());
    }
    let width = Architecture::ALL.iter().map(|known| known.name().len()).max().unwrap_or(0);
    for KnownArchitecture { name, models } in known {
        printer.line(format_args!("{name:width$}  {models}"))?;
    }
    Ok(())
}

/// A row of `--architectures`.
#[derive(Serialize)]
struct KnownArchitecture {
    name: &'static str,
    models: &'static str,
}

/// The failure for a file that is not a valid model, with advice.
pub(crate) fn refused(path: &Path, error: &Error) -> Failure {
    let mut what = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        what = format!("{what}: {error}");
        source = error.source();
    }
    let (names_itself, advice) = match error {
        Error::Open { .. } => (true, "check the path"),
        Error::MissingPart { .. } => (true, "put it beside the other parts"),
        Error::SplitName { .. } => (true, "restore that name"),
        Error::SplitMismatch { .. } => (true, "check that all parts belong to one model"),
        Error::SplitTensors { .. } => (false, "check that all parts belong to one model"),
        Error::NotGguf(_) => (false, "use a .gguf file"),
        Error::Version(_)
        | Error::BigEndian { .. }
        | Error::MissingKey(_)
        | Error::WrongType { .. }
        | Error::IntegerRange { .. } => (false, "convert the model again"),
        Error::UnknownElementType { .. } => (false, "the file may be newer than this program, or damaged"),
        _ => (false, "the file is damaged or truncated, get a new copy"),
    };
    let path = path.display();
    Failure::BadInput(if names_itself {
        format!("{what}; {advice}")
    } else {
        format!("{path}: {what}; {advice}")
    })
}
