//! The server as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use orlop::llm::{Experts, Synth};
use serde_json::Value;

use crate::support::Folder;
use crate::with_model::command;

/// A server, and the lines of its log that were not read yet.
pub(crate) struct Server {
    process: Child,
    log: BufReader<ChildStderr>,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let mut command = command();
        command.args(["serve", "--port", "0", "--log", "json", "-c", "1024", "-t", "1"]).args(arguments);
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let ready = event(&mut log);
        assert_eq!(ready["event"], "ready", "{ready}");
        let address = ready["address"].as_str().unwrap().parse().unwrap();
        Server { process, log, address }
    }

    /// The whole response to a request.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let head = "Host: localhost\r\nConnection: close\r\n";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id() as i32), signal).unwrap();
    }

    /// The exit status after a signal.
    pub(crate) fn ended_by(self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        self.status_after_end()
    }

    /// The exit status of a server that ends.
    fn status_after_end(mut self) -> Option<i32> {
        self.process.wait().unwrap().code()
    }

    fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn event(log: &mut BufReader<ChildStderr>) -> Value {
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

/// A number of the metrics.
fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_server_allocates_what_it_planned_and_answers_in_a_log_of_objects() {
    let mut server = Server::start(&["--alias", "small"]);
    let body = r#"{"messages":[{"role":"user","content":"Say hi."}],"max_tokens":4,"temperature":0}"#;
    let answer = server.ask("POST", "/v1/chat/completions", body);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"model\":\"small\""), "{answer}");
    let logged = [event(&mut server.log), event(&mut server.log)];
    let answered = logged.iter().find(|event| event["event"] == "answer").unwrap();
    assert_eq!((&answered["end"], &answered["completion_tokens"]), (&"length".into(), &4.into()));
    let responded = logged.iter().find(|event| event["event"] == "response").unwrap();
    assert_eq!((&responded["path"], &responded["status"]), (&"/v1/chat/completions".into(), &200.into()));
    let metrics = server.ask("GET", "/metrics", "");
    let [planned, allocated] =
        ["orlop_planned_bytes", "orlop_allocated_bytes"].map(|name| metric(&metrics, name));
    assert!(planned == allocated && planned > 98e6, "{planned} {allocated}");
}

#[test]
fn a_signal_lets_running_requests_end_and_a_second_one_does_not() {
    for (signals, ends) in [(1, "length"), (2, "shutting down")] {
        let server = Server::start(&[]);
        let mut stream = TcpStream::connect(server.address).unwrap();
        let body = r#"{"prompt":"One, two,","max_tokens":200,"ignore_eos":true,"stream":true}"#;
        let length = body.len();
        let head = "Host: localhost\r\nConnection: close\r\n";
        write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
        for _ in 0..signals {
            server.signal(Signal::SIGTERM);
            // Signals that come at the same time are one.
            while !server_has_seen(&server) {}
        }
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert!(rest.contains(ends), "after {signals} signals: {rest}");
        assert_eq!(server.status_after_end(), Some(0));
    }
}

/// Whether the server refuses requests, which it does after the first signal.
fn server_has_seen(server: &Server) -> bool {
    match TcpStream::connect(server.address) {
        Err(_) => true,
        Ok(_) => server.ask("GET", "/health", "").starts_with("HTTP/1.1 503"),
    }
}

#[test]
fn counts_of_experts_are_written_when_the_server_ends() {
    let folder = Folder::new();
    let [model, counts] = ["moe.gguf", "counts.json"].map(|name| folder.path(name));
    let experts = Experts { count: 8, used: 2, hidden: 64, ..Experts::default() };
    let synth = Synth { experts: Some(experts), vocabulary: 300, context: 1024, ..Synth::default() };
    std::fs::write(&model, synth.bytes().unwrap()).unwrap();
    let server = Server::start(&["-m", &model, "--expert-stats", &counts]);
    let body = r#"{"prompt":"One, two,","max_tokens":3,"ignore_eos":true}"#;
    let answer = server.ask("POST", "/v1/completions", body);
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(!std::path::Path::new(&counts).exists());
    server.signal(Signal::SIGTERM);
    assert_eq!(server.status_after_end(), Some(0));
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&counts).unwrap()).unwrap();
    let first = written["layers"][0]["counts"].as_array().unwrap();
    let sum: u64 = first.iter().map(|count| count.as_u64().unwrap()).sum();
    assert!(first.len() == 8 && sum >= 2 * 5 && sum.is_multiple_of(2), "{written}");
}

#[test]
fn a_port_that_is_in_use_is_an_error() {
    let server = Server::start(&[]);
    let port = server.address.port().to_string();
    let second = crate::with_model::orlop(&["serve", "--port", &port]);
    assert_eq!(second.status, Some(1));
    assert!(second.sentence().contains("--port"), "{second:?}");
    assert_eq!(server.ended_by(Signal::SIGINT), Some(0));
}

/// As many as this process may open.
fn idle_connections() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let most: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    most.saturating_sub(200).min(10_000)
}

/// Whether the other end has neither sent anything nor closed.
fn is_open(connection: &TcpStream) -> bool {
    connection.set_nonblocking(true).unwrap();
    connection.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
#[cfg(target_os = "linux")]
fn idle_connections_are_cheap_and_do_not_keep_others_out() {
    let server = Server::start(&[]);
    let count = idle_connections();
    assert!(count >= 500, "only {count} connections can be opened here");
    let before = server.resident_bytes();
    let connections: Vec<TcpStream> =
        (0..count).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert!(server.ask("GET", "/health", "").starts_with("HTTP/1.1 200"));
    let open_there = metric(&server.ask("GET", "/metrics", ""), "orlop_connections");
    let each = server.resident_bytes().saturating_sub(before) / open_there as u64;
    // A busy machine may take so long to open them that the server has closed the first ones.
    let open_here = connections.iter().filter(|connection| is_open(connection)).count();
    assert!(
        open_here >= 500 && open_there > open_here as f64,
        "{open_here} of {count} here, {open_there} there"
    );
    assert!(each < 20 << 10, "{each} bytes for each of {open_there} connections");
}
