//! Measures Orlop at both ends, plain and encrypted, runs the conformance set on a real server of ggml, and measures llama.cpp's client and Orlop's alternately on the same
//! servers, over relays that delay every byte: `peer FOLDER ORLOP MODEL [ROUNDS]`, where FOLDER has llama.cpp's programs.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_backend::Device;
use orlop_rpc::{RpcDevice, RpcOptions};
use orlop_testkit::conformance::{CaseFailure, ConformanceOptions, report};
use orlop_testkit::{Disturbance, Relay};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Tokens of the prompt and of the answer.
const TOKENS: [&str; 2] = ["256", "32"];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, orlop, model, rest @ ..] = &arguments[..] else {
        return Err("usage: peer FOLDER ORLOP MODEL [ROUNDS]".into());
    };
    let rounds = rest.first().map_or(Ok(2), |rounds| rounds.parse())?;
    let peer = Peer { folder: folder.into(), orlop: orlop.into(), model: model.clone() };
    both_ends(&peer, rounds)?;
    conformance(&peer)?;
    println!("{:>7} {:>6} | {:>22} | {:>22} | ratio", "remotes", "RTT", "llama.cpp pp, tg", "orlop pp, tg");
    for remotes in [1, 2, 4] {
        for delay in [0, 1, 10] {
            speed(&peer, remotes, Duration::from_millis(delay), rounds)?;
        }
    }
    Ok(())
}

struct Peer {
    folder: PathBuf,
    orlop: PathBuf,
    model: String,
}

impl Peer {
    /// A server with one thread, on a free port.
    fn serve(&self) -> Result<Served> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let port = address.port().to_string();
        let mut command = self.command("ggml-rpc-server");
        let process = command.args(["-p", &port, "-t", "1"]).stdout(Stdio::null()).stderr(Stdio::null());
        let served = Served { process: process.spawn()?, address };
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err("the server does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(served)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.env("LD_LIBRARY_PATH", &self.folder);
        command
    }

    /// Tokens a second of llama.cpp's client: prompt and generation.
    fn theirs(&self, servers: &[SocketAddr]) -> Result<[f64; 2]> {
        let list: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        let mut command = self.command("llama-bench");
        command.args(["-m", &self.model, "--rpc", &list.join(","), "-ngl", "99", "-fa", "1", "-t", "1"]);
        command.args(["-p", TOKENS[0], "-n", TOKENS[1], "-r", "1", "-ub", "256", "-o", "json"]);
        let text = output(&mut command)?;
        let mut speeds = numbers(&text, "avg_ts");
        Ok([speeds.next().ok_or("no prompt")?, speeds.next().ok_or("no generation")?])
    }

    /// Tokens a second of this client.
    fn ours(&self, servers: &[SocketAddr]) -> Result<[f64; 2]> {
        let names: Vec<String> = servers.iter().map(|server| format!("rpc:{server}")).collect();
        let devices = names.join(",");
        let mut extra = vec!["--device".to_owned(), devices];
        if names.len() > 1 {
            let layers = self.layers()?;
            let cut = |index: usize| index * layers / names.len();
            let part =
                |(index, name): (usize, &String)| format!("layers:{}..{}={name}", cut(index), cut(index + 1));
            let mut places: Vec<String> = names.iter().enumerate().map(part).collect();
            places.push(format!("input={},output={}", names[0], names[names.len() - 1]));
            extra.extend(["--place".to_owned(), places.join(",")]);
        }
        self.bench(&extra)
    }

    /// Tokens a second of Orlop: prompt and generation.
    fn bench(&self, extra: &[String]) -> Result<[f64; 2]> {
        let mut command = Command::new(&self.orlop);
        command.args(["bench", "-m", &self.model, "-c", "512", "-ub", "256", "-r", "1", "--json"]);
        command.args(["-p", TOKENS[0], "-n", TOKENS[1]]).args(extra);
        let text = output(&mut command)?;
        // With the quotation mark: predictions are there, too.
        let mut speeds = numbers(&text, "\"tokens_per_second");
        Ok([speeds.next().ok_or("no prompt")?, speeds.next().ok_or("no generation")?])
    }

    /// The model's layers.
    fn layers(&self) -> Result<usize> {
        let text = output(Command::new(&self.orlop).args(["inspect", &self.model, "--json"]))?;
        let (_, behind) = text.split_once("block_count\"").ok_or("the file names no layers")?;
        let digits: String =
            behind.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        Ok(digits.parse()?)
    }
}

struct Served {
    process: Child,
    address: SocketAddr,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn output(command: &mut Command) -> Result<String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The numbers behind a key of JSON.
fn numbers<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = f64> + 'a {
    text.split(key).skip(1).filter_map(|behind| {
        let digits = behind.trim_start_matches(['"', ':', ' ', '\n']);
        digits.split([',', '}', '\n']).next()?.trim().parse().ok()
    })
}

/// Orlop's own server with one thread, on a free port.
fn own(peer: &Peer, key: &[String]) -> Result<Served> {
    let mut command = Command::new(&peer.orlop);
    command.args(["serve-rpc", "--port", "0", "-t", "1"]).args(key).stdout(Stdio::piped());
    let mut process = command.spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let address = line.split([' ', ',']).find_map(|word| word.parse().ok()).ok_or(line)?;
    Ok(Served { process, address })
}

/// The speed of one thread here, over a server of Orlop's own, and over one with a key: the best of the rounds, and the least.
fn both_ends(peer: &Peer, rounds: usize) -> Result<()> {
    let file = std::env::temp_dir().join(format!("orlop-rpc-key-{}", std::process::id()));
    std::fs::write(&file, "5a".repeat(32))?;
    let key = ["--rpc-key-file".to_owned(), file.display().to_string()];
    let served = [own(peer, &[])?, own(peer, &key)?];
    let [plain, encrypted] =
        [0, 1].map(|index| vec!["--device".to_owned(), format!("rpc:{}", served[index].address)]);
    let local = ["-t", "1", "--precision", "int8"].map(str::to_owned).to_vec();
    let kinds = [("local", local), ("remote", plain), ("encrypted", [encrypted, key.to_vec()].concat())];
    let mut speeds = vec![Vec::new(); kinds.len()];
    for _ in 0..rounds {
        for ((_, extra), speeds) in kinds.iter().zip(&mut speeds) {
            speeds.push(peer.bench(extra)?);
        }
    }
    std::fs::remove_file(&file)?;
    let range = |speeds: &[[f64; 2]], test: usize| {
        let of_test = || speeds.iter().map(move |speed| speed[test]);
        (of_test().fold(f64::MAX, f64::min), of_test().fold(0.0, f64::max))
    };
    for ((name, _), found) in kinds.iter().zip(&speeds) {
        let [prompt, token] = [0, 1].map(|test| {
            let (least, most) = range(found, test);
            format!("{most:.1} (from {least:.1}), {:.2} of local", most / range(&speeds[0], test).1)
        });
        println!("both ends, {name:<9} | prompt {prompt} | generation {token}");
    }
    Ok(())
}

/// The set on one server. Differences that follow from ggml's kernels are counted apart.
fn conformance(peer: &Peer) -> Result<()> {
    let served = peer.serve()?;
    let devices = RpcDevice::connect(&[served.address.to_string().parse()?], &RpcOptions::default())?;
    let device: Arc<dyn Device> = devices.into_iter().next().ok_or("no device")?;
    let report = report(&device, &ConformanceOptions::default());
    let (known, unknown): (Vec<_>, Vec<_>) =
        report.failures.iter().partition(|(name, failure)| is_known(name, failure));
    println!(
        "conformance: {} passed, {} refused, {} differ as ggml's kernels do, {} failed",
        report.passed(),
        report.unsupported(),
        known.len(),
        unknown.len()
    );
    if unknown.is_empty() { Ok(()) } else { Err(format!("{unknown:#?}").into()) }
}

/// Among equal elements and NaN, ggml's sorts have another order; GELU is a table of F16; sums of values in F16 are rounded to
/// F16; rows that are hidden as a whole have no softmax.
fn is_known(name: &str, failure: &CaseFailure) -> bool {
    let sorts = ["argmax", "argsort", "top_k"].iter().any(|op| name.starts_with(op));
    let special = ["ties", "equal", "infinities", "numbers"].iter().any(|kind| name.contains(kind));
    let hidden = name.contains("rows of minus infinity") || name.contains("every row hidden");
    let rounded = (name.starts_with("ge") && name.contains("lu")) || name.contains("f16");
    match failure {
        CaseFailure::Unequal { .. } => sorts && special,
        CaseFailure::Inexact { error, .. } => hidden || rounded && *error < 1.2e-5,
        _ => false,
    }
}

fn speed(peer: &Peer, remotes: usize, round_trip: Duration, rounds: usize) -> Result<()> {
    let served = (0..remotes).map(|_| peer.serve()).collect::<Result<Vec<_>>>()?;
    let late = Disturbance { delay: round_trip / 2, ..Disturbance::default() };
    let relays = served.iter().map(|served| Ok(Relay::start(served.address, [late; 2])?));
    let relays: Vec<Relay> = relays.collect::<Result<_>>()?;
    let addresses: Vec<SocketAddr> = match round_trip.is_zero() {
        true => served.iter().map(|served| served.address).collect(),
        false => relays.iter().map(Relay::address).collect(),
    };
    let mut best = [[0f64; 2]; 2];
    for _ in 0..rounds {
        for (best, speeds) in best.iter_mut().zip([peer.theirs(&addresses)?, peer.ours(&addresses)?]) {
            *best = [best[0].max(speeds[0]), best[1].max(speeds[1])];
        }
    }
    let [theirs, ours] = best;
    println!(
        "{remotes:>7} {:>3} ms | {:>10.1} {:>11.1} | {:>10.1} {:>11.1} | {:.2} {:.2}",
        round_trip.as_millis(),
        theirs[0],
        theirs[1],
        ours[0],
        ours[1],
        ours[0] / theirs[0],
        ours[1] / theirs[1]
    );
    Ok(())
}
