//! Clients that send or read slowly.

use std::io::Write;
use std::time::Duration;

use orlop_http::{ServerBounds, ServerOptions};
use serde_json::json;

use crate::client::Connection;
use crate::support::{Running, options, start_with};

const SOON: Duration = Duration::from_millis(400);

fn impatient() -> Running {
    let bounds =
        ServerBounds { head_time: SOON, body_time: SOON, write_time: SOON, ..ServerBounds::default() };
    start_with(ServerOptions { bounds, ..options() }, 2048)
}

#[test]
fn a_head_that_does_not_end_closes_its_connection() {
    let server = impatient();
    let mut slow = Connection::open(server.address);
    slow.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n");
    // One more byte now and then does not help.
    for _ in 0..20 {
        std::thread::sleep(SOON / 10);
        let _ = slow.0.get_mut().write_all(b"X");
    }
    assert!(slow.is_closed());
    let mut silent = Connection::open(server.address);
    assert!(silent.is_closed());
}

#[test]
fn a_body_that_does_not_end_is_refused() {
    let server = impatient();
    let mut slow = Connection::open(server.address);
    slow.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{");
    let answer = slow.answer();
    assert_eq!(
        (answer.status, answer.json()["error"]["type"].clone()),
        (408, json!("invalid_request_error"))
    );
}

#[test]
fn a_reader_that_takes_nothing_is_cancelled_and_delays_no_other() {
    let server = impatient();
    // Many tokens with their alternatives are more than sockets hold.
    let wanted = json!({
        "prompt": [1, 70, 71], "max_tokens": 200, "n": 64, "logprobs": 20, "ignore_eos": true, "stream": true,
    });
    let slow = server.begin("/v1/completions", &wanted);
    server.until("it runs", || server.metric("orlop_num_requests_running") > 0.0);
    let other = json!({ "prompt": [1, 80, 81], "max_tokens": 20, "ignore_eos": true });
    assert_eq!(server.post("/v1/completions", &other).ok()["usage"]["completion_tokens"], 20);
    server.until_idle();
    assert!(server.metric("orlop_request_success_total{finished_reason=\"cancelled\"}") > 0.0);
    drop(slow);
}

#[test]
fn a_queue_that_is_full_says_when_to_come_again() {
    let bounds = ServerBounds { requests: 2, ..ServerBounds::default() };
    let server = start_with(ServerOptions { bounds, ..options() }, 1024);
    let long = json!({ "prompt": [1, 70, 71], "max_tokens": 400, "ignore_eos": true, "stream": true });
    let running: Vec<Connection> = (0..2)
        .map(|_| {
            let mut connection = server.begin("/v1/completions", &long);
            assert_eq!(connection.head().status, 200);
            connection
        })
        .collect();
    let refused = server.post("/v1/completions", &long);
    assert_eq!((refused.status, refused.json()["error"]["type"].clone()), (429, json!("rate_limit_error")));
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    drop(running);
    server.until("there is room", || {
        server.post("/v1/completions", &json!({ "prompt": [70], "max_tokens": 1 })).status == 200
    });
}

#[test]
fn a_request_is_not_refused_for_what_runs_beside_a_free_place() {
    // No wait at all is accepted.
    let bounds = ServerBounds { queue_time: Duration::ZERO, ..ServerBounds::default() };
    let server = start_with(ServerOptions { bounds, ..options() }, 2048);
    let long = json!({ "prompt": [1, 70, 71], "max_tokens": 800, "ignore_eos": true, "stream": true });
    let mut first = server.begin("/v1/completions", &long);
    assert_eq!(first.head().status, 200);
    (0..40).for_each(|_| assert!(!first.chunk().is_empty()));
    assert_eq!(server.metric("orlop_num_requests_running"), 1.0);
    let second = server.post("/v1/completions", &json!({ "prompt": [1, 80], "max_tokens": 2 }));
    assert_eq!(second.status, 200, "{}", second.text());
}

#[test]
fn prompts_that_wait_are_bounded_in_all() {
    let bounds = ServerBounds { tokens: 100, ..ServerBounds::default() };
    let server = start_with(ServerOptions { bounds, ..options() }, 2048);
    let prompt: Vec<u32> = (0..60).collect();
    // More than sockets hold, so it does not end; one request is taken in any case.
    let long = json!({
        "prompt": prompt, "max_tokens": 200, "n": 64, "logprobs": 20, "ignore_eos": true, "stream": true,
    });
    let mut first = server.begin("/v1/completions", &long);
    assert_eq!(first.head().status, 200);
    let refused = server.post("/v1/completions", &json!({ "prompt": [1], "max_tokens": 1 }));
    assert_eq!(refused.status, 429);
    assert!(
        refused.json()["error"]["message"].as_str().unwrap().contains("3840 tokens"),
        "{}",
        refused.text()
    );
}
