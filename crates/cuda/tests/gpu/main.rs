//! Tests that need an NVIDIA GPU. Without one, the program says so and runs nothing: `cargo test` then reports no test of
//! it. `cargo xtask test --on cuda` passes `--required`, which makes a missing GPU a failure; with `--build FOLDER` it puts
//! the program into a folder, to be run on a machine without Rust.
//!
//! Arguments choose tests by parts of their names; without any, all run. Tests share one device and run one after the
//! other. `ORLOP_VERBOSE` prints the conformance tables.

/// A list of tests by their functions. A test that is in no list is unused code, which the lints refuse.
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*] };
}

mod attention;
mod conformance;
mod elements;
mod paged;
mod products;
mod runs;
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use orlop_backend::Device;

/// A test's path, and the function that says what is wrong, a line each.
type Test = (&'static str, fn(&Arc<dyn Device>) -> Vec<String>);

/// All tests; the last one leaves the GPU unusable.
const ALL: [&[Test]; 6] =
    [conformance::TESTS, elements::TESTS, products::TESTS, attention::TESTS, paged::TESTS, runs::TESTS];

fn main() -> ExitCode {
    let (flags, chosen): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|part| name.contains(part.as_str()));
    let tests: Vec<Test> = ALL.concat().into_iter().filter(|(name, _)| is_chosen(name)).collect();
    let required = flags.iter().any(|flag| flag == "--required");
    if tests.is_empty() && required {
        println!("no test has a name with {}", chosen.join(" or "));
        return ExitCode::FAILURE;
    }
    let device = match orlop_cuda::devices(&support::options()) {
        Ok(devices) if !devices.is_empty() => Arc::clone(&devices[0]),
        Ok(_) => return absent("no NVIDIA GPU was found", tests.len(), required),
        Err(error) => return absent(&error.to_string(), tests.len(), required),
    };
    println!("{}", device.facts().description);
    let mut failed = 0;
    for (name, test) in &tests {
        let begin = Instant::now();
        let failures = test(&device);
        failures.iter().for_each(|failure| println!("  {failure}"));
        let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
        println!("test {name} ... {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
        failed += usize::from(!failures.is_empty());
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {} passed; {failed} failed; 0 ignored", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says that no test ran, in a line that `cargo xtask test` repeats in its summary.
fn absent(reason: &str, tests: usize, required: bool) -> ExitCode {
    println!("not run on this machine: {tests} tests of orlop-cuda on a GPU: {reason}");
    if required { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
