//! `orlop tokenize`: token ids of a text.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use orlop::llm::Special;
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{open, tokenizer};
use crate::printer::Printer;

const EXAMPLES: &str = "Examples:
  orlop tokenize \"The capital of France is\"
  echo \"a<|im_end|>b\" | orlop tokenize --no-special --json";

/// Arguments of `orlop tokenize`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenizeArguments {
    /// Text [default: standard input]
    text: Option<String>,
    /// Read the text from a file.
    #[arg(short, long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Every line is a JSON string with a text; print a line for each.
    #[arg(long)]
    lines: bool,
    /// Model file (.gguf) [default: SmolLM2-135M-Instruct]
    #[arg(short, long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Treat special tokens as text.
    #[arg(long)]
    no_special: bool,
    /// Do not add the model's BOS and EOS tokens.
    #[arg(long)]
    plain: bool,
    /// Print one JSON object: `tokens` and `pieces`, the text of each token.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    tokens: Vec<u32>,
    pieces: Vec<String>,
}

/// Prints token ids.
pub(crate) fn run(arguments: &TokenizeArguments) -> Result<(), Failure> {
    let text = match (&arguments.text, &arguments.file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => read(path)?,
        (None, None) => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| {
                Failure::BadInput(format!(
                    "cannot read standard input: {error}; give the text as an argument or with --file"
                ))
            })?;
            text
        }
    };
    let model = open(arguments.model.as_deref())?;
    let tokenizer = tokenizer(&model)?;
    let special = if arguments.no_special { Special::AsText } else { Special::Parse };
    let mut printer = Printer::new();
    for text in texts(text, arguments.lines)? {
        let tokens =
            if arguments.plain { tokenizer.encode(&text, special) } else { tokenizer.prompt(&text, special) };
        if arguments.json {
            let piece = |id: &u32| String::from_utf8_lossy(tokenizer.decode_special(*id)).into_owned();
            let pieces = tokens.iter().map(piece).collect();
            printer.json(&Answer { tokens, pieces })?;
            continue;
        }
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        printer.line(ids.join(" "))?;
    }
    Ok(())
}

/// The one text, or those in its lines.
fn texts(text: String, lines: bool) -> Result<Vec<String>, Failure> {
    if !lines {
        return Ok(vec![text]);
    }
    let parsed = text.lines().enumerate().map(|(index, line)| {
        serde_json::from_str(line).map_err(|error| {
            let number = index + 1;
            Failure::BadInput(format!("line {number} is not a JSON string ({error}); leave out --lines"))
        })
    });
    parsed.collect()
}

/// The text of a file.
pub(crate) fn read(path: &std::path::Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::BadInput(format!("{}: cannot read the file: {error}; check the path", path.display()))
    })
}
