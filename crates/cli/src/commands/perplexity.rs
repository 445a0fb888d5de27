//! `orlop perplexity`: the perplexity of a text.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use orlop::llm::{Outputs, PerplexityOptions, Special, perplexity};
use serde::Serialize;

use crate::commands::tokenize::read;
use crate::expert_file::ExpertStatsArguments;
use crate::failure::Failure;
use crate::load::{failure, load, tokenizer};
use crate::model_arguments::ModelArguments;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop man devices > page.txt
  orlop perplexity -f page.txt -c 128";

/// Arguments of `orlop perplexity`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PerplexityArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Text file.
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    expert_stats: ExpertStatsArguments,
    /// Print one JSON object: `perplexity`, `error`, `scored`, `chunks`.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    perplexity: f64,
    error: f64,
    scored: usize,
    chunks: usize,
}

/// Default tokens per chunk.
pub(crate) const CHUNK: usize = 512;

/// Scores the second half of each chunk of a text.
pub(crate) fn run(arguments: &PerplexityArguments) -> Result<(), Failure> {
    let text = read(&arguments.file)?;
    let stats = arguments.expert_stats.begin()?;
    let mut model = stats.counting(&arguments.model);
    let chunk = match model.settings.context {
        0 => CHUNK,
        context => usize::try_from(context).unwrap_or(CHUNK),
    };
    model.settings.context = chunk as u64;
    let mut loaded = load(&model, Outputs::All)?;
    stats.check(loaded.model.config())?;
    let tokenizer = tokenizer(&loaded.model)?;
    let bos = tokenizer.added_bos();
    let tokens: Vec<u32> = bos.into_iter().chain(tokenizer.encode(&text, Special::AsText)).collect();
    let options = PerplexityOptions { chunk, bos };
    let watched = std::io::stderr().is_terminal();
    let result = perplexity(&mut loaded.engine, &tokens, options, &mut |so_far, chunks| {
        if watched {
            eprint!("\r{} of {chunks}: {:.4} ", so_far.chunks, so_far.value);
        }
    });
    if watched {
        eprintln!();
    }
    let result = result.map_err(failure)?;
    stats.finish()?;
    let mut printer = Printer::new();
    if arguments.json {
        let (perplexity, error, scored, chunks) = (result.value, result.error, result.scored, result.chunks);
        return printer.json(&Answer { perplexity, error, scored, chunks });
    }
    printer.line(format!("{:.4} ± {:.4} ({} tokens scored)", result.value, result.error, result.scored))
}
