//! Options of structured output.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use orlop::llm::{Grammar, GrammarCompiler, GrammarMatcher, Tokenizer};

use crate::failure::Failure;
use crate::load::failure;

/// What the output has to match.
#[derive(Clone, Debug, Args)]
pub(crate) struct GrammarArguments {
    /// Structured output: JSON that is valid for the schema in this file (2020-12 and older).
    #[arg(long, value_name = "FILE", group = "output_grammar")]
    json_schema: Option<PathBuf>,
    /// Structured output: text that matches the grammar in this file, in llama.cpp's GBNF (`root ::= …`) or in Lark's
    /// syntax (`start: …`).
    #[arg(long, value_name = "FILE", group = "output_grammar")]
    grammar: Option<PathBuf>,
    /// Structured output: text that matches a regular expression, from its beginning to its end.
    #[arg(long, value_name = "PATTERN", group = "output_grammar")]
    regex: Option<String>,
}

impl GrammarArguments {
    /// The matcher of an answer, if the output has to match something.
    pub(crate) fn matcher(&self, tokenizer: &Arc<Tokenizer>) -> Result<Option<GrammarMatcher>, Failure> {
        let (grammar, place) = match self {
            GrammarArguments { json_schema: Some(path), .. } => {
                let schema = serde_json::from_str(&read(path)?).map_err(|error| {
                    Failure::BadInput(format!("{}: {error}; expected JSON", path.display()))
                })?;
                (Grammar::JsonSchema(schema), format!("{}: ", path.display()))
            }
            GrammarArguments { grammar: Some(path), .. } => {
                (Grammar::of_text(&read(path)?), format!("{}: ", path.display()))
            }
            GrammarArguments { regex: Some(pattern), .. } => {
                (Grammar::Regex(pattern.clone()), "--regex: ".to_owned())
            }
            _ => return Ok(None),
        };
        let compiler = GrammarCompiler::new(tokenizer.clone()).map_err(|error| failure(error.into()))?;
        let matcher = compiler.compile(&grammar);
        matcher.map(Some).map_err(|error| Failure::BadInput(format!("{place}{error}")))
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::BadInput(format!("{}: cannot read the file ({error}); check the path", path.display()))
    })
}
