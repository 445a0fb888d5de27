//! libFuzzer's entry to the check of adapters.
#![no_main]

#[path = "../checks/lora.rs"]
mod check;

use libfuzzer_sys::fuzz_target;
use orlop_llm::Model;
use orlop_sched::Machine;

thread_local! {
    static BASE: (Model, Machine) = check::base();
}

fuzz_target!(|bytes: &[u8]| {
    BASE.with(|(base, machine)| {
        // Most inputs are refused, which is right.
        let _ = check::add(base, machine, bytes);
    });
});
