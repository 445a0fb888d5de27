//! libFuzzer's entry to the check of the reader of saved states.
#![no_main]

#[path = "../checks/state.rs"]
mod check;

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use orlop_llm::{Chat, Engine, Tokenizer};

thread_local! {
    static TALK: RefCell<(Engine, Tokenizer, Chat)> = RefCell::new(check::talk());
}

fuzz_target!(|bytes: &[u8]| {
    TALK.with_borrow_mut(|(engine, _, chat)| {
        // Most inputs are refused, which is right.
        let _ = check::load(engine, chat, bytes);
    });
});
