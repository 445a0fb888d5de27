//! Answers as [server-sent events](https://html.spec.whatwg.org/multipage/server-sent-events.html).

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures_util::stream::unfold;
use serde_json::Value as Json;

use super::answer::{Answers, Piece};
use super::report;
use crate::api_error::ApiError;
use crate::bounds;

/// Events that are about to be sent.
#[derive(Debug, Default)]
pub(crate) struct Frames(String);

impl Frames {
    /// An event without a name.
    pub(crate) fn data(&mut self, json: &Json) {
        self.0.push_str(&format!("data: {json}\n\n"));
    }

    /// An event with a name.
    pub(crate) fn named(&mut self, name: &str, json: &Json) {
        self.0.push_str(&format!("event: {name}\ndata: {json}\n\n"));
    }

    /// What ends the streams of OpenAI's older APIs.
    pub(crate) fn done(&mut self) {
        self.0.push_str("data: [DONE]\n\n");
    }

    fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }
}

/// How an API writes a stream.
pub(crate) trait Protocol: Send + 'static {
    /// Before the first token.
    fn begin(&mut self, frames: &mut Frames);

    /// More of an answer.
    fn piece(&mut self, choice: usize, piece: Piece, frames: &mut Frames);

    /// All answers are complete.
    fn finish(&mut self, frames: &mut Frames);

    /// An answer cannot be completed.
    fn failed(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.json());
    }
}

struct Stream<P> {
    answers: Answers,
    protocol: P,
    frames: Frames,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Middle,
    End,
}

/// A response that streams answers, or has what the stream makes when all are complete.
pub(crate) async fn response_or_whole<P: Protocol>(
    mut answers: Answers,
    mut protocol: P,
    streams: bool,
    whole: impl FnOnce(&P) -> Json,
) -> Result<Response, ApiError> {
    if streams {
        return Ok(response(answers, protocol));
    }
    let mut unseen = Frames::default();
    while let Some(next) = answers.next().await {
        let (choice, piece) = next?;
        protocol.piece(choice, piece, &mut unseen);
    }
    Ok(report::response(&whole(&protocol)))
}

/// A response that streams answers. If its reader goes away it is dropped, which cancels them.
pub(crate) fn response(answers: Answers, protocol: impl Protocol) -> Response {
    let stream = Stream { answers, protocol, frames: Frames::default(), stage: Stage::Begin };
    let bodies = unfold(stream, |mut stream| async move {
        let bytes = stream.next().await?;
        Some((Ok::<_, Infallible>(bytes), stream))
    });
    events(Body::from_stream(bodies))
}

/// A response of server-sent events.
pub(crate) fn events(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies would collect events otherwise.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A comment, which clients skip: it shows that the connection lives.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b":\n\n");

impl<P: Protocol> Stream<P> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.stage {
                Stage::End => return None,
                Stage::Begin => {
                    self.stage = Stage::Middle;
                    self.protocol.begin(&mut self.frames);
                }
                Stage::Middle => match tokio::time::timeout(bounds::KEEP_ALIVE, self.answers.next()).await {
                    Err(_) => return Some(COMMENT),
                    Ok(Some(Ok((choice, piece)))) => self.protocol.piece(choice, piece, &mut self.frames),
                    Ok(Some(Err(error))) => {
                        self.protocol.failed(&error, &mut self.frames);
                        self.stage = Stage::End;
                    }
                    Ok(None) => {
                        self.protocol.finish(&mut self.frames);
                        self.stage = Stage::End;
                    }
                },
            }
            let bytes = self.frames.take();
            if !bytes.is_empty() {
                return Some(bytes);
            }
        }
    }
}
