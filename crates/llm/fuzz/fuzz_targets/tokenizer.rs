//! libFuzzer's entry to the check of tokenizers.
#![no_main]

#[path = "../checks/tokenizer.rs"]
mod check;

use libfuzzer_sys::fuzz_target;
use orlop_llm::Tokenizer;

thread_local! {
    static VOCABULARY: Tokenizer = check::vocabulary();
}

fuzz_target!(|bytes: &[u8]| {
    VOCABULARY.with(|vocabulary| {
        // Most files are refused, which is right.
        let _ = check::tokenize(vocabulary, bytes);
    });
});
