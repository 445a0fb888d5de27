//! `orlop embed`: embeddings of texts.

use clap::{Args, ValueEnum};
use orlop::llm::Pooling;
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{failure, load_embedder};
use crate::model_arguments::ModelArguments;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop embed \"A cat sat on the mat.\" \"A dog lay on the rug.\" --json";

/// Arguments of `orlop embed`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EmbedArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Texts.
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<String>,
    /// What stands for a text [default: what the file says; else the mean in encoders, the last token in others]
    #[arg(long, value_name = "HOW")]
    pooling: Option<PoolingChoice>,
    /// Print one JSON object: `embeddings`, `dimensions`, `tokens`.
    #[arg(long)]
    json: bool,
}

/// What stands for a text.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PoolingChoice {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The last token.
    Last,
}

impl From<PoolingChoice> for Pooling {
    fn from(choice: PoolingChoice) -> Pooling {
        match choice {
            PoolingChoice::Mean => Pooling::Mean,
            PoolingChoice::Cls => Pooling::Cls,
            PoolingChoice::Last => Pooling::Last,
        }
    }
}

#[derive(Serialize)]
struct Answer {
    embeddings: Vec<Vec<f32>>,
    dimensions: u64,
    tokens: usize,
}

/// Prints an embedding of length 1 for each text.
pub(crate) fn run(arguments: &EmbedArguments) -> Result<(), Failure> {
    let mut embedder = load_embedder(&arguments.model, arguments.pooling.map(Pooling::from))?;
    let embeddings = embedder.embed(&arguments.texts).map_err(failure)?;
    let mut printer = Printer::new();
    if arguments.json {
        let (dimensions, tokens) = (embedder.dimensions(), embeddings.tokens);
        return printer.json(&Answer { embeddings: embeddings.rows, dimensions, tokens });
    }
    for row in embeddings.rows {
        let numbers: Vec<String> = row.iter().map(f32::to_string).collect();
        printer.line(numbers.join(" "))?;
    }
    Ok(())
}
