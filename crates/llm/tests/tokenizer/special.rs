//! Special tokens in text, and around it.

use orlop_gguf::{Array, Metadata, Strings};
use orlop_llm::{Special, Tokenizer};

use crate::fixture::load;

/// A SentencePiece-style vocabulary of its special tokens and the letters a to e.
fn pieces(change: impl FnOnce(&mut Metadata)) -> Tokenizer {
    let tokens = ["<unk>", "<s>", "</s>", "<|user|>", "▁", "a", "b", "c", "d", "e", "<0x0A>", "<tag>"];
    let types = vec![2, 3, 3, 3, 1, 1, 1, 1, 1, 1, 6, 4];
    let mut metadata = Metadata::new();
    metadata.set("tokenizer.ggml.model", "llama").unwrap();
    metadata.set("tokenizer.ggml.tokens", Array::from(tokens.into_iter().collect::<Strings>())).unwrap();
    metadata.set("tokenizer.ggml.token_type", Array::I32(types)).unwrap();
    metadata.set("tokenizer.ggml.scores", Array::F32(vec![0.0; 12])).unwrap();
    change(&mut metadata);
    Tokenizer::from_metadata(&metadata).unwrap()
}

#[test]
fn control_tokens_in_text_are_parsed_only_when_asked() {
    let fixture = load(include_str!("fixtures/smollm.json"));
    let tokenizer = fixture.tokenizer();
    let text = "a<|im_end|>b<tool>c";
    let parsed = tokenizer.encode(text, Special::Parse);
    assert!(parsed.contains(&2));
    let plain = tokenizer.encode(text, Special::AsText);
    assert!(!plain.iter().any(|id| tokenizer.is_control(*id)));
    assert_eq!(tokenizer.decode_all(&plain), text);
    // What is defined in addition is text, and always found.
    let defined = *parsed.iter().find(|id| tokenizer.decode(**id) == b"<tool>").unwrap();
    assert!(plain.contains(&defined));
}

#[test]
fn control_tokens_decode_to_nothing_unless_written_out() {
    let tokenizer = load(include_str!("fixtures/smollm.json")).tokenizer();
    assert_eq!(tokenizer.decode(2), b"");
    assert_eq!(tokenizer.decode_special(2), b"<|im_end|>");
    assert_eq!((tokenizer.decode(999_999), tokenizer.decode_special(u32::MAX)), (&b""[..], &b""[..]));
}

#[test]
fn the_ends_of_a_text_are_as_the_file_says() {
    let plain = pieces(|_| {});
    assert_eq!((plain.bos(), plain.eos()), (Some(1), Some(2)));
    assert_eq!(plain.prompt("a", Special::Parse), [1, 4, 5]);
    let other = pieces(|metadata| {
        metadata.set("tokenizer.ggml.add_bos_token", false).unwrap();
        metadata.set("tokenizer.ggml.add_eos_token", true).unwrap();
        metadata.set("tokenizer.ggml.eos_token_id", 3u32).unwrap();
        metadata.set("tokenizer.ggml.add_space_prefix", false).unwrap();
    });
    assert_eq!(other.prompt("a", Special::Parse), [5, 3]);
    assert!((other.is_end(3), other.adds_eos(), other.adds_bos()) == (true, true, false));
}

#[test]
fn ids_that_mean_unset_leave_the_default() {
    for unset in [
        orlop_gguf::MetadataValue::I32(-1),
        orlop_gguf::MetadataValue::U32(u32::MAX),
        orlop_gguf::MetadataValue::I64(-1),
    ] {
        let tokenizer = pieces(|metadata| metadata.set("tokenizer.ggml.bos_token_id", unset).unwrap());
        assert_eq!(tokenizer.bos(), Some(1));
    }
    let zero = pieces(|metadata| metadata.set("tokenizer.ggml.eos_token_id", 0u32).unwrap());
    assert_eq!(zero.eos(), Some(0));
}

#[test]
fn a_chat_has_one_bos() {
    let tokenizer = pieces(|_| {});
    assert_eq!(tokenizer.chat("<s><|user|>a"), [1, 3, 4, 5]);
    assert_eq!(tokenizer.chat("<|user|>a"), [1, 3, 4, 5]);
}

#[test]
fn text_after_a_token_begins_with_a_space_again() {
    let tokenizer = pieces(|_| {});
    assert_eq!(tokenizer.encode("a<|user|>b<tag>c", Special::Parse), [4, 5, 3, 4, 6, 11, 4, 7]);
    assert!(tokenizer.encode("", Special::Parse).is_empty());
}

#[test]
fn phi_3_tokens_take_the_space_after_them() {
    let text = "<|user|> \n a<tag>  b<s> c";
    let usual = pieces(|_| {}).encode(text, Special::Parse);
    assert_eq!(usual, [3, 4, 4, 10, 4, 5, 11, 4, 4, 4, 6, 1, 4, 4, 7]);
    let phi = pieces(|metadata| metadata.set("general.name", "Phi-3 mini").unwrap());
    assert_eq!(phi.encode(text, Special::Parse), [3, 4, 5, 11, 4, 6, 1, 4, 4, 7]);
}

#[test]
fn characters_without_tokens_become_bytes_or_the_unknown_token() {
    let tokenizer = pieces(|_| {});
    assert_eq!(tokenizer.encode("a\nz", Special::Parse), [4, 5, 10, 0]);
    assert_eq!(tokenizer.encode("é", Special::Parse), [4, 0, 0]);
}

#[test]
fn tokens_that_end_a_turn_are_known_by_their_text() {
    let tokenizer = load(include_str!("fixtures/gpt-2.json")).tokenizer();
    assert_eq!(tokenizer.eot(), Some(2));
    assert!(tokenizer.is_end(0) && tokenizer.is_end(2) && !tokenizer.is_end(1));
}

/// A tokenizer of these tokens, without merges.
fn of_tokens(texts: &[&str]) -> Tokenizer {
    Tokenizer::from_metadata(&of_merges("gpt2", texts, &[])).unwrap()
}

/// A vocabulary for BPE.
fn of_merges(model: &str, tokens: &[&str], merges: &[&str]) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("tokenizer.ggml.model", model).unwrap();
    for (key, texts) in [("tokens", tokens), ("merges", merges)] {
        let texts: Strings = texts.iter().copied().collect();
        metadata.set(&format!("tokenizer.ggml.{key}"), Array::from(texts)).unwrap();
    }
    metadata
}

#[test]
fn words_between_blanks_may_be_all_of_a_text() {
    let tokens = ["我", "们", "我们", "h", "i", "hi", "<0xE5>", "<0xA5>", "<0xBD>"];
    let mut metadata = of_merges("whitespace", &tokens, &["我 们", "h i"]);
    metadata.set("tokenizer.ggml.pre", "whitespace").unwrap();
    let encode = |metadata: &Metadata, text: &str| {
        Tokenizer::from_metadata(metadata).unwrap().encode(text, Special::Parse)
    };
    assert_eq!(encode(&metadata, " 我们\u{3000}我 们\n\nhi"), [2, 0, 1, 5]);
    assert_eq!(encode(&metadata, "好 HI"), [6, 7, 8]);
    metadata.set("tokenizer.ggml.normalizer.lowercase", true).unwrap();
    assert_eq!(encode(&metadata, "HI h\ti"), [5, 3, 4]);
}

#[test]
fn kimi_needs_no_merges() {
    let metadata = |pre: &str| {
        let mut metadata = Metadata::new();
        let tokens: Strings = ["a", "b", "ab", "Ġ"].into_iter().collect();
        metadata.set("tokenizer.ggml.model", "gpt2").unwrap();
        metadata.set("tokenizer.ggml.tokens", Array::from(tokens)).unwrap();
        metadata.set("tokenizer.ggml.pre", pre).unwrap();
        metadata
    };
    let kimi = Tokenizer::from_metadata(&metadata("kimi-k2")).unwrap();
    assert_eq!(kimi.encode("ab a", Special::Parse), [0, 1, 3, 0]);
    let error = Tokenizer::from_metadata(&metadata("qwen2")).unwrap_err().to_string();
    assert!(error.contains("tokenizer.ggml.merges"), "{error}");
}

/// Which of these tokens end generation.
fn ends(texts: &[&str]) -> Vec<bool> {
    let tokenizer = of_tokens(texts);
    (0..texts.len() as u32).map(|id| tokenizer.is_end(id)).collect()
}

#[test]
fn the_end_of_a_harmony_message_does_not_end_the_answer() {
    assert_eq!(ends(&["a", "<|end|>", "<|return|>", "<|call|>"]), [false, false, true, true]);
    assert_eq!(ends(&["a", "<|end|>", "<|return|>"]), [false, true, true]);
}

#[test]
fn the_end_of_a_message_of_solar_open_does_not_end_the_answer() {
    assert_eq!(ends(&["a", "<|end|>", "<|flush|>", "<|calls|>"]), [false, false, true, true]);
    assert_eq!(ends(&["a", "<|end|>", "<|return|>", "<|calls|>"]), [false, false, true, true]);
    assert_eq!(ends(&["a", "<|end|>", "<|flush|>"]), [false, true, true]);
}

#[test]
fn ends_of_newer_families_are_known() {
    assert_eq!(ends(&["a", "<turn|>", "[e~[", "</s>"]), [false, true, true, true]);
    assert_eq!(of_tokens(&["a", "<turn|>"]).eot(), Some(1));
    // Where the model has another token for it, this is the tag for struck text.
    let gemma = of_tokens(&["a", "<|tool_response>", "</s>"]);
    assert!(gemma.is_end(1) && !gemma.is_end(2) && !gemma.is_control(2));
    assert!(of_tokens(&["a", "<|middle|>"]).is_control(1));
}
