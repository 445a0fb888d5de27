use std::sync::Arc;

use orlop_backend::Device;
use orlop_rpc::RpcLimits;
use orlop_testkit::conformance::{ConformanceOptions, Outcome, cases, run};

use crate::support::{Served, device_at};

/// A part of the set, over the client, the protocol and the server.
#[test]
fn cases_that_a_remote_device_accepts_agree_with_the_reference() {
    let served = Served::new(RpcLimits::default());
    let device: Arc<dyn Device> = device_at(served.address());
    let (mut passed, mut failures) = (0, Vec::new());
    // Every op is among them: cases of one op stand together.
    for case in cases().iter().step_by(9) {
        match run(&device, case, &ConformanceOptions::default()) {
            Outcome::Failed(failure) => failures.push((case.name().to_owned(), failure)),
            outcome => passed += usize::from(outcome.is_passed()),
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(passed >= 150, "{passed}");
    assert_eq!(served.refusals(), Vec::<String>::new());
}
