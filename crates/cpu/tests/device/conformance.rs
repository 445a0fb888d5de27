use std::sync::Arc;

use orlop_backend::Device;
use orlop_cpu::Isa;
use orlop_testkit::conformance::{self, ConformanceOptions, Report};
use orlop_testkit::guard::Guarded;

use crate::{device, isas, lower, run};

fn report(device: Arc<dyn Device>, threads: usize) -> Report {
    conformance::report(&device, &ConformanceOptions { lower: lower(threads), run: run(threads) })
}

#[test]
fn every_case_passes_with_any_number_of_threads() {
    with_every_isa(|isa| {
        for threads in [1, 2, 5] {
            let report = report(device(isa), threads);
            assert!(report.failures.is_empty(), "{isa}, {threads} threads: {:#?}", report.failures);
            assert_eq!(report.unsupported(), 0, "{}", report.markdown());
            assert!(report.passed() >= 1000, "{} cases", report.passed());
        }
    });
}

#[test]
fn the_guard_finds_nothing_in_any_case() {
    with_every_isa(|isa| {
        let guarded = Guarded::new(device(isa));
        let report = report(Arc::clone(&guarded) as _, 2);
        assert_eq!(guarded.trespasses(), []);
        assert!(report.failures.is_empty(), "{isa}: {:#?}", report.failures);
    });
}

/// Checks each instruction set, all at once.
fn with_every_isa(check: impl Fn(Isa) + Sync) {
    std::thread::scope(|scope| {
        for isa in isas() {
            let check = &check;
            scope.spawn(move || check(isa));
        }
    });
}

#[test]
fn the_ops_page_has_what_the_cpu_runs() {
    conformance::check_ops_page("cpu", &report(device(Isa::detect()), 1));
}
