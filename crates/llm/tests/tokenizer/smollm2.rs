//! The token ids that llama.cpp gives for prompts, with the vocabulary of SmolLM2-135M-Instruct.
//!
//! Its vocabulary is in the model file, so the end-to-end test, which has that file, includes this one.

use orlop_llm::{Special, Tokenizer};

/// Compares all prompts, and says how many there were.
pub(crate) fn check_prompts(tokenizer: &Tokenizer) -> usize {
    let lines = include_str!("fixtures/smollm2.jsonl").lines();
    lines
        .map(|line| {
            let case: serde_json::Value = serde_json::from_str(line).unwrap();
            let prompt = case["prompt"].as_str().unwrap();
            let tokens: Vec<u32> = serde_json::from_value(case["tokens"].clone()).unwrap();
            assert_eq!(tokenizer.prompt(prompt, Special::Parse), tokens, "for {prompt:?}");
            let bytes: Vec<u8> =
                tokens.iter().flat_map(|id| tokenizer.decode_special(*id)).copied().collect();
            assert_eq!(bytes, prompt.as_bytes());
        })
        .count()
}
