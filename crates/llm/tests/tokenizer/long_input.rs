//! Long texts take n log n time. Where it were n², each of these would take the better part of an hour.

use std::time::{Duration, Instant};

use orlop_llm::Special;

use crate::fixture::load;

const MEGABYTE: usize = 1 << 20;

fn check(file: &str) {
    let tokenizer = load(file).tokenizer();
    let texts = [
        "a",
        " ",
        "\n",
        "ab",
        "x!",
        "7",
        "日",
        "<",
        "<|im_end|>",
        "<|im_end",
        "aB",
        " a",
        "e\u{301}",
        "\u{a0}",
    ];
    let begin = Instant::now();
    for part in texts {
        let text = part.repeat(MEGABYTE / part.len());
        let ids = tokenizer.encode(&text, Special::Parse);
        let length: usize = ids.iter().map(|id| tokenizer.decode_special(*id).len()).sum();
        assert!(length - text.len() <= 1, "for {part:?}"); // one space may come first
    }
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
}

#[test]
fn a_megabyte_of_anything_is_encoded_in_time_by_merges() {
    check(include_str!("fixtures/smollm.json"));
}

#[test]
fn a_megabyte_of_anything_is_cut_into_cased_words_in_time() {
    check(include_str!("fixtures/gpt-4o.json"));
}

#[test]
fn a_megabyte_of_anything_is_encoded_in_time_by_scores() {
    check(include_str!("fixtures/llama.json"));
}

/// Blanks that end no text are looked at once by each stage.
#[test]
fn a_megabyte_of_blanks_before_a_digit_is_cut_in_time() {
    let begin = Instant::now();
    let mut fixture = load(include_str!("fixtures/smollm.json"));
    let text = format!("{}7{}", " \u{a0}\t ".repeat(MEGABYTE / 5), " ".repeat(MEGABYTE));
    for pre in ["deepseek-llm", "deepseek-coder", "spark2_5", "jais-2"] {
        fixture.metadata.set("tokenizer.ggml.pre", pre).unwrap();
        let tokenizer = fixture.tokenizer();
        let ids = tokenizer.encode(&text, Special::Parse);
        let length: usize = ids.iter().map(|id| tokenizer.decode_special(*id).len()).sum();
        assert_eq!(length, text.len(), "{pre}");
    }
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
}
