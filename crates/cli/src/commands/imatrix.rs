//! `orlop imatrix`: importance data of a model, from a text.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use orlop::llm::{Outputs, PerplexityOptions, Special, perplexity};
use serde::Serialize;

use crate::commands::perplexity::CHUNK;
use crate::commands::tokenize::read;
use crate::failure::Failure;
use crate::load::{failure, load_for_importance, tokenizer};
use crate::model_arguments::ModelArguments;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop man devices > page.txt
  orlop imatrix -f page.txt -o page.imatrix.gguf -c 128";

/// Arguments of `orlop imatrix`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImatrixArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Text file.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// File to write, which `orlop quantize --imatrix` and llama.cpp read.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print one JSON object: `matrices`, `chunks`, `perplexity`.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    matrices: usize,
    chunks: usize,
    perplexity: f64,
}

/// Runs a text through a model, and writes how large the inputs of each matrix were.
pub(crate) fn run(arguments: &ImatrixArguments) -> Result<(), Failure> {
    let text = read(&arguments.file)?;
    let mut model = arguments.model.clone();
    let chunk = match model.settings.context {
        0 => CHUNK,
        context => usize::try_from(context).unwrap_or(CHUNK),
    };
    (model.settings.context, model.settings.batch) = (chunk as u64, chunk as u64);
    model.settings.ubatch = chunk as u64;
    let mut loaded = load_for_importance(&model, Outputs::All)?;
    let tokenizer = tokenizer(&loaded.model)?;
    let bos = tokenizer.added_bos();
    let tokens: Vec<u32> = bos.into_iter().chain(tokenizer.encode(&text, Special::AsText)).collect();
    let watched = std::io::stderr().is_terminal();
    let result =
        perplexity(&mut loaded.engine, &tokens, PerplexityOptions { chunk, bos }, &mut |so_far, chunks| {
            if watched {
                eprint!("\r{} of {chunks} ", so_far.chunks);
            }
        });
    if watched {
        eprintln!();
    }
    let result = result.map_err(failure)?;
    let sums = loaded.engine.importance();
    let dataset = arguments.file.display().to_string();
    let (chunks, size) = (result.chunks as u32, chunk as u32);
    sums.write(&arguments.output, &dataset, chunks, size).map_err(|error| {
        Failure::BadInput(format!("{}: {error}; use another path (-o)", arguments.output.display()))
    })?;
    let (matrices, chunks, perplexity) = (sums.matrices(), result.chunks, result.value);
    let mut printer = Printer::new();
    match arguments.json {
        true => printer.json(&Answer { matrices, chunks, perplexity }),
        false => printer.line(format!(
            "{}: {matrices} matrices, from {chunks} chunks of {chunk} tokens",
            arguments.output.display()
        )),
    }
}
