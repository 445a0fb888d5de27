//! Each family of tokenizers gives the ids that its reference library gives.

use orlop_llm::{Special, TextStream, Tokenizer};

use crate::fixture::{Fixture, load};

fn check(fixture: &Fixture) {
    let tokenizer = fixture.tokenizer();
    assert!(fixture.cases.len() > 25);
    for (text, ids, _) in &fixture.cases {
        let found = tokenizer.encode(text, Special::Parse);
        assert_eq!(&found, ids, "for {text:?}: {:?}", pieces(&tokenizer, &found));
    }
}

fn pieces(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|id| String::from_utf8_lossy(tokenizer.decode_special(*id)).into_owned()).collect()
}

macro_rules! families {
    ($($test:ident: $file:literal),*) => {$(
        #[test]
        fn $test() {
            check(&load(include_str!(concat!("fixtures/", $file, ".json"))));
        }
    )*};
}

families! {
    gpt_2_ids_are_those_of_tokenizers: "gpt-2",
    smollm_ids_are_those_of_tokenizers: "smollm",
    llama_3_ids_are_those_of_tokenizers: "llama-bpe",
    qwen_2_ids_are_those_of_tokenizers: "qwen2",
    gpt_4o_ids_are_those_of_tokenizers: "gpt-4o",
    tekken_ids_are_those_of_tokenizers: "tekken",
    deepseek_3_ids_are_those_of_tokenizers: "deepseek-v3",
    falcon_ids_are_those_of_tokenizers: "falcon",
    bloom_ids_are_those_of_tokenizers: "bloom",
    deepseek_coder_ids_are_those_of_tokenizers: "deepseek-coder",
    default_ids_are_those_of_tokenizers: "default",
    llama_ids_are_those_of_sentencepiece: "llama",
    phi_3_ids_are_those_of_tokenizers: "phi3",
    gemma_ids_are_those_of_sentencepiece: "gemma",
    rwkv_ids_are_those_of_its_package: "rwkv"
}

#[test]
fn the_texts_tell_the_families_apart() {
    let files = [
        ("gpt-2", include_str!("fixtures/gpt-2.json")),
        ("smollm", include_str!("fixtures/smollm.json")),
        ("llama-bpe", include_str!("fixtures/llama-bpe.json")),
        ("qwen2", include_str!("fixtures/qwen2.json")),
        ("gpt-4o", include_str!("fixtures/gpt-4o.json")),
        ("tekken", include_str!("fixtures/tekken.json")),
        ("deepseek-v3", include_str!("fixtures/deepseek-v3.json")),
        ("falcon", include_str!("fixtures/falcon.json")),
        ("bloom", include_str!("fixtures/bloom.json")),
        ("deepseek-coder", include_str!("fixtures/deepseek-coder.json")),
        ("default", include_str!("fixtures/default.json")),
    ];
    for (own, file) in files {
        for (pre, _) in files {
            let mut fixture = load(file);
            fixture.metadata.set("tokenizer.ggml.pre", pre).unwrap();
            let tokenizer = fixture.tokenizer();
            let equal =
                fixture.cases.iter().all(|(text, ids, _)| &tokenizer.encode(text, Special::Parse) == ids);
            assert_eq!(equal, own == pre, "the texts of {own} with the words of {pre}");
        }
    }
}

#[test]
fn ids_decode_to_the_text_they_came_from() {
    for file in [include_str!("fixtures/smollm.json"), include_str!("fixtures/llama.json")] {
        let fixture = load(file);
        let tokenizer = fixture.tokenizer();
        for (text, ids, decoded) in &fixture.cases {
            assert_eq!(&tokenizer.decode_all(ids), decoded, "for {text:?}");
        }
    }
}

#[test]
fn tokens_that_end_within_characters_stream_as_whole_ones() {
    let fixture = load(include_str!("fixtures/qwen2.json"));
    let tokenizer = fixture.tokenizer();
    let mut stream = TextStream::new();
    for (text, ids, _) in &fixture.cases {
        let mut streamed = String::new();
        for id in ids {
            streamed.push_str(stream.push(tokenizer.decode_special(*id)));
        }
        streamed.push_str(stream.finish());
        assert_eq!(&streamed, text);
    }
}
