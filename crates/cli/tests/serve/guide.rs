//! The requests that the guide sends, and the endpoints that it lists.

use serde_json::Value;

use crate::process::Server;

const PAGE: &str = include_str!("../../../../docs/src/guide/serve.md");

/// The path and body of each `curl` line.
fn requests() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.lines().filter_map(|line| {
        let (path, body) = line.strip_prefix("curl http://127.0.0.1:8080")?.split_once(" -d '")?;
        Some((path, body.strip_suffix('\'')?))
    })
}

#[test]
fn the_requests_of_the_guide_are_answered() {
    assert_eq!(requests().count(), PAGE.matches("curl ").count());
    let server = Server::start(&[]);
    for (path, body) in requests() {
        let answer = server.ask("POST", path, body);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Paris"), "{path}: {answer}");
    }
}

#[test]
fn the_guide_lists_every_endpoint() {
    let answer = Server::start(&[]).ask("GET", "/openapi.json", "");
    let (_, described) = answer.split_once("\r\n\r\n").unwrap();
    let described: Value = serde_json::from_str(described).unwrap();
    let paths = described["paths"].as_object().unwrap();
    let missing: Vec<&String> = paths.keys().filter(|path| !PAGE.contains(&format!("{path}`"))).collect();
    assert!(paths.len() > 15 && missing.is_empty(), "{missing:?} of {}", paths.len());
}
