//! Grammars: what an answer has to match. Masks of the tokens that may come next are made with
//! [llguidance](https://github.com/guidance-ai/llguidance).

mod bounds;
mod calls;
mod closed;
mod compiler;
mod error;
mod gbnf;
mod matcher;
mod tokens;

pub use calls::ToolChoice;
pub use compiler::GrammarCompiler;
pub use error::GrammarError;
pub use matcher::GrammarMatcher;

use serde_json::Value as Json;

/// What an answer, or a part of it, has to match.
///
/// ```
/// use std::sync::Arc;
/// use orlop_gguf::{Array, Metadata, Strings};
/// use orlop_llm::{Grammar, GrammarCompiler, Tokenizer};
///
/// # let mut metadata = Metadata::new();
/// # metadata.set("tokenizer.ggml.model", "gpt2")?;
/// # metadata.set("tokenizer.ggml.pre", "gpt-2")?;
/// # let tokens: Strings = ["a", "b", "c", "<end>"].into_iter().collect();
/// # metadata.set("tokenizer.ggml.tokens", Array::from(tokens))?;
/// # metadata.set("tokenizer.ggml.token_type", Array::I32(vec![1, 1, 1, 3]))?;
/// # metadata.set("tokenizer.ggml.merges", Array::from(Strings::default()))?;
/// # metadata.set("tokenizer.ggml.eos_token_id", 3u32)?;
/// let tokenizer = Arc::new(Tokenizer::from_metadata(&metadata)?); // of a model with the tokens a, b, c and <end>
/// let compiler = GrammarCompiler::new(tokenizer)?;
/// let mut matcher = compiler.compile(&Grammar::Regex("a[bc]*".into()))?;
/// assert_eq!(matcher.mask()?.unwrap().iter().collect::<Vec<_>>(), [0]);
/// matcher.accept(0)?;
/// assert_eq!(matcher.mask()?.unwrap().iter().collect::<Vec<_>>(), [1, 2, 3]);
/// assert!(matcher.accept(0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Grammar {
    /// JSON that is valid for a [schema](https://json-schema.org/draft/2020-12). Properties come in the schema's order. An
    /// object whose properties are listed has no others, unless `additionalProperties` allows them or schemas are combined.
    /// `oneOf` counts as `anyOf` where its options may overlap; references are to the schema itself (`#/…`). A keyword
    /// that is not supported is an error, and formats are checked where they are known.
    JsonSchema(Json),
    /// A JSON object.
    JsonObject,
    /// A regular expression in the syntax of the [regex](https://docs.rs/regex) crate, without look-around. All of the text
    /// has to match.
    Regex(String),
    /// A grammar in [Lark's syntax](https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md), from the rule `start`.
    Lark(String),
    /// A grammar in llama.cpp's syntax, from the rule `root`.
    Gbnf(String),
}

impl Grammar {
    /// A grammar in either syntax: GBNF defines rules with `::=`, Lark with `:`.
    ///
    /// ```
    /// use orlop_llm::Grammar;
    ///
    /// assert_eq!(Grammar::of_text("root ::= \"a\""), Grammar::Gbnf("root ::= \"a\"".into()));
    /// assert_eq!(Grammar::of_text("start: \"::=\""), Grammar::Lark("start: \"::=\"".into()));
    /// ```
    pub fn of_text(text: &str) -> Grammar {
        match gbnf::defines_root(text) {
            true => Grammar::Gbnf(text.to_owned()),
            false => Grammar::Lark(text.to_owned()),
        }
    }

    /// What it is called in errors.
    fn kind(&self) -> &'static str {
        match self {
            Grammar::JsonSchema(_) | Grammar::JsonObject => "JSON schema",
            Grammar::Regex(_) => "regular expression",
            Grammar::Lark(_) => "Lark grammar",
            Grammar::Gbnf(_) => "GBNF grammar",
        }
    }
}
