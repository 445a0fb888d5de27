//! What can only be tested on a card: `cargo xtask test-cuda` builds this, and it runs where there is no Rust. Prints what it
//! found, and fails if anything is wrong. Arguments choose among the tests; without any, all run.
#![allow(clippy::unwrap_used)] // whatever is here is a test

#[path = "cuda-tests/checks.rs"]
mod checks;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use orlop_backend::{Device, LowerOptions, Precision};
use orlop_cuda::CudaOptions;
use orlop_testkit::conformance::{self, ConformanceOptions};

/// What is wrong, a line each.
type Test = fn(&Arc<dyn Device>) -> Vec<String>;

/// All there are, by name.
const TESTS: [(&str, Test); 18] = [
    ("conformance", |device| conforms(device, LowerOptions::default())),
    ("unfused", |device| conforms(device, LowerOptions { fusion: false, ..LowerOptions::default() })),
    ("exact", |device| {
        conforms(device, LowerOptions { precision: Precision::F32, ..LowerOptions::default() })
    }),
    ("blocks", checks::blocks_are_written_as_the_reference_does),
    ("indices", checks::bad_indices_are_values),
    ("rows", checks::the_later_of_equal_rows_stays),
    ("odd", checks::attention_takes_what_lies_oddly),
    ("ends", checks::numbers_end_where_the_reference_says),
    ("aligned", checks::what_is_bound_off_its_alignment_is_refused),
    ("replay", checks::replays_compute_the_same),
    ("products", checks::fast_products_agree_with_the_reference),
    ("eights", checks::eight_bit_products_are_exact_but_for_that),
    ("experts", checks::products_of_experts_agree_with_the_reference),
    ("attention", checks::fast_attention_agrees_with_the_reference),
    ("shared", checks::programs_keep_their_shared_memory),
    ("largest", checks::the_largest_element_is_found),
    ("peers", checks::devices_copy_from_each_other),
    // Last: nothing runs on the card after it.
    ("lost", checks::a_card_whose_kernel_fails_is_lost),
];

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_there = |chosen: &&String| TESTS.iter().any(|(name, _)| name == chosen);
    if let Some(unknown) = chosen.iter().find(|chosen| !is_there(chosen)) {
        let names = TESTS.map(|(name, _)| name).join(", ");
        return failed(&format!("there is no test `{unknown}`, only {names}"));
    }
    let options = CudaOptions {
        cache: std::env::var_os("ORLOP_CACHE").map(PathBuf::from),
        libraries: vec!["/usr/local/cuda/lib64".into()],
        sources: std::env::var_os("ORLOP_KERNELS").map(PathBuf::from),
        ..CudaOptions::default()
    };
    let device = match orlop_cuda::devices(&options) {
        Ok(devices) if !devices.is_empty() => Arc::clone(&devices[0]),
        Ok(_) => return failed("there is no card"),
        Err(error) => return failed(&error.to_string()),
    };
    println!("{}", device.facts().description);
    let mut wrong = 0;
    for (name, test) in
        TESTS.into_iter().filter(|(name, _)| chosen.is_empty() || chosen.iter().any(|c| c == name))
    {
        let begin = Instant::now();
        let failures = test(&device);
        failures.iter().for_each(|failure| println!("  {failure}"));
        let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
        println!("{name}: {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
        wrong += failures.len();
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failed(reason: &str) -> ExitCode {
    println!("{reason}");
    ExitCode::FAILURE
}

/// Cases that a card must take.
const LEAST_CASES: usize = 700;

fn conforms(device: &Arc<dyn Device>, lower: LowerOptions) -> Vec<String> {
    let report = conformance::report(device, &ConformanceOptions { lower, ..ConformanceOptions::default() });
    if std::env::var_os("ORLOP_VERBOSE").is_some() {
        println!("{}", report.markdown());
    }
    println!("{} passed, {} refused, {} failed", report.passed(), report.unsupported(), report.failed());
    let mut failures: Vec<String> =
        report.failures.iter().map(|(name, failure)| format!("{name}: {failure}")).collect();
    if report.passed() < LEAST_CASES {
        failures.push(format!("{} cases passed, at least {LEAST_CASES} must", report.passed()));
    }
    failures
}
