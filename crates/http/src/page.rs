//! The page at `/`: files that are part of the program. Nothing is loaded from anywhere else.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

/// A file of the page.
struct PageFile {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! page_files {
    ($($name:literal),* $(,)?) => {
        &[$(PageFile { name: $name, bytes: include_bytes!(concat!("page/", $name)) }),*]
    };
}

const FILES: &[PageFile] = page_files![
    "index.html",
    "icon.svg",
    "base.css",
    "chat.css",
    "live.css",
    "theme.js",
    "main.js",
    "api.js",
    "cache_map.js",
    "chats.js",
    "colors.js",
    "composer.js",
    "dom.js",
    "drawing.js",
    "exchange.js",
    "highlight.js",
    "keys.js",
    "live.js",
    "markdown.js",
    "memory.js",
    "messages.js",
    "requests.js",
    "settings.js",
    "sidebar.js",
    "spans.js",
    "speed.js",
    "store.js",
    "tree.js",
];

/// Scripts, styles and connections of the server itself, and nothing else; no other page may show this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl PageFile {
    fn kind(&self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        }
    }
}

/// A file of the page, if there is one at this path.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let name = if path == "/" { "index.html" } else { path.strip_prefix("/page/")? };
    let file = FILES.iter().find(|file| file.name == name)?;
    let tag = HeaderValue::from_str(&format!("\"{:016x}\"", hash(file.bytes))).ok()?;
    let is_known = headers.get(header::IF_NONE_MATCH) == Some(&tag);
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(file.bytes) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fields = response.headers_mut();
    fields.insert(header::ETAG, tag);
    for (name, value) in [
        (header::CONTENT_TYPE, file.kind()),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// [FNV-1a](http://www.isthe.com/chongo/tech/comp/fnv/): tells versions of a file apart.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
