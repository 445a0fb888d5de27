//! Servers that are measured.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cells::Load;
use super::loader;

/// A program that serves, and how it uses its cache.
pub(crate) enum Program {
    Orlop(PathBuf),
    /// llama.cpp, with an equal part of the cache for each client.
    LlamaSplit(PathBuf),
    /// llama.cpp, with one cache for all.
    LlamaUnified(PathBuf),
}

/// A server that runs. It ends when it is dropped.
pub(crate) struct Server {
    name: &'static str,
    address: SocketAddr,
    process: Child,
}

impl Server {
    /// Starts a server for a load, and waits until it is ready.
    pub(crate) fn start(program: &Program, model: &Path, load: &Load, threads: usize) -> Result<Server> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let clients = load.clients + usize::from(load.intruder.is_some());
        let (name, mut command) = match program {
            Program::Orlop(path) => {
                let mut command = Command::new(path);
                let parallel = clients.to_string();
                command.args([
                    "serve",
                    "--log",
                    "off",
                    "-c",
                    &load.rows.to_string(),
                    "--parallel",
                    &parallel,
                ]);
                command.args(["-t", &threads.to_string()]);
                ("orlop", command)
            }
            Program::LlamaSplit(path) => {
                let mut command = Command::new(path);
                // Each client has the same part, so all have room for the longest sequence.
                let rows = clients * load.context();
                command.args(["-np", &clients.to_string(), "-c", &rows.to_string()]);
                llama(&mut command, threads);
                ("llama.cpp, split", command)
            }
            Program::LlamaUnified(path) => {
                let mut command = Command::new(path);
                command.args(["-np", &clients.to_string(), "-c", &load.rows.to_string(), "--kv-unified"]);
                llama(&mut command, threads);
                ("llama.cpp, unified", command)
            }
        };
        command.arg("-m").arg(model).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.with_context(|| format!("starting {name}"))?;
        let mut server = Server { name, address, process };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        let begin = Instant::now();
        while loader::page(self.address, "/health").is_err() {
            ensure!(self.process.try_wait()?.is_none(), "{} has ended", self.name);
            ensure!(begin.elapsed() < Duration::from_secs(120), "{} does not become ready", self.name);
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The most bytes that were resident, if the system says so.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    }

    /// Numbers of its metrics whose names begin so, added.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let lines = loader::page(self.address, "/metrics").ok()?;
        let values = lines.iter().filter(|line| line.starts_with(name));
        let values: Vec<f64> = values.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// llama.cpp with the settings that make it equal: the same threads, types of the cache, and no other caches.
fn llama(command: &mut Command, threads: usize) {
    let threads = threads.to_string();
    command.args(["-t", &threads, "-tb", &threads, "-cb", "-fa", "on", "-b", "2048", "-ub", "512"]);
    command.args([
        "-ctk",
        "f16",
        "-ctv",
        "f16",
        "--no-ui",
        "--metrics",
        "--cache-ram",
        "0",
        "--cache-reuse",
        "0",
    ]);
}
