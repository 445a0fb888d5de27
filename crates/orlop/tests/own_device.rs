//! The device of `examples/05-own-device.rs`, judged as every device is.

use std::sync::Arc;

use orlop::backend::Device;
use orlop_testkit::conformance::{ConformanceOptions, report};
use orlop_testkit::guard::Guarded;

#[allow(dead_code)] // its `main`
#[path = "../examples/05-own-device.rs"]
mod example;

#[test]
fn the_device_of_the_example_works_beside_the_cpu() {
    let (sum, table) = example::run().unwrap();
    assert_eq!(sum, -120.0);
    let of = |device: &str| table.lines().filter(|line| line.contains(device)).count();
    assert_eq!((of(" abacus "), of(" cpu ")), (2, 2), "{table}");
}

#[test]
fn what_the_device_of_the_example_accepts_it_computes() {
    let guarded = Guarded::new(example::Abacus::new() as Arc<dyn Device>);
    let report = report(&(Arc::clone(&guarded) as _), &ConformanceOptions::default());
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(report.passed() > 0, "{}", report.markdown());
    assert_eq!(guarded.trespasses(), []);
}
