//! `orlop logits`: the logits of given tokens.

use clap::Args;
use orlop::llm::{LogitsRow, Outputs, Part, SequenceId, Wanted};
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{failure, load};
use crate::model_arguments::ModelArguments;
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop logits --tokens 504,3575,282,4649,314 --last --top 5";

/// Arguments of `orlop logits`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogitsArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Token ids; no special tokens are added.
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    tokens: Vec<u32>,
    /// Print only the logits of the last token.
    #[arg(long)]
    last: bool,
    /// Print only the K largest logits of each token, as [id, logit].
    #[arg(long, value_name = "K")]
    top: Option<usize>,
    /// Print one JSON object: `tokens` and `logits`.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    tokens: Vec<u32>,
    logits: Vec<Row>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Row {
    All(Vec<f32>),
    Top(Vec<(usize, f32)>),
}

/// Prints logits.
pub(crate) fn run(arguments: &LogitsArguments) -> Result<(), Failure> {
    let outputs = if arguments.last { Outputs::Last } else { Outputs::All };
    let mut model = arguments.model.clone();
    if model.settings.context == 0 {
        model.settings.context = arguments.tokens.len() as u64;
    }
    let mut loaded = load(&model, outputs)?;
    let mut rows = Vec::new();
    let wanted = if arguments.last { Wanted::Last } else { Wanted::All };
    let part = Part { sequence: SequenceId::FIRST, tokens: &arguments.tokens, wanted };
    let fed = loaded.engine.feed_parts(&[part], &mut |mut run| {
        rows.extend(run.logits()?.map(|LogitsRow { logits, .. }| match arguments.top {
            Some(count) => Row::Top(largest(logits, count)),
            None => Row::All(logits.to_vec()),
        }));
        Ok(())
    });
    fed.map_err(failure)?;
    let mut printer = Printer::new();
    if arguments.json {
        return printer.json(&Answer { tokens: arguments.tokens.clone(), logits: rows });
    }
    for row in rows {
        let line: Vec<String> = match row {
            Row::All(logits) => logits.iter().map(f32::to_string).collect(),
            Row::Top(pairs) => pairs.iter().map(|(id, logit)| format!("{id}:{logit}")).collect(),
        };
        printer.line(line.join(" "))?;
    }
    Ok(())
}

fn largest(logits: &[f32], count: usize) -> Vec<(usize, f32)> {
    let mut pairs: Vec<(usize, f32)> = logits.iter().copied().enumerate().collect();
    pairs.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    pairs.truncate(count);
    pairs
}
