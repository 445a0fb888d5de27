//! libFuzzer's entry to the check of the GGUF reader.
#![no_main]

#[path = "../check.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Most inputs are refused, which is right.
    let _ = check::read(bytes);
});
