//! `orlop rerank`: documents in the order of their scores for a query.

use clap::Args;
use orlop::llm::Pooling;
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{failure, load_embedder};
use crate::model_arguments::ModelArguments;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop rerank -m reranker.gguf \"What is an orlop?\" \"The lowest deck of a ship.\" \"A kind of cheese.\"";

/// Arguments of `orlop rerank`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RerankArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// What is looked for.
    query: String,
    /// Documents.
    #[arg(value_name = "DOCUMENT", required = true)]
    documents: Vec<String>,
    /// Print one JSON array: `index`, counted from 0, and `score` of each document.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    index: usize,
    score: f32,
}

/// Prints documents by their scores, the highest first.
pub(crate) fn run(arguments: &RerankArguments) -> Result<(), Failure> {
    let mut embedder = load_embedder(&arguments.model, Some(Pooling::Rank))?;
    let scores = embedder.rerank(&arguments.query, &arguments.documents).map_err(failure)?;
    let mut answers: Vec<Answer> =
        scores.into_iter().enumerate().map(|(index, score)| Answer { index, score }).collect();
    answers.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut printer = Printer::new();
    if arguments.json {
        return printer.json(&answers);
    }
    for Answer { index, score } in answers {
        printer.line(format!("{score:>9.4}  {}", arguments.documents[index]))?;
    }
    Ok(())
}
