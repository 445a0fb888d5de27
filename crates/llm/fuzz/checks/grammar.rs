//! What must hold for any text as a grammar: it is refused, or each of its masks allows a token, which it then accepts. The fuzz
//! target and a bounded test share it.

use std::sync::Arc;

use orlop_llm::{Grammar, GrammarCompiler, GrammarError, Synth, Tokenizer};

/// For a vocabulary with a token for every byte.
///
/// # Panics
/// Never: the vocabulary is a known one.
pub(crate) fn compiler() -> GrammarCompiler {
    let keys = Synth { vocabulary: 1200, ..Synth::default() }.keys().expect("a model's keys");
    let tokenizer = Tokenizer::from_metadata(&keys).expect("a vocabulary");
    GrammarCompiler::new(Arc::new(tokenizer)).expect("a vocabulary of bytes")
}

/// Follows a grammar for some tokens. The first byte says what the text is.
///
/// # Panics
/// If a mask is empty, or an error says nothing.
pub(crate) fn follow(compiler: &GrammarCompiler, bytes: &[u8]) -> Result<(), GrammarError> {
    let Some((kind, text)) = bytes.split_first() else { return Ok(()) };
    let text = String::from_utf8_lossy(text).into_owned();
    let grammar = match kind % 4 {
        0 => match serde_json::from_str(&text) {
            Ok(schema) => Grammar::JsonSchema(schema),
            Err(_) => return Ok(()),
        },
        1 => Grammar::Regex(text),
        2 => Grammar::Lark(text),
        _ => Grammar::Gbnf(text),
    };
    walk(compiler, &grammar).inspect_err(|error| assert!(!error.to_string().is_empty()))
}

fn walk(compiler: &GrammarCompiler, grammar: &Grammar) -> Result<(), GrammarError> {
    let mut matcher = compiler.compile(grammar)?;
    for _ in 0..20 {
        let Some(mask) = matcher.mask()? else { break };
        let token = mask.iter().last().expect("a mask allows a token");
        matcher.accept(token)?;
        if matcher.is_complete() {
            break;
        }
    }
    Ok(())
}
