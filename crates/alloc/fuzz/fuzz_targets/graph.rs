//! libFuzzer's entry to the check of graphs.
#![no_main]

#[path = "../checks/graph.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check::plan(bytes);
});
