//! Bodies of requests: bytes within their bounds, and JSON.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value as Json;

use crate::api_error::ApiError;
use crate::bounds;

/// All bytes of a body.
pub(crate) async fn read(headers: &HeaderMap, body: Body, time: Duration) -> Result<Vec<u8>, ApiError> {
    let too_large = || {
        let message = format!("the body is larger than {} bytes", bounds::BODY_BYTES);
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > bounds::BODY_BYTES as u64) {
        return Err(too_large());
    }
    let whole = tokio::time::timeout(time, Limited::new(body, bounds::BODY_BYTES).collect()).await;
    match whole {
        Ok(Ok(body)) => Ok(body.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(ApiError::bad(format!("the body could not be read ({error})"))),
        Err(_) => {
            let message = format!("the body took longer than {} s", time.as_secs_f32());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
        }
    }
}

/// The JSON of a body.
pub(crate) fn json(bytes: &[u8]) -> Result<Json, ApiError> {
    let values = values(bytes);
    if values > bounds::JSON_VALUES {
        let message = format!("the body has {values} values, of at most {}", bounds::JSON_VALUES);
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        // The message has a place and what was expected there, and nothing of the body.
        ApiError::bad(format!("the body is not valid JSON: {error}"))
    })
}

/// How many values a text of JSON has at most: one more than it has commas and brackets outside of texts.
fn values(bytes: &[u8]) -> usize {
    let (mut in_text, mut escaped, mut count) = (false, false, 1);
    for byte in bytes {
        match (in_text, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_text = !in_text,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts_only() {
        for (text, count) in [("1", 1), ("[1,2]", 3), (r#"{"a":[",[{",2]}"#, 4), (r#"["\",",1]"#, 3), ("", 1)]
        {
            assert_eq!(values(text.as_bytes()), count, "{text}");
        }
        let many = format!("[{}0]", "0,".repeat(bounds::JSON_VALUES));
        assert_eq!(json(many.as_bytes()).unwrap_err().status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn messages_about_json_show_nothing_of_the_body() {
        for text in [
            &b"{\"secret\": nothing}"[..],
            b"secret",
            b"\"\xff\xfe\"",
            b"[1e999]",
            b"",
            b"{\"a\":\"\\ud800\"}",
        ] {
            let error = json(text).unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST);
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
        let deep = "[".repeat(100_000);
        assert_eq!(json(deep.as_bytes()).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}
