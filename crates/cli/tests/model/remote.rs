//! Servers that are started as commands, and commands that use them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use orlop_testkit::{Disturbance, Relay};
use serde_json::Value;

use crate::support::Run;
use crate::with_model::{command, default_model, json, orlop};

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/tests/models/fixtures/llama-dense.Q4_0.gguf");

/// A server on a free port, until this is dropped.
struct Server(Child, String);

impl Server {
    fn start(extra: &[&str]) -> Server {
        let mut process = command();
        let process =
            process.args(["serve-rpc", "--port", "0", "-t", "1"]).args(extra).stdout(Stdio::piped());
        let mut child = process.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("serving cpu on ").and_then(|rest| rest.split(',').next());
        let name = format!("rpc:{}", address.unwrap_or_else(|| panic!("{line}")));
        Server(child, name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn logits(extra: &[&str]) -> Vec<f64> {
    let arguments = ["logits", "-m", MODEL, "--tokens", "3,1,4,1,5,9,2,6", "-c", "128", "--json"];
    let found = json(&[&arguments, extra].concat());
    let rows = found["logits"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    rows.map(|logit: &Value| logit.as_f64().unwrap()).collect()
}

#[test]
fn logits_on_one_and_two_servers_are_those_of_this_machine() {
    let [one, two] = [(); 2].map(|()| Server::start(&[]));
    let (one, two) = (&*one.1, &*two.1);
    let both = format!("{one},{two}");
    let places = format!("layers:0..1={one},layers:1..2={two},input={one},output={two}");
    let mixed = format!("{one},cpu");
    let local = logits(&["--precision", "int8"]);
    for extra in [
        &["--device", one][..],
        &["--device", &both, "--place", &places],
        &["--device", &mixed, "--ngl", "1"],
    ] {
        let error = logits(extra).iter().zip(&local).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-3, "{extra:?}: {error}");
    }
}

#[test]
fn servers_that_cannot_be_used_are_one_sentence() {
    let said = orlop(&["logits", "-m", MODEL, "--tokens", "1", "--device", "rpc:127.0.0.1:1"]).refusal(1);
    assert!(said.starts_with("cannot connect to 127.0.0.1:1: "), "{said}");
    let said = orlop(&["logits", "-m", MODEL, "--tokens", "1", "--device", "rpc:host:port"]).refusal(2);
    assert_eq!(
        said,
        "`host:port` is no address: the port must be a number from 1 to 65535; write rpc:HOST:PORT"
    );
}

/// What a relay disturbs is what the server answers.
fn relayed(server: &Server, answers: Disturbance) -> Relay {
    let address = server.1.strip_prefix("rpc:").unwrap().parse().unwrap();
    Relay::start(address, [Disturbance::default(), answers]).unwrap()
}

/// Tokens from a server that is cut off behind this many bytes of answers, and from the CPU beside it.
fn generated(server: &Server, tokens: &str, cut: Option<u64>, extra: &[&str]) -> (Run, u64) {
    let relay = relayed(server, Disturbance { cut, ..Disturbance::default() });
    let devices = format!("rpc:{},cpu", relay.address());
    let model = default_model();
    let given = ["run", "-m", &model, "-n", tokens, "-c", "128", "--device", &devices, "--ngl", "1"];
    let run = orlop(&[&given, &["--precision", "int8", "--json", "Once upon"][..], extra].concat());
    (run, relay.counts().received)
}

#[test]
fn a_text_continues_where_it_was_when_a_server_dies() {
    let server = Server::start(&[]);
    let tokens = |run: &Run| serde_json::from_str::<Value>(&run.stdout).unwrap()["tokens"].clone();
    for extra in
        [&["--temp", "0"][..], &["--temp", "1", "--seed", "7", "--repeat-penalty", "1.2", "--lookup"]]
    {
        let (_, first) = generated(&server, "1", None, extra);
        let (whole, bytes) = generated(&server, "12", None, extra);
        assert!(whole.stderr.is_empty() && bytes > first + 50, "{whole:?}");
        for cut in [first + 1, first + 50] {
            let (run, _) = generated(&server, "12", Some(cut), extra);
            assert_eq!(run.status, Some(0), "{run:?}");
            assert!(run.stderr.contains("is lost: the server closed the connection"), "{run:?}");
            assert!(run.stderr.ends_with("; continuing on cpu\n"), "{run:?}");
            assert_eq!(tokens(&run), tokens(&whole), "{extra:?}, {cut} of {bytes}");
        }
    }
}

#[test]
fn without_another_device_a_lost_one_is_the_end() {
    let server = Server::start(&[]);
    let relay = relayed(&server, Disturbance { cut: Some(1000), ..Disturbance::default() });
    let device = format!("rpc:{}", relay.address());
    let run = orlop(&["run", "-m", MODEL, "-n", "40", "--device", &device, "--json", "Once upon"]);
    assert_eq!((run.status, &*run.stdout), (Some(1), ""), "{run:?}");
    assert!(run.stderr.contains("is lost: the server closed the connection"), "{run:?}");
}

/// A file with a key of this digit.
fn key_file(digit: &str) -> String {
    let path = format!("{}/rpc-key-{digit}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, digit.repeat(64) + "\n").unwrap();
    path
}

#[test]
fn with_a_key_a_server_is_reached_from_other_machines_by_those_who_have_it() {
    let [own, other] = ["7", "8"].map(key_file);
    let server = Server::start(&["--host", "0.0.0.0", "--rpc-key-file", &own]);
    let name = &*server.1.replace("0.0.0.0", "127.0.0.1");
    let local = logits(&["--precision", "int8"]);
    let found = logits(&["--device", name, "--rpc-key-file", &own]);
    let error = found.iter().zip(&local).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error < 1e-3, "{error}");
    let refused = |extra: &[&str]| {
        let arguments = ["logits", "-m", MODEL, "--tokens", "1", "--device", name];
        orlop(&[&arguments, extra].concat()).refusal(1)
    };
    assert!(refused(&[]).ends_with("asks for a key; give its key (--rpc-key-file)"));
    assert!(refused(&["--rpc-key-file", &other]).ends_with("has another key; give its key (--rpc-key-file)"));
    let plain = Server::start(&[]);
    let said = orlop(&["logits", "-m", MODEL, "--tokens", "1", "--device", &plain.1, "--rpc-key-file", &own]);
    let said = said.refusal(1);
    assert!(said.ends_with("a key was given; start it with the key, or use no key"), "{said}");
}

#[test]
fn keys_come_from_a_file_or_the_environment() {
    let said = orlop(&["serve-rpc", "--rpc-key-file", "/nonexistent"]).refusal(2);
    assert!(said.starts_with("/nonexistent: cannot read the key"), "{said}");
    let output =
        command().args(["serve-rpc", "--port", "0"]).env("ORLOP_RPC_KEY", "secret").output().unwrap();
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "orlop: ORLOP_RPC_KEY: a key is 64 hexadecimal digits; `openssl rand -hex 32` makes one\n"
    );
    let said = orlop(&["serve-rpc", "--protocol", "3.6.1", "--rpc-key-file", &key_file("9")]).refusal(2);
    assert!(said.starts_with("protocol version 3.6.1 cannot ask for a key"), "{said}");
}

#[test]
fn a_server_listens_on_loopback_addresses_and_speaks_known_versions() {
    let said = orlop(&["serve-rpc", "--host", "0.0.0.0"]).refusal(2);
    assert!(said.starts_with("0.0.0.0:50052 is not a loopback address, and there is no key"), "{said}");
    Server::start(&["--host", "0.0.0.0", "--insecure"]);
    let said = orlop(&["serve-rpc", "--protocol", "5.2.0"]).refusal(2);
    assert!(said.contains("protocol version 5.2.0 is not known"), "{said}");
}
