//! Vocabularies that make no sense are refused by name and number.

use orlop_gguf::{Array, Metadata, MetadataValue, Strings, Text};
use orlop_llm::{Error, Special, Tokenizer, TokenizerError};
use orlop_testkit::Random;

use crate::fixture::load;

fn bytes() -> Metadata {
    load(include_str!("fixtures/smollm.json")).metadata
}

fn pieces() -> Metadata {
    load(include_str!("fixtures/llama.json")).metadata
}

fn with(mut metadata: Metadata, key: &str, value: impl Into<MetadataValue>) -> Result<Tokenizer, Error> {
    metadata.set(&format!("tokenizer.ggml.{key}"), value).unwrap();
    Tokenizer::from_metadata(&metadata)
}

fn strings<const N: usize>(items: [&str; N]) -> Array {
    Array::from(items.into_iter().collect::<Strings>())
}

#[test]
fn unknown_kinds_are_named_and_known_ones_listed() {
    let error = with(bytes(), "model", "plamo2").unwrap_err().to_string();
    assert!(error.contains("`plamo2`") && error.contains("gpt2, llama, bert, t5, gemma4, rwkv"), "{error}");
    let error = with(bytes(), "pre", "brand-new").unwrap_err().to_string();
    assert!(error.contains("`brand-new`"), "{error}");
    for known in ["default", "gpt-2", "smollm", "llama-bpe", "qwen2"] {
        assert!(error.contains(known), "{error}");
    }
}

#[test]
fn a_file_without_a_tokenizer_says_so() {
    assert!(matches!(
        Tokenizer::from_metadata(&Metadata::new()),
        Err(Error::Tokenizer(TokenizerError::Missing))
    ));
    assert!(matches!(with(bytes(), "model", "none"), Err(Error::Tokenizer(TokenizerError::Missing))));
}

#[test]
fn lists_of_another_length_are_refused() {
    let error = with(bytes(), "token_type", Array::I32(vec![1; 7])).unwrap_err();
    assert!(matches!(error, Error::Tokenizer(TokenizerError::VocabularyLength { found: 7, .. })), "{error}");
    let error = with(pieces(), "scores", Array::F32(vec![0.0; 9])).unwrap_err();
    assert!(matches!(error, Error::Tokenizer(TokenizerError::VocabularyLength { found: 9, .. })), "{error}");
    let empty = with(bytes(), "tokens", strings([])).unwrap_err();
    assert!(matches!(empty, Error::Tokenizer(TokenizerError::VocabularySize { tokens: 0 })), "{empty}");
}

#[test]
fn merges_of_unknown_tokens_are_refused() {
    let known = bytes();
    let known = std::str::from_utf8(known.strings("tokenizer.ggml.merges").unwrap().get(0).unwrap()).unwrap();
    for (merge, missing) in [("a zzz", "zzz"), ("zzz a", "zzz"), ("q q", "qq"), ("a 日", "日")] {
        let error = with(bytes(), "merges", strings([known, merge])).unwrap_err();
        match &error {
            Error::Tokenizer(TokenizerError::MergeUnknown { index: 1, token, .. }) => {
                assert_eq!(token, missing)
            }
            _ => panic!("{error}"),
        }
    }
    for form in ["", " ", "ab", "  "] {
        let error = with(bytes(), "merges", strings([form])).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Tokenizer(TokenizerError::MergeForm { index: 0, .. })
                    | Error::Tokenizer(TokenizerError::MergeUnknown { .. })
            ),
            "{error}"
        );
    }
}

#[test]
fn special_ids_outside_the_vocabulary_are_refused() {
    for id in [100_000i64, -2, i64::MAX] {
        let error = with(bytes(), "bos_token_id", id).unwrap_err();
        assert!(matches!(error, Error::Tokenizer(TokenizerError::SpecialTokenRange { .. })), "{error}");
        assert!(error.to_string().contains("bos_token_id"), "{error}");
    }
}

#[test]
fn two_equal_tokens_are_refused() {
    let mut metadata = pieces();
    for key in ["token_type", "scores"] {
        metadata.remove(&format!("tokenizer.ggml.{key}"));
    }
    let error = with(metadata, "tokens", strings(["a", "b", "a"])).unwrap_err();
    assert!(
        matches!(error, Error::Tokenizer(TokenizerError::DuplicateToken { first: 0, second: 2, .. })),
        "{error}"
    );
}

#[test]
fn values_of_other_types_are_refused() {
    for key in ["model", "tokens", "merges", "token_type", "bos_token_id", "add_bos_token"] {
        let error = with(bytes(), key, 1.5f32).unwrap_err();
        assert!(matches!(error, Error::File(_)), "{key}: {error}");
    }
    let mut metadata = bytes();
    metadata.remove("tokenizer.ggml.merges");
    assert!(Tokenizer::from_metadata(&metadata).unwrap_err().to_string().contains("tokenizer.ggml.merges"));
}

#[test]
fn tokens_that_are_no_text_are_harmless() {
    let odd: Strings = [&b"\xff"[..], b"", b"\xe6\x97", b"a", b"", "日".as_bytes()].into_iter().collect();
    for model in ["gpt2", "llama"] {
        for kind in 0..8 {
            let mut metadata = Metadata::new();
            metadata.set("tokenizer.ggml.model", model).unwrap();
            metadata.set("tokenizer.ggml.tokens", Array::from(odd.clone())).unwrap();
            metadata.set("tokenizer.ggml.merges", strings([])).unwrap();
            metadata.set("tokenizer.ggml.token_type", Array::I32(vec![kind; 6])).unwrap();
            metadata.set("general.name", Text::from(&b"\xff"[..])).unwrap();
            let tokenizer = Tokenizer::from_metadata(&metadata).unwrap();
            for special in [Special::Parse, Special::AsText] {
                let ids = tokenizer.encode("日本a\u{fffd} é\n", special);
                assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary_size()));
                tokenizer.decode_all(&ids);
            }
        }
    }
}

#[test]
fn damaged_vocabularies_never_panic() {
    let mut generator = Random::new(1);
    let mut random = move |below: usize| generator.index(below);
    for fixture in [bytes(), pieces()] {
        for _ in 0..300 {
            let mut metadata = fixture.clone();
            let key = ["tokens", "merges", "token_type", "scores"][random(4)];
            let key = format!("tokenizer.ggml.{key}");
            let changed = match metadata.get(&key) {
                Some(MetadataValue::Array(Array::String(strings))) => {
                    let mut items: Vec<Vec<u8>> = strings.iter().map(<[u8]>::to_vec).collect();
                    let (at, other) = (random(items.len()), random(items.len()));
                    match random(4) {
                        0 => items.truncate(at),
                        1 => items[at] = vec![random(256) as u8; random(9)],
                        2 => items[at] = items[other].clone(),
                        _ => items.swap(at, other),
                    }
                    Array::from(items.into_iter().collect::<Strings>())
                }
                Some(MetadataValue::Array(Array::I32(items))) => {
                    let mut items = items.clone();
                    let at = random(items.len());
                    items[at] = random(9) as i32 - 1;
                    Array::I32(items)
                }
                Some(MetadataValue::Array(Array::F32(items))) => {
                    let mut items = items.clone();
                    let at = random(items.len());
                    items[at] = [f32::NAN, f32::INFINITY, -0.0, 1e30][random(4)];
                    Array::F32(items)
                }
                _ => continue,
            };
            metadata.set(&key, changed).unwrap();
            if let Ok(tokenizer) = Tokenizer::from_metadata(&metadata) {
                let ids = tokenizer.prompt("The ship's crew: 日本 <|im_end|> é 12345\n\n  ", Special::Parse);
                assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary_size()));
            }
        }
    }
}
