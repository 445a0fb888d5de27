//! What can go wrong with a grammar.

use super::ToolChoice;

/// What can go wrong with a grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// It is too long, too deep, or refers to itself too often.
    #[error("the {kind} has {found} {what}; at most {limit} are accepted")]
    TooLarge {
        /// A JSON schema, a regular expression, …
        kind: &'static str,
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much is accepted.
        limit: usize,
    },
    /// It is invalid, impossible to match, or not supported.
    #[error("the {kind} cannot be used: {reason}")]
    Invalid {
        /// A JSON schema, a regular expression, …
        kind: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// GBNF that cannot be read.
    #[error("the GBNF grammar is wrong in line {line}: {reason}")]
    Gbnf {
        /// The first line is 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The bounds on memory and time do not suffice for what comes next.
    #[error("after {tokens} tokens of the answer, the grammar needs too much memory or time: {reason}")]
    TooComplex {
        /// Tokens that were accepted.
        tokens: usize,
        /// Which bound was met.
        reason: String,
    },
    /// No token of the vocabulary can come next.
    #[error("after {tokens} tokens of the answer, the grammar allows no token of the vocabulary")]
    NoToken {
        /// Tokens that were accepted.
        tokens: usize,
    },
    /// A token that the grammar does not allow.
    #[error("after {tokens} tokens of the answer, the grammar does not allow token {token}")]
    Refused {
        /// The token.
        token: u32,
        /// Tokens that were accepted.
        tokens: usize,
    },
    /// The tokens of the model take more memory than a grammar's tables can address.
    #[error("the vocabulary's tokens have {found} different beginnings; grammars work with at most {limit}")]
    Vocabulary {
        /// Nodes of their prefix tree.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// Calls are required that the model's format does not know, or of a function that is no tool.
    #[error("{}", no_calls(.0))]
    NoCalls(ToolChoice),
    /// The thread that compiles grammars cannot start.
    #[error("no thread to compile the grammar: {0}")]
    NoThread(String),
}

fn no_calls(choice: &ToolChoice) -> String {
    match choice {
        ToolChoice::Function(name) => {
            format!("there is no tool `{name}`, or the model's template does not call tools")
        }
        _ => "there are no tools, or the model's template does not call tools".to_owned(),
    }
}
