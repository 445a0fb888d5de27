//! From grammars to matchers.

use std::fmt;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{Matcher, ParserFactory, regex_to_lark};
use serde_json::{Value as Json, json};

use super::tokens::TokenTree;
use super::{Grammar, GrammarError, GrammarMatcher, bounds, closed, gbnf};
use crate::Tokenizer;

/// States of the lexer that a matcher may make, each of 1 to 2 KiB.
const LEXER_STATES: usize = 20_000;
/// The stack of the thread that compiles: it goes down as deep as the grammar does.
const STACK_BYTES: usize = 128 << 20;

/// Turns grammars into matchers for the tokens of one model. Making it takes a moment, as all tokens are read: once a
/// model.
pub struct GrammarCompiler {
    tokens: Arc<TokenTree>,
    factory: ParserFactory,
}

impl GrammarCompiler {
    /// For a model with this tokenizer.
    ///
    /// # Errors
    /// [`GrammarError::Vocabulary`]: the tokens are too many or too long.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<GrammarCompiler, GrammarError> {
        let tokens = Arc::new(TokenTree::new(tokenizer)?);
        let capabilities =
            InferenceCapabilities { ff_tokens: tokens.has_every_byte, ..InferenceCapabilities::default() };
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&(tokens.clone() as _), capabilities, &slices)
            .map_err(|error| invalid("vocabulary", &error))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.max_lexer_states = LEXER_STATES;
        limits.verbose_errors = false;
        Ok(GrammarCompiler { tokens, factory })
    }

    /// The tokenizer whose tokens matchers are for.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokens.tokenizer
    }

    /// A matcher at the beginning of an answer. Its memory and the time of each step are bounded, whatever the grammar is.
    ///
    /// # Errors
    /// [`GrammarError`]: the grammar is too large, invalid, cannot be matched, or needs too much memory or time.
    pub fn compile(&self, grammar: &Grammar) -> Result<GrammarMatcher, GrammarError> {
        self.compile_from(grammar.kind(), || source(grammar))
    }

    /// As [`GrammarCompiler::compile`], for a grammar of tool calls.
    pub(super) fn compile_lark(&self, lark: String) -> Result<GrammarMatcher, GrammarError> {
        self.compile_from("grammar of tool calls", || Ok(TopLevelGrammar::from_lark(lark)))
    }

    fn compile_from(
        &self,
        kind: &'static str,
        source: impl FnOnce() -> Result<TopLevelGrammar, GrammarError> + Send,
    ) -> Result<GrammarMatcher, GrammarError> {
        let parser = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            let compile = || self.factory.create_parser(source()?).map_err(|error| invalid(kind, &error));
            let compiled = thread.spawn_scoped(scope, compile);
            let compiled = compiled.map_err(|error| GrammarError::NoThread(error.to_string()))?;
            compiled.join().unwrap_or_else(|_| Err(invalid(kind, &"it cannot be compiled")))
        })?;
        Ok(GrammarMatcher::new(self.tokens.clone(), Matcher::new(Ok(parser))))
    }
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

/// A grammar within the bounds, as llguidance reads it.
fn source(grammar: &Grammar) -> Result<TopLevelGrammar, GrammarError> {
    let kind = grammar.kind();
    Ok(match grammar {
        Grammar::JsonSchema(schema) => {
            TopLevelGrammar::from_json_schema(checked_schema(schema, bounds::SCHEMA_DEPTH)?)
        }
        Grammar::JsonObject => {
            let schema = json!({"type": "object"});
            TopLevelGrammar::from_json_schema(checked_schema(&schema, bounds::SCHEMA_DEPTH)?)
        }
        Grammar::Regex(text) => {
            bounds::check_text(kind, text)?;
            let escapes = text.bytes().rev().take_while(|byte| *byte == b'\\').count();
            if escapes % 2 == 1 {
                return Err(invalid(kind, &"it ends with a backslash"));
            }
            // A group, because `//` begins a comment.
            TopLevelGrammar::from_lark(format!("start: /(?:{})/", regex_to_lark(text, "")))
        }
        Grammar::Lark(text) => {
            bounds::check_text(kind, text)?;
            TopLevelGrammar::from_lark(text.clone())
        }
        Grammar::Gbnf(text) => {
            bounds::check_text(kind, text)?;
            TopLevelGrammar::from_lark(gbnf::to_lark(text)?)
        }
    })
}

/// Between the parts of JSON: a space, or the end of a line with the next one's indentation. A model may write nothing but
/// white space otherwise, until its tokens are used up.
const WHITE_SPACE: &str = " |\\n[ \\t]{0,24}";

/// A schema within the bounds, with how JSON is written.
pub(super) fn checked_schema(schema: &Json, depth_limit: usize) -> Result<Json, GrammarError> {
    bounds::check_schema(schema, depth_limit)?;
    let mut schema = match schema {
        Json::Object(_) => schema.clone(),
        Json::Bool(true) => json!({}),
        _ => return Err(invalid("JSON schema", &"it is not an object")),
    };
    closed::close(&mut schema);
    schema["x-guidance"] = json!({ "whitespace_pattern": WHITE_SPACE, "coerce_one_of": true });
    Ok(schema)
}

fn invalid(kind: &'static str, reason: &dyn fmt::Display) -> GrammarError {
    GrammarError::Invalid { kind, reason: reason_of(reason) }
}

/// A message of llguidance without the state of its parser.
pub(super) fn reason_of(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    let end = ["\n<non-verbose/>", "\n<backtrace>"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim().to_owned()
}
