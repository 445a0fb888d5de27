//! Bodies and heads beyond their bounds.

use std::io::Write;

use serde_json::json;

use crate::client::{Connection, request};
use crate::support::start;

#[test]
fn bodies_that_are_no_requests_are_refused_with_their_place() {
    let server = start();
    let bodies: [&[u8]; 12] = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{\"messages\": 1}",
        b"{\"messages\": []}",
        b"{\"messages\": [{}]}",
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\xfe\"}]}",
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}",
        b"{\"messages\": [{\"role\": \"user\", \"content\": {}}]}",
        b"{\"temperature\": 1e999}",
        b"{\"temperature\": NaN}",
    ];
    for body in bodies {
        let answer = request(server.address, "POST", "/v1/chat/completions", &[], body);
        assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(body));
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(request(server.address, "POST", "/v1/chat/completions", &[], deep.as_bytes()).status, 400);
}

#[test]
fn images_are_refused_by_name() {
    let server = start();
    let part = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } });
    let answer =
        server.post("/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": [part] }] }));
    assert_eq!(answer.status, 400);
    let error = &answer.json()["error"];
    assert_eq!(error["param"], "messages[0].content");
    assert!(error["message"].as_str().unwrap().contains("image_url"), "{error}");
}

#[test]
fn bodies_and_heads_that_are_too_large_are_refused_unread() {
    let server = start();
    let mut connection = Connection::open(server.address);
    connection
        .send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n");
    assert_eq!(connection.answer().status, 413);
    // Chunks say nothing of the length; what is sent beyond the bound may meet a closed connection.
    let mut connection = Connection::open(server.address);
    connection
        .send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let sent = (0..200).take_while(|_| connection.0.get_mut().write_all(&chunk).is_ok()).count();
    assert!(sent >= 8 << 4, "{sent}");
    let mut connection = Connection::open(server.address);
    connection.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
    let long = vec![b'a'; 80 << 10];
    // The answer may be lost where not all was read before the connection was closed.
    let _ = connection.0.get_mut().write_all(&long);
    assert!(connection.is_closed());
    let many: Vec<(String, String)> = (0..200).map(|place| (format!("X-{place}"), "a".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(request(server.address, "GET", "/health", &many, b"").status, 431);
    assert_eq!(server.get("/health").status, 200);
}
