//! WordPiece, Unigram, BPE of plain text, and further families of the byte-level vocabulary (`generate_more.py`).

use orlop_gguf::{Array, Metadata, Strings};
use orlop_llm::{Special, Tokenizer, TokenizerError};
use serde_json::Value;

use crate::fixture::{json, load};

const WORD_PIECE: &str = include_str!("fixtures/bert.json");
const UNIGRAM: &str = include_str!("fixtures/t5.json");
const UNIGRAM_WITH_SPACES: &str = include_str!("fixtures/t5-spaces.json");
const PLAIN: &str = include_str!("fixtures/gemma4.json");

fn numbers(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn strings(value: &Value) -> Array {
    Array::from(value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect::<Strings>())
}

/// What a fixture says, as a file has it.
fn metadata(fixture: &Value) -> Metadata {
    let mut metadata = Metadata::new();
    let mut set = |key: &str, value: orlop_gguf::MetadataValue| {
        metadata.set(&format!("tokenizer.ggml.{key}"), value).unwrap();
    };
    set("model", fixture["model"].as_str().unwrap().into());
    set("tokens", strings(&fixture["tokens"]).into());
    set("token_type", Array::I32(serde_json::from_value(fixture["types"].clone()).unwrap()).into());
    if fixture["merges"].is_array() {
        set("merges", strings(&fixture["merges"]).into());
    }
    for (name, id) in fixture["ids"].as_object().into_iter().flatten() {
        set(&format!("{name}_token_id"), (id.as_u64().unwrap() as u32).into());
    }
    if fixture["scores"].is_array() {
        set("scores", Array::F32(serde_json::from_value(fixture["scores"].clone()).unwrap()).into());
        set("remove_extra_whitespaces", fixture["merges_spaces"].as_bool().unwrap().into());
        set("precompiled_charsmap", Array::U8(decoded(fixture["map"].as_str().unwrap())).into());
        set("add_eos_token", false.into());
    }
    metadata
}

/// Bytes of base 64.
fn decoded(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text.bytes().filter_map(|byte| alphabet.iter().position(|digit| *digit == byte));
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for digit in digits {
        (held, bits) = (held << 6 | digit as u32, bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}

fn check(text: &str) {
    let fixture = json(text);
    let tokenizer = Tokenizer::from_metadata(&metadata(&fixture)).unwrap();
    let cases = fixture["cases"].as_array().unwrap();
    assert!(cases.len() > 25);
    for case in cases {
        let (text, ids) = (case[0].as_str().unwrap(), numbers(&case[1]));
        assert_eq!(tokenizer.prompt(text, Special::Parse), ids, "for {text:?}");
    }
}

#[test]
fn word_piece_ids_are_those_of_tokenizers() {
    check(WORD_PIECE);
}

#[test]
fn unigram_ids_are_those_of_sentencepiece() {
    check(UNIGRAM);
    check(UNIGRAM_WITH_SPACES);
}

#[test]
fn ids_of_plain_text_are_those_of_tokenizers() {
    check(PLAIN);
}

#[test]
fn pairs_of_texts_have_what_the_model_wants_between_them() {
    let fixture = json(WORD_PIECE);
    let tokenizer = Tokenizer::from_metadata(&metadata(&fixture)).unwrap();
    for pair in fixture["pairs"].as_array().unwrap() {
        let text = |index: usize| pair[index].as_str().unwrap();
        assert_eq!(tokenizer.pair(text(0), text(1)), numbers(&pair[2]));
    }
    // XLM-RoBERTa has both an end and a separator between them.
    let mut pieces = load(include_str!("fixtures/llama.json")).metadata;
    for (key, value) in [("add_bos_token", true), ("add_eos_token", true), ("add_sep_token", true)] {
        pieces.set(&format!("tokenizer.ggml.{key}"), value).unwrap();
    }
    pieces.set("tokenizer.ggml.seperator_token_id", 3u32).unwrap();
    let tokenizer = Tokenizer::from_metadata(&pieces).unwrap();
    let [a, b] = ["a", "b"].map(|text| tokenizer.encode(text, Special::AsText));
    let expected = [&[1], a.as_slice(), &[2, 3], b.as_slice(), &[2]].concat();
    assert_eq!(tokenizer.pair("a", "b"), expected);
}

#[test]
fn further_families_cut_texts_as_their_regular_expressions_do() {
    let families = json(include_str!("fixtures/families.json"));
    let texts = families["texts"].as_array().unwrap();
    for (name, ids) in families.as_object().unwrap().iter().filter(|(name, _)| *name != "texts") {
        let mut fixture = load(include_str!("fixtures/gpt-2.json"));
        fixture.metadata.set("tokenizer.ggml.pre", name.as_str()).unwrap();
        fixture.metadata.set("tokenizer.ggml.add_bos_token", false).unwrap();
        let tokenizer = fixture.tokenizer();
        for (text, ids) in texts.iter().zip(ids.as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let found = tokenizer.encode(text, Special::Parse);
            let words = |ids: &[u32]| -> Vec<String> {
                ids.iter().map(|id| String::from_utf8_lossy(tokenizer.decode(*id)).into_owned()).collect()
            };
            let ids = numbers(ids);
            assert_eq!(found, ids, "{name}, {text:?}: {:?} for {:?}", words(&found), words(&ids));
        }
    }
}

/// Where time grew with the square of the length, each of these would take minutes.
#[test]
fn long_texts_of_anything_are_encoded_in_time() {
    let mut tokenizers: Vec<Tokenizer> = [WORD_PIECE, UNIGRAM, PLAIN]
        .map(|text| Tokenizer::from_metadata(&metadata(&json(text))).unwrap())
        .into();
    for pre in ["superbpe", "exaone-moe", "jais-2", "kimi-k2"] {
        let mut fixture = load(include_str!("fixtures/gpt-2.json"));
        fixture.metadata.set("tokenizer.ggml.pre", pre).unwrap();
        tokenizers.push(fixture.tokenizer());
    }
    for part in ["a", " ", "7", "日", "e\u{301}", "a ", "\n", "▁"] {
        let text = part.repeat((64 << 10) / part.len());
        for tokenizer in &tokenizers {
            assert!(tokenizer.encode(&text, Special::Parse).len() <= text.len() + 1, "{part:?}");
        }
    }
}

#[test]
fn broken_character_maps_are_refused_or_harmless() {
    let good = metadata(&json(UNIGRAM));
    let with = |bytes: Vec<u8>| {
        let mut metadata = good.clone();
        metadata.set("tokenizer.ggml.precompiled_charsmap", Array::U8(bytes)).unwrap();
        Tokenizer::from_metadata(&metadata)
    };
    for bytes in [vec![1, 2], vec![255; 8], vec![3, 0, 0, 0, 1, 2, 3, 4]] {
        let error = with(bytes).unwrap_err();
        assert!(matches!(error, orlop_llm::Error::Tokenizer(TokenizerError::CharacterMap { .. })), "{error}");
    }
    let map = decoded(json(UNIGRAM)["map"].as_str().unwrap());
    let mut random = orlop_testkit::Random::new(5);
    for _ in 0..20 {
        let mut bytes = map.clone();
        for _ in 0..200 {
            let at = 4 + random.index(bytes.len() - 4);
            bytes[at] = random.index(256) as u8;
        }
        let tokenizer = with(bytes).unwrap();
        for text in ["ＦＵＬＬ ｗｉｄｔｈ ①② ㌔ ﬁne é", "日本語 한국어\u{0}x"] {
            let ids = tokenizer.encode(text, Special::Parse);
            assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocabulary_size()));
        }
    }
}
