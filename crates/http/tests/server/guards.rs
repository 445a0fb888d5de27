//! Keys, hosts and origins.

use orlop_http::{HttpServer, ServerError, ServerOptions};
use serde_json::json;

use crate::client::request;
use crate::support::{cpu, model, options, served, start, start_models, start_with};

#[test]
fn a_key_is_needed_for_everything_but_the_health() {
    let keys = vec!["sk-first".to_owned(), "sk-second".to_owned()];
    let server = start_with(ServerOptions { keys, ..options() }, 128);
    let status =
        |path: &str, headers: &[(&str, &str)]| request(server.address, "GET", path, headers, b"").status;
    assert_eq!(status("/health", &[]), 200);
    for path in ["/v1/models", "/metrics", "/props", "/nothing"] {
        assert_eq!(status(path, &[]), 401, "{path}");
        assert_eq!(status(path, &[("Authorization", "Bearer sk-third")]), 401, "{path}");
    }
    assert_eq!(status("/v1/models", &[("Authorization", "Bearer sk-second")]), 200);
    assert_eq!(status("/v1/models", &[("X-Api-Key", "sk-first")]), 200);
    let refused = server.post("/v1/chat/completions", &json!({}));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!(refused.json()["error"]["type"], "authentication_error");
}

#[test]
fn pages_of_other_sites_are_refused() {
    let origins = vec!["https://chat.example".to_owned()];
    let hosts = vec!["box.example".to_owned()];
    let server = start_with(ServerOptions { origins, hosts, ..options() }, 128);
    let ask = |host: &str, origin: &str| {
        let mut headers = vec![("Host", host)];
        headers.extend((!origin.is_empty()).then_some(("Origin", origin)));
        request(server.address, "GET", "/v1/models", &headers, b"")
    };
    for (host, origin, status) in [
        ("localhost:1", "", 200),
        ("127.0.0.1:8080", "http://localhost:3000", 200),
        ("box.example", "http://box.example", 200),
        ("10.1.2.3:80", "https://chat.example", 200),
        ("evil.example", "", 403),
        ("localhost", "https://evil.example", 403),
        ("localhost", "null", 403),
    ] {
        let answer = ask(host, origin);
        assert_eq!(answer.status, status, "{host} {origin}");
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, (status == 200 && !origin.is_empty()).then_some(origin));
    }
    let headers = [("Origin", "https://chat.example"), ("Access-Control-Request-Method", "POST")];
    let asked = request(server.address, "OPTIONS", "/v1/chat/completions", &headers, b"");
    assert_eq!(
        (asked.status, asked.header("access-control-allow-methods")),
        (204, Some("GET, POST, OPTIONS"))
    );
}

#[test]
fn without_a_key_only_loopback_is_listened_on() {
    let address = "0.0.0.0:0".parse().unwrap();
    let refused = HttpServer::bind(ServerOptions { address, ..options() }).unwrap_err();
    assert!(matches!(refused, ServerError::Open { .. }), "{refused}");
    drop(HttpServer::bind(ServerOptions { address, insecure: true, ..options() }).unwrap());
    drop(HttpServer::bind(ServerOptions { address, keys: vec!["key".to_owned()], ..options() }).unwrap());
    let bad = HttpServer::bind(ServerOptions { keys: vec!["a key".to_owned()], ..options() }).unwrap_err();
    assert!(matches!(bad, ServerError::BadKey), "{bad}");
}

#[test]
fn a_server_without_a_model_says_that_it_is_loading() {
    let server = HttpServer::bind(options()).unwrap();
    for (method, path) in [("GET", "/health"), ("POST", "/v1/chat/completions")] {
        let answer = request(server.address(), method, path, &[], b"{}");
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.json()["error"]["message"], "Loading model");
    }
    assert_eq!(request(server.address(), "GET", "/v1/models", &[], b"").status, 200);
}

#[test]
fn unknown_paths_and_methods_are_errors_in_json() {
    let server = start();
    let missing = server.get("/v1/nothing");
    assert_eq!((missing.status, missing.json()["error"]["type"].clone()), (404, json!("not_found_error")));
    let wrong = server.get("/v1/chat/completions");
    assert_eq!((wrong.status, wrong.json()["error"]["type"].clone()), (405, json!("invalid_request_error")));
}

#[test]
fn only_the_known_model_is_answered_if_that_is_wanted() {
    let options = ServerOptions { strict_model: true, ..options() };
    let tiny = served("tiny", cpu(), &model(), options.parallel, 128);
    let server = start_models(options, vec![tiny]);
    let ask = |model: &str| {
        server.post("/v1/completions", &json!({ "model": model, "prompt": "a", "max_tokens": 1 }))
    };
    assert_eq!(ask("tiny").ok()["model"], "tiny");
    assert_eq!(ask("gpt-9").status, 404);
}
