//! The checks of the fuzz targets, on their corpora and on a fixed count of spoiled copies.

#[path = "../../fuzz/checks/template.rs"]
mod template;
#[path = "../../fuzz/checks/tokenizer.rs"]
mod tokenizer;

use orlop_gguf::{Array, Strings, Writer};
use orlop_testkit::Random;

use crate::spoiled::{corpus, spoiled};

/// A file with a small vocabulary.
fn vocabulary() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", "gpt2").unwrap();
    writer.set("tokenizer.ggml.pre", "smollm").unwrap();
    let tokens: Strings = ["a", "b", "ab", "\u{120}", "\u{120}a", "</s>", "1", "é"].into_iter().collect();
    writer.set("tokenizer.ggml.tokens", Array::from(tokens)).unwrap();
    writer.set("tokenizer.ggml.token_type", Array::I32(vec![1, 1, 1, 1, 1, 3, 1, 4])).unwrap();
    let merges: Strings = ["a b", "\u{120} a"].into_iter().collect();
    writer.set("tokenizer.ggml.merges", Array::from(merges)).unwrap();
    writer.set("tokenizer.ggml.eos_token_id", 5u32).unwrap();
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn texts_and_vocabularies() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/tokenizer/vocabulary");
        std::fs::write(path, vocabulary()).unwrap();
    }
    let bytes = tokenizer::vocabulary();
    let (mut random, mut good) = (Random::new(1), 0);
    for seed in corpus("tokenizer", 3) {
        tokenizer::tokenize(&bytes, &seed).expect("UPDATE_GOLDEN=1 renews the corpus");
        for _ in 0..1000 {
            good += usize::from(tokenizer::tokenize(&bytes, &spoiled(&seed, &mut random)).is_ok());
        }
    }
    // Every text, and some of the files.
    assert!((2050..2950).contains(&good), "{good}");
}

#[test]
fn templates() {
    let (mut random, mut good) = (Random::new(1), 0);
    for seed in corpus("template", 3) {
        assert!(template::render(&seed), "{}", String::from_utf8_lossy(&seed));
        for _ in 0..300 {
            good += usize::from(template::render(&spoiled(&seed, &mut random)));
        }
    }
    assert!((50..850).contains(&good), "{good}");
}
