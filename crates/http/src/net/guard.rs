//! Who may ask: keys, and the hosts and origins that requests name.
//!
//! A web page of another site can make a browser send requests to a server on the same machine, or have its own name resolved
//! to it ([DNS rebinding](https://en.wikipedia.org/wiki/DNS_rebinding)). So the `Host` must be one of the server's names and
//! the `Origin` an allowed one.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;

use crate::api_error::ApiError;
use crate::front::Front;

/// The place of a request's key among the server's, plus one; 0 without keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Caller(pub(crate) u64);

/// Paths that need no key: what orchestrators ask, and the page, which has a place for the key.
const OPEN: [&str; 3] = ["/health", "/v1/health", "/"];

/// Lets a request pass that may, and answers questions about origins.
pub(crate) async fn guard(State(front): State<Arc<Front>>, mut request: Request, next: Next) -> Response {
    let origin = match origin(&front, request.headers(), request.uri()) {
        Ok(origin) => origin,
        Err(error) => return error.into_response(),
    };
    if request.method() == Method::OPTIONS {
        return with_origin(StatusCode::NO_CONTENT.into_response(), origin);
    }
    let path = request.uri().path();
    let response = match caller(&front.options.keys, request.headers()) {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None if OPEN.contains(&path) || path.starts_with("/page/") => next.run(request).await,
        None => {
            let message = "Invalid API key: send one in `Authorization: Bearer` or `X-Api-Key`";
            ApiError::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key").into_response()
        }
    };
    with_origin(response, origin)
}

/// Whose request it is; `None` if it has no valid key.
fn caller(keys: &[String], headers: &HeaderMap) -> Option<Caller> {
    if keys.is_empty() {
        return Some(Caller(0));
    }
    let bearer = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
    let bearer = bearer.and_then(|value| {
        value.get(..7).filter(|start| start.eq_ignore_ascii_case(b"bearer ")).map(|_| &value[7..])
    });
    let given = [bearer, headers.get("x-api-key").map(HeaderValue::as_bytes)];
    let mut found = 0;
    // All keys are compared, each in constant time.
    for (place, key) in (1..).zip(keys) {
        for given in given.into_iter().flatten() {
            found |= u64::from(bool::from(given.ct_eq(key.as_bytes()))) * place;
        }
    }
    (found > 0).then_some(Caller(found))
}

/// The origin of a web page that may use the server; `None` if no page asks.
fn origin(front: &Front, headers: &HeaderMap, uri: &Uri) -> Result<Option<HeaderValue>, ApiError> {
    let host = match (headers.get(header::HOST), uri.authority()) {
        (Some(host), _) => host.to_str().unwrap_or_default().to_owned(),
        (None, Some(authority)) => authority.as_str().to_owned(),
        (None, None) => String::new(),
    };
    if !knows_host(front, name_of(&host)) {
        let message = format!("`{}` is not a name of this server", shown(&host));
        return Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("unknown_host"));
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(None) };
    let text = origin.to_str().unwrap_or_default();
    let place = text.split_once("://").map_or("", |(_, place)| place);
    let own = place == host || is_loopback(name_of(place));
    if own || front.options.origins.iter().any(|allowed| allowed == "*" || allowed == text) {
        return Ok(Some(origin.clone()));
    }
    let message = format!("pages of `{}` may not use this server", shown(text));
    Err(ApiError::new(StatusCode::FORBIDDEN, message).with_code("unknown_origin"))
}

/// Text of a header for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).filter(|c| !c.is_control()).collect()
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Addresses cannot be rebound, so every one of them is a name of the server.
fn knows_host(front: &Front, name: &str) -> bool {
    name.is_empty()
        || is_loopback(name)
        || name.parse::<std::net::IpAddr>().is_ok()
        || front.options.hosts.iter().any(|host| host == "*" || host.eq_ignore_ascii_case(name))
}

fn with_origin(mut response: Response, origin: Option<HeaderValue>) -> Response {
    const ALLOWED: [(HeaderName, &str); 4] = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, authorization, content-type, x-api-key"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "x-request-id, retry-after"),
        (header::VARY, "origin"),
    ];
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        for (name, value) in ALLOWED {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_their_port() {
        for (host, name) in
            [("a.b:80", "a.b"), ("a.b", "a.b"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("", "")]
        {
            assert_eq!(name_of(host), name);
        }
    }

    #[test]
    fn a_key_is_found_in_either_header_and_only_whole() {
        let keys = ["first".to_owned(), "second".to_owned()];
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            caller(&keys, &headers)
        };
        assert_eq!(with("authorization", "Bearer second"), Some(Caller(2)));
        assert_eq!(with("authorization", "bearer first"), Some(Caller(1)));
        assert_eq!(with("x-api-key", "first"), Some(Caller(1)));
        for wrong in ["firs", "firstt", "Bearer first", ""] {
            assert_eq!(with("x-api-key", wrong), None, "{wrong}");
        }
        assert_eq!(with("authorization", "Bear"), None);
        assert_eq!(caller(&[], &HeaderMap::new()), Some(Caller(0)));
    }
}
