//! Devices that are lost while requests run and wait.

use std::sync::Arc;

use orlop_http::ServerOptions;
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice};
use serde_json::json;

use crate::support::{cpu, model, options, start_on};

#[test]
fn a_lost_device_ends_what_ran_there_and_the_queue_is_answered_without_it() {
    let device = TestDevice::builder(cpu()).name("faulty").build();
    let options = ServerOptions { parallel: 1, ..options() };
    let server = start_on(Arc::clone(&device) as _, options, 1024, model());
    let wanted =
        |prompt: u32| json!({ "prompt": [1, prompt], "max_tokens": 8, "temperature": 0, "ignore_eos": true });
    let expected = server.post("/v1/completions", &wanted(90)).ok();
    let mut long = wanted(70);
    (long["max_tokens"], long["stream"]) = (900.into(), true.into());
    let mut first = server.begin("/v1/completions", &long);
    assert_eq!(first.head().status, 200);
    assert!(!first.chunk().is_empty());
    let mut second = server.begin("/v1/completions", &wanted(90));
    server.until("it waits", || server.metric("orlop_num_requests_waiting") == 1.0);
    device.faults().lose();
    let text = String::from_utf8(first.chunks()).unwrap();
    assert!(text.contains("server_error") && !text.contains("[DONE]"), "{text}");
    assert_eq!(second.answer().ok()["choices"][0]["text"], expected["choices"][0]["text"]);
}

#[test]
fn a_run_that_fails_once_ends_no_request() {
    let device = TestDevice::builder(cpu()).name("faulty").build();
    let server = start_on(Arc::clone(&device) as _, options(), 1024, model());
    let wanted = json!({ "prompt": [1, 70], "max_tokens": 40, "temperature": 0, "ignore_eos": true });
    let expected = server.post("/v1/completions", &wanted).ok();
    device.faults().fail(FaultPoint::Submit, 7, FaultKind::OutOfMemory);
    assert_eq!(
        server.post("/v1/completions", &wanted).ok()["choices"][0]["text"],
        expected["choices"][0]["text"]
    );
    assert_eq!(device.faults().open(), 0, "the fault has happened");
}
