use std::sync::Arc;

use orlop_backend::Device;
use orlop_testkit::conformance::{self, ConformanceOptions, Report};
use orlop_testkit::guard::Guarded;

use crate::{device, isas, lower, run};

fn report(device: Arc<dyn Device>, threads: usize) -> Report {
    conformance::report(&device, &ConformanceOptions { lower: lower(threads), run: run(threads) })
}

#[test]
fn every_case_passes_with_any_number_of_threads() {
    for isa in isas() {
        for threads in [1, 2, 5] {
            let report = report(device(isa), threads);
            assert!(report.failures.is_empty(), "{isa}, {threads} threads: {:#?}", report.failures);
            assert_eq!(report.unsupported(), 0, "{}", report.markdown());
            assert!(report.passed() >= 1000, "{} cases", report.passed());
        }
    }
}

#[test]
fn the_guard_finds_nothing_in_any_case() {
    for isa in isas() {
        let guarded = Guarded::new(device(isa));
        let report = report(Arc::clone(&guarded) as _, 2);
        assert_eq!(guarded.trespasses(), []);
        assert!(report.failures.is_empty(), "{isa}: {:#?}", report.failures);
    }
}

/// The page that says which op runs where is what the set says.
#[test]
fn the_table_of_ops_in_the_docs_is_true() {
    let reports = [report(device(orlop_cpu::Isa::detect()), 1)];
    let page = format!("{HEAD}{}", conformance::support_table(&reports));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/reference/ops.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(written == page, "docs/src/reference/ops.md is out of date; run this test with UPDATE_GOLDEN=1");
}

const HEAD: &str = "# Ops and devices

Which ops of the conformance set each device runs, made by the test that runs them \
(`UPDATE_GOLDEN=1 cargo test -p orlop-cpu the_table_of_ops`). `all` says that every case of the op passed.

";
