//! libFuzzer's entry to the check of chat templates.
#![no_main]

#[path = "../checks/template.rs"]
mod check;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check::render(bytes);
});
