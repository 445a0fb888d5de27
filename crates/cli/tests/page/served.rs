//! `orlop serve` with a tiny model, behind a relay that can answer chats by a script.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use orlop::gguf::MetadataValue;
use orlop::llm::Synth;
use serde_json::{Value, json};

use crate::support::Folder;
use crate::with_model::command;

const TEMPLATE: &str = "\
    {% for message in messages %}<|{{ message.role }}|>{{ message.content }}\n{% endfor %}\
    {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// A server that runs until it is dropped.
pub(crate) struct Served {
    process: Child,
    /// Its log stays open: a server that cannot write it would end.
    _log: BufReader<ChildStderr>,
    /// Of the server.
    pub(crate) server: SocketAddr,
    /// Of the relay, which browsers visit.
    pub(crate) address: SocketAddr,
    relayed: Arc<Relayed>,
    _folder: Folder,
}

/// What the threads of the relay share.
#[derive(Default)]
struct Relayed {
    scripts: Mutex<VecDeque<Receiver<Value>>>,
    /// Chats that were asked for.
    asked: Mutex<Vec<Value>>,
}

/// An answer that is written part by part, and complete when this is dropped.
pub(crate) struct Script(Sender<Value>);

impl Script {
    /// Gives more of the text. False once the reader has gone away.
    pub(crate) fn say(&self, text: &str) -> bool {
        self.0.send(json!({"choices": [{"index": 0, "delta": {"content": text}}]})).is_ok()
    }

    /// Gives more of the reasoning.
    pub(crate) fn think(&self, text: &str) {
        self.0.send(json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})).unwrap();
    }

    /// Fails.
    pub(crate) fn fail(&self, message: &str) {
        self.0.send(json!({"error": {"message": message}})).unwrap();
    }
}

impl Served {
    /// Starts it.
    pub(crate) fn start(arguments: &[&str]) -> Served {
        let folder = Folder::new();
        let model = folder.path("tiny.gguf");
        let metadata = vec![("tokenizer.chat_template".to_owned(), MetadataValue::from(TEMPLATE))];
        let synth = Synth { context: 512, vocabulary: 400, metadata, ..Synth::default() };
        synth.create(&model, &mut |_, _| {}).unwrap();
        let mut command = command();
        command.args(["serve", "-m", &model, "--port", "0", "--log", "json", "-c", "2048", "-t", "1"]);
        let command = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let server: SocketAddr = ready["address"].as_str().unwrap().parse().unwrap();
        let relayed = Arc::new(Relayed::default());
        let address = relay(server, &relayed);
        Served { process, _log: log, server, address, relayed, _folder: folder }
    }

    /// The next chat that is not scripted yet is answered by this.
    pub(crate) fn script(&self) -> Script {
        let (sender, receiver) = channel();
        self.relayed.scripts.lock().unwrap().push_back(receiver);
        Script(sender)
    }

    /// The next chat is answered by this text.
    pub(crate) fn scripted(&self, text: &str) {
        self.script().say(text);
    }

    /// The last chat that was asked for.
    pub(crate) fn last_asked(&self) -> Value {
        self.relayed.asked.lock().unwrap().last().cloned().unwrap_or_default()
    }

    /// Asks the server for something, and keeps the connection.
    pub(crate) fn begin(&self, path: &str, json: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.server).unwrap();
        let body = json.to_string();
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where connections are passed on to the server from.
fn relay(server: SocketAddr, relayed: &Arc<Relayed>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let relayed = Arc::clone(relayed);
    // The threads end with the process.
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let relayed = Arc::clone(&relayed);
            std::thread::spawn(move || pass_on(client?, server, &relayed));
        }
    });
    address
}

/// Passes one request on, or answers it by a script. A browser that goes away is no failure.
fn pass_on(mut client: TcpStream, server: SocketAddr, relayed: &Relayed) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let name = line.to_ascii_lowercase();
        if let Some(value) = name.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        match line.as_str() {
            "\r\n" => break,
            _ if name.starts_with("connection:") => {}
            line => head.push_str(line),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if head.starts_with("POST /v1/chat/completions ") {
        relayed.asked.lock().unwrap().push(serde_json::from_slice(&body)?);
        if let Some(script) = relayed.scripts.lock().unwrap().pop_front() {
            return recite(&mut client, &script);
        }
    }
    let mut upstream = TcpStream::connect(server)?;
    write!(upstream, "{head}Connection: close\r\n\r\n")?;
    upstream.write_all(&body)?;
    io::copy(&mut upstream, &mut client).map(drop)
}

/// Writes an answer as a server does.
fn recite(client: &mut TcpStream, script: &Receiver<Value>) -> io::Result<()> {
    write!(client, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")?;
    write!(client, "data: {}\n\n", json!({"choices": [{"delta": {"role": "assistant", "content": null}}]}))?;
    for event in script {
        write!(client, "data: {event}\n\n")?;
    }
    let end = json!({
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "timings": {"predicted_per_second": 42.125},
    });
    let usage = json!({
        "prompt_tokens": 120, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 64},
    });
    write!(client, "data: {end}\n\ndata: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage}))
}
