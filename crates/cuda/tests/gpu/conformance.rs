//! The conformance cases, with fusion, without it, and with F32 products.

use std::sync::Arc;

use orlop_backend::{Device, LowerOptions, Precision};
use orlop_testkit::conformance::{self, ConformanceOptions};

use crate::Test;

pub(crate) const TESTS: &[Test] =
    tests![every_case_agrees, every_case_agrees_without_fusion, every_case_agrees_in_f32];

/// Cases that the device must accept.
const LEAST_CASES: usize = 700;

fn every_case_agrees(device: &Arc<dyn Device>) -> Vec<String> {
    conforms(device, LowerOptions::default())
}

fn every_case_agrees_without_fusion(device: &Arc<dyn Device>) -> Vec<String> {
    conforms(device, LowerOptions { fusion: false, ..LowerOptions::default() })
}

fn every_case_agrees_in_f32(device: &Arc<dyn Device>) -> Vec<String> {
    conforms(device, LowerOptions { precision: Precision::F32, ..LowerOptions::default() })
}

fn conforms(device: &Arc<dyn Device>, lower: LowerOptions) -> Vec<String> {
    let report = conformance::report(device, &ConformanceOptions { lower, ..ConformanceOptions::default() });
    if std::env::var_os("ORLOP_VERBOSE").is_some() {
        println!("{}", report.markdown());
    }
    println!("  {} passed, {} refused, {} failed", report.passed(), report.unsupported(), report.failed());
    let mut failures: Vec<String> =
        report.failures.iter().map(|(name, failure)| format!("{name}: {failure}")).collect();
    if report.passed() < LEAST_CASES {
        failures.push(format!("{} cases passed, at least {LEAST_CASES} must", report.passed()));
    }
    failures
}
