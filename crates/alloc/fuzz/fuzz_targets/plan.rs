//! libFuzzer's entry to the check of saved memory plans.
#![no_main]

#[path = "../checks/plan.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check::open(bytes);
});
