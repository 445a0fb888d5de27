//! The page at `/`: its files, their policy and size, and who may have them.

use std::collections::BTreeMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use orlop_http::ServerOptions;
use serde_json::{Value as Json, json};

use crate::client::{Answer, Connection, request};
use crate::support::{Running, options, start, start_with};

/// All files that the page refers to, by path.
fn files(server: &Running) -> BTreeMap<String, Answer> {
    let mut found = BTreeMap::new();
    let mut paths = vec!["/".to_owned()];
    while let Some(path) = paths.pop() {
        if found.contains_key(&path) {
            continue;
        }
        let file = server.get(&path);
        assert_eq!(file.status, 200, "{path}");
        for quoted in file.text().split('"') {
            if let Some(name) = quoted.strip_prefix("./").filter(|name| name.ends_with(".js")) {
                paths.push(format!("/page/{name}"));
            } else if quoted.starts_with("/page/") {
                paths.push(quoted.to_owned());
            }
        }
        found.insert(path, file);
    }
    found
}

#[test]
fn every_file_of_the_page_is_served_and_none_is_left_over() {
    let server = start();
    let served = files(&server);
    let mut names: Vec<&str> =
        served.keys().map(|path| path.strip_prefix("/page/").unwrap_or("index.html")).collect();
    names.sort_unstable();
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/page")).unwrap();
    let mut known: Vec<String> =
        folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    known.sort_unstable();
    assert_eq!(names, known);
    for (path, file) in &served {
        let kind = match path.rsplit_once('.') {
            None => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            Some(_) => "text/javascript; charset=utf-8",
        };
        assert_eq!(file.header("content-type"), Some(kind), "{path}");
        assert_eq!(file.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(file.header("cache-control"), Some("no-cache"), "{path}");
        let tag = file.header("etag").unwrap();
        let again = request(server.address, "GET", path, &[("If-None-Match", tag)], b"");
        assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(tag)), "{path}");
        let other = request(server.address, "GET", path, &[("If-None-Match", "\"0\"")], b"");
        assert_eq!((other.status, &other.body), (200, &file.body), "{path}");
    }
    for path in ["/page/", "/page/none.js", "/page/../page.rs", "/page/index.html/"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn the_page_is_smaller_than_80_kilobytes() {
    let server = start();
    let compressed = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().len()
    };
    let sizes: Vec<usize> = files(&server).values().map(|file| compressed(&file.body)).collect();
    let size: usize = sizes.iter().sum();
    println!("{} files, {size} bytes compressed", sizes.len());
    assert!(size < 80_000, "{size} bytes");
}

#[test]
fn the_policy_allows_the_server_itself_and_the_page_needs_no_more() {
    let server = start();
    for (path, file) in files(&server) {
        let policy = file.header("content-security-policy").unwrap();
        let mut directives = BTreeMap::new();
        for directive in policy.split("; ") {
            let (name, source) = directive.split_once(' ').unwrap();
            assert!(source == "'none'" || source == "'self'", "{path}: {directive}");
            directives.insert(name, source);
        }
        for closed in ["default-src", "base-uri", "form-action", "frame-ancestors"] {
            assert_eq!(directives.get(closed), Some(&"'none'"), "{path}: {closed}");
        }
        let text = file.text();
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            " style=",
            "<style",
        ] {
            assert!(!text.contains(forbidden), "{path} has {forbidden}");
        }
        let inline = text.split("<script").skip(1).filter(|rest| !rest.trim_start().starts_with("src="));
        let inline: Vec<&str> = inline.filter(|rest| !rest.starts_with(" type=\"module\" src=")).collect();
        assert!(path != "/" || inline.is_empty(), "{inline:?}");
        for scheme in ["http://", "https://"] {
            let hosts = text.split(scheme).skip(1).map(|rest| rest.split('/').next().unwrap());
            // The namespace of pictures is a name that is not loaded.
            let others: Vec<&str> = hosts.filter(|host| *host != "www.w3.org").collect();
            assert!(others.is_empty(), "{path} names {others:?}");
        }
    }
}

#[test]
fn the_page_is_open_and_what_it_shows_needs_a_key() {
    let keys = vec!["sk-first".to_owned()];
    let server = start_with(ServerOptions { keys, ..options() }, 128);
    let status = |path: &str, headers: &[(&str, &str)]| {
        let mut connection = Connection::open(server.address);
        connection.ask("GET", path, headers, b"");
        connection.head().status
    };
    for path in ["/", "/page/main.js", "/page/icon.svg"] {
        assert_eq!(status(path, &[]), 200, "{path}");
        assert_eq!(status(path, &[("Host", "evil.example")]), 403, "{path}");
    }
    assert_eq!(status("/orlop/live", &[]), 401);
    assert_eq!(status("/orlop/live", &[("Authorization", "Bearer sk-first")]), 200);
    let elsewhere = [("Authorization", "Bearer sk-first"), ("Origin", "https://evil.example")];
    assert_eq!(status("/orlop/live", &elsewhere), 403);
}

#[test]
fn the_live_feed_counts_what_happened_since_the_server_began() {
    let server = start();
    // The first snapshot of a feed.
    let counts = || {
        let mut feed = Connection::open(server.address);
        feed.ask("GET", "/orlop/live", &[], b"");
        assert_eq!(feed.head().status, 200);
        loop {
            let text = String::from_utf8(feed.chunk()).unwrap();
            if let Some(data) = text.strip_prefix("event: snapshot\ndata: ") {
                break serde_json::from_str::<Json>(data).unwrap()["counts"].clone();
            }
        }
    };
    let fresh = counts();
    assert_eq!((&fresh["prompt_tokens"], &fresh["generated_tokens"]), (&json!(0), &json!(0)));
    let asked = json!({ "prompt": [1, 70, 71], "max_tokens": 5, "ignore_eos": true });
    server.post("/v1/completions", &asked).ok();
    server.until_idle();
    let after = counts();
    assert_eq!((&after["prompt_tokens"], &after["generated_tokens"]), (&json!(3), &json!(5)));
    assert_eq!((&after["parked"], &after["evicted_pages"]), (&json!(0), &json!(0)));
}
