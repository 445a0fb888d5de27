//! One streamed request, and when its tokens came.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// When the tokens of an answer came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    /// Seconds from the request to the first token.
    pub(crate) first: f64,
    /// Seconds between tokens.
    pub(crate) between: Vec<f64>,
    /// Tokens, as the server has counted them.
    pub(crate) generated: u64,
    pub(crate) cached: u64,
}

/// The longest silence of a server.
const SILENCE: Duration = Duration::from_secs(600);

/// Continues a prompt by this many tokens, greedily.
pub(crate) fn ask(address: SocketAddr, prompt: &[u64], generate: usize) -> Result<Timing> {
    let body = json!({
        "prompt": prompt,
        "max_tokens": generate,
        "temperature": 0,
        "ignore_eos": true,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    // A server may send the head of its answer with the first token.
    let begin = Instant::now();
    let mut lines = send(address, "POST", "/v1/completions", &body.to_string())?;
    let mut timing = Timing::default();
    let mut last = None;
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(lines.read_line(&mut line)? > 0, "the answer ends early");
        // Lines of chunks and empty ones are between the events.
        let Some(data) = line.strip_prefix("data: ") else { continue };
        if data.trim_end() == "[DONE]" {
            ensure!(timing.generated > 0, "the answer has no usage");
            return Ok(timing);
        }
        let event: Value = serde_json::from_str(data).context("an event")?;
        if let Some(error) = event.get("error") {
            bail!("{error}");
        }
        if let Some(usage) = event.get("usage").filter(|usage| !usage.is_null()) {
            timing.generated = usage["completion_tokens"].as_u64().unwrap_or(0);
            timing.cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        }
        let text = event["choices"][0]["text"].as_str();
        if text.is_some_and(|text| !text.is_empty()) {
            let now = begin.elapsed().as_secs_f64();
            match last {
                None => timing.first = now,
                Some(last) => timing.between.push(now - last),
            }
            last = Some(now);
        }
    }
}

/// Sends a request on a connection of its own; gives the lines after the head of a response that succeeds.
fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )?;
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    ensure!(line.split(' ').nth(1) == Some("200"), "{}", line.trim_end());
    while line != "\r\n" {
        line.clear();
        ensure!(lines.read_line(&mut line)? > 0, "the head of the answer ends early");
    }
    Ok(lines)
}

/// The lines of a page.
pub(crate) fn page(address: SocketAddr, path: &str) -> Result<Vec<String>> {
    Ok(send(address, "GET", path, "")?.lines().collect::<std::io::Result<Vec<String>>>()?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn the_time_before_the_head_counts() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let silence = Duration::from_millis(50);
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                lines.read_line(&mut line).unwrap();
            }
            thread::sleep(silence);
            let text = json!({ "choices": [{ "text": "a" }] });
            let usage = json!({ "choices": [], "usage": { "completion_tokens": 1 } });
            write!(stream, "HTTP/1.1 200 OK\r\n\r\ndata: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
                .unwrap();
        });
        let timing = ask(address, &[1], 1).unwrap();
        server.join().unwrap();
        assert_eq!(timing.generated, 1);
        assert!(timing.first >= silence.as_secs_f64(), "{}", timing.first);
    }
}
