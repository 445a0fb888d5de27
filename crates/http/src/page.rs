//! The page at `/`: files that are part of the program. Nothing is loaded from anywhere else.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;

/// A file of the page.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const FILES: [PageFile; 2] = [
    PageFile { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("page/index.html") },
    PageFile {
        path: "/page/style.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("page/style.css"),
    },
];

/// Scripts, styles and connections of the server itself, and nothing else; no other page may show this one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page, if there is one at this path.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let tag = HeaderValue::from_str(&format!("\"{:016x}\"", hash(file.bytes))).ok()?;
    let is_known = headers.get(header::IF_NONE_MATCH) == Some(&tag);
    let mut response = Response::new(if is_known { Body::empty() } else { Body::from(file.bytes) });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let fields = response.headers_mut();
    fields.insert(header::ETAG, tag);
    for (name, value) in [
        (header::CONTENT_TYPE, file.kind),
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
