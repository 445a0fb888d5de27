//! Clients that go away, and servers that end.

use std::time::Duration;

use serde_json::json;

use crate::support::{options, start, start_with};

/// A request that would run for a long time.
fn long() -> serde_json::Value {
    json!({ "prompt": [1, 70, 71], "max_tokens": 900, "ignore_eos": true, "stream": true })
}

#[test]
fn a_client_that_goes_away_cancels_its_request_while_tokens_are_generated() {
    let server = start();
    let mut connection = server.begin("/v1/completions", &long());
    assert_eq!(connection.head().status, 200);
    assert!(!connection.chunk().is_empty());
    // Metrics are a step behind the first token.
    server.until("it was seen", || server.metric("orlop_num_requests_running") == 1.0);
    drop(connection);
    server.until_idle();
    assert_eq!(server.metric("orlop_request_success_total{finished_reason=\"cancelled\"}"), 1.0);
}

#[test]
fn a_client_that_waits_for_a_whole_answer_cancels_it_too() {
    let server = start();
    let mut wanted = long();
    wanted["stream"] = false.into();
    let connection = server.begin("/v1/completions", &wanted);
    server.until("it runs", || server.metric("orlop_num_requests_running") == 1.0);
    drop(connection);
    server.until_idle();
    assert_eq!(server.metric("orlop_request_success_total{finished_reason=\"cancelled\"}"), 1.0);
}

#[test]
fn a_client_that_goes_away_in_the_queue_leaves_it() {
    let options = orlop_http::ServerOptions { parallel: 1, ..options() };
    let server = start_with(options, 1024);
    let first = server.begin("/v1/completions", &long());
    server.until("it runs", || server.metric("orlop_num_requests_running") == 1.0);
    let second = server.begin("/v1/completions", &long());
    server.until("it waits", || server.metric("orlop_num_requests_waiting") == 1.0);
    drop(second);
    server.until("it left", || server.metric("orlop_num_requests_waiting") == 0.0);
    assert_eq!(server.metric("orlop_num_requests_running"), 1.0);
    drop(first);
    server.until_idle();
}

#[test]
fn a_server_that_ends_completes_what_runs_and_takes_nothing_new() {
    let server = start();
    let wanted = json!({ "prompt": [1, 70, 71], "max_tokens": 300, "ignore_eos": true });
    let mut connection = server.begin("/v1/completions", &wanted);
    server.until("it was admitted", || server.metric("orlop_steps_total") > 0.0);
    server.stopper.stop(Duration::from_secs(60));
    let refused = server.post("/v1/completions", &wanted);
    if refused.status != 503 {
        // It ended before the second request came.
        assert_eq!(refused.status, 200);
    }
    assert_eq!(connection.answer().ok()["usage"]["completion_tokens"], 300);
    server.join(Duration::from_secs(60));
}

#[test]
fn a_server_at_its_deadline_ends_streams_with_an_error() {
    let server = start();
    let mut connection = server.begin("/v1/completions", &long());
    assert_eq!(connection.head().status, 200);
    connection.chunk();
    server.stopper.stop(Duration::ZERO);
    let text = String::from_utf8(connection.chunks()).unwrap();
    assert!(text.contains("shutting down"), "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
}

#[test]
fn a_time_without_end_is_none() {
    let server = start();
    server.stopper.stop(Duration::MAX);
    server.join(Duration::ZERO);
}
