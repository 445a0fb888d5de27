//! A vocabulary of any size from 259 tokens on, in SentencePiece's form: three special tokens, every byte, all
//! printable ASCII characters, then words of small letters.

use orlop_gguf::{Array, Metadata, MetadataValue, Strings};

use crate::Error;

/// Token types, as files number them.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

const SPECIAL: [(&str, i32); 3] = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)];
/// How SentencePiece writes a space.
const SPACE: char = '\u{2581}';

/// Adds the keys of a tokenizer with `count` tokens, or those that say there is none.
pub(super) fn describe(count: u64, metadata: &mut Metadata) -> Result<(), Error> {
    if count < SPECIAL.len() as u64 + 256 {
        metadata.set("tokenizer.ggml.model", "no_vocab")?;
        return Ok(());
    }
    let special = SPECIAL.map(|(token, kind)| (token.to_owned(), kind));
    let bytes = (0..256).map(|byte| (format!("<0x{byte:02X}>"), BYTE));
    let pieces = characters().chain(words()).map(|piece| (piece, NORMAL));
    let tokens = || special.iter().cloned().chain(bytes.clone()).chain(pieces.clone()).take(count as usize);
    // Likelier tokens come first; special tokens and bytes are not chosen by score.
    let score = |(index, kind): (usize, i32)| if kind == NORMAL { -(index as f32) } else { 0.0 };
    let kinds: Vec<i32> = tokens().map(|(_, kind)| kind).collect();
    let scores: Vec<f32> = kinds.iter().copied().enumerate().map(score).collect();
    let strings: Strings = tokens().map(|(token, _)| token).collect();
    metadata.set("tokenizer.ggml.model", "llama")?;
    metadata.set("tokenizer.ggml.pre", "default")?;
    metadata.set("tokenizer.ggml.tokens", MetadataValue::Array(Array::from(strings)))?;
    metadata.set("tokenizer.ggml.scores", MetadataValue::Array(Array::from(scores)))?;
    metadata.set("tokenizer.ggml.token_type", MetadataValue::Array(Array::from(kinds)))?;
    metadata.set("tokenizer.ggml.unknown_token_id", 0u32)?;
    metadata.set("tokenizer.ggml.bos_token_id", 1u32)?;
    metadata.set("tokenizer.ggml.eos_token_id", 2u32)?;
    metadata.set("tokenizer.ggml.add_bos_token", true)?;
    metadata.set("tokenizer.ggml.add_eos_token", false)?;
    Ok(())
}

/// The space, and every printable character except lower case letters, which begin the words.
fn characters() -> impl Iterator<Item = String> + Clone {
    let printable = ('!'..='~').filter(|character| !character.is_ascii_lowercase());
    std::iter::once(SPACE).chain(printable).map(String::from)
}

/// Every word of small letters, short ones first, each also with a space before it.
fn words() -> impl Iterator<Item = String> + Clone {
    (1u32..)
        .flat_map(|length| (0..26u64.saturating_pow(length)).map(move |number| word(number, length)))
        .flat_map(|word| {
            let spaced = format!("{SPACE}{word}");
            [word, spaced]
        })
}

/// A number in the digits a to z, the last one first.
fn word(number: u64, length: u32) -> String {
    let digits = (0..length).map(|place| number / 26u64.saturating_pow(place) % 26);
    digits.map(|digit| char::from(b'a' + digit as u8)).collect()
}
