//! What must hold for any text: its tokens are of the vocabulary, no more than it has bytes and a few, and give it back. And for
//! any bytes as a file with a vocabulary: they are refused, or the vocabulary tokenizes. The fuzz target and a bounded test
//! share it.

use std::sync::Arc;

use orlop_gguf::GgufPart;
use orlop_llm::{Error, Special, Synth, Tokenizer};

/// A text with words, numbers, spaces, accents and other scripts.
const TEXT: &str = "It's 1234.5 o'clock,\n\n  日本語 – naïve cafés </s> 👩‍🚀";

/// A vocabulary with a token for every byte.
///
/// # Panics
/// Never: the vocabulary is a known one.
pub(crate) fn vocabulary() -> Tokenizer {
    let keys = Synth { vocabulary: 1200, ..Synth::default() }.keys().expect("a model's keys");
    Tokenizer::from_metadata(&keys).expect("a vocabulary")
}

/// Tokenizes bytes as a text, or opens them as a file.
///
/// # Panics
/// If tokens are not of the vocabulary, are too many, or are those of another text.
pub(crate) fn tokenize(vocabulary: &Tokenizer, bytes: &[u8]) -> Result<(), Error> {
    if bytes.starts_with(b"GGUF") {
        let file = GgufPart::from_bytes(Arc::new(bytes.to_vec()))?;
        let tokenizer = Tokenizer::from_metadata(file.metadata())?;
        for special in [Special::Parse, Special::AsText] {
            encode(&tokenizer, TEXT, special);
        }
        return Ok(());
    }
    let text = String::from_utf8_lossy(bytes);
    let ids = encode(vocabulary, &text, Special::AsText);
    assert!(ids.len() <= text.len() + 2, "{} tokens for {} bytes", ids.len(), text.len());
    assert_eq!(vocabulary.decode_all(&ids), text);
    encode(vocabulary, &text, Special::Parse);
    Ok(())
}

fn encode(tokenizer: &Tokenizer, text: &str, special: Special) -> Vec<u32> {
    let ids = tokenizer.encode(text, special);
    assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary_size()), "{ids:?}");
    tokenizer.decode_all(&ids);
    ids
}
