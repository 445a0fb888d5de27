//! libFuzzer's entry to the check of grammars and schemas.
#![no_main]

#[path = "../checks/grammar.rs"]
mod check;

use libfuzzer_sys::fuzz_target;
use orlop_llm::GrammarCompiler;

thread_local! {
    static COMPILER: GrammarCompiler = check::compiler();
}

fuzz_target!(|bytes: &[u8]| {
    COMPILER.with(|compiler| {
        // Most grammars are refused, which is right.
        let _ = check::follow(compiler, bytes);
    });
});
