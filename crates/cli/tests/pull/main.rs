//! `orlop pull` and `-hf`, with a hub on this machine. They need `curl`, as the command does.
#![cfg(unix)]

mod cached;
mod downloads;
mod hub_server;
mod refused;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;

use std::process::{Command, Stdio};

use hub_server::HubServer;
use support::{Folder, Run};

/// The command with a hub and a cache folder, and no other settings of a hub.
fn command(endpoint: &str, home: &Folder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    for name in ["HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HF_HUB_OFFLINE"] {
        command.env_remove(name);
    }
    command
        .env("HF_ENDPOINT", endpoint)
        .env("HF_HOME", home.path(""))
        .env("NO_PROXY", "*")
        .stdin(Stdio::null());
    command
}

fn finished(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `orlop pull`.
fn pull(server: &HubServer, home: &Folder, model: &str) -> Run {
    finished(command(&server.endpoint(), home).args(["pull", model]))
}

/// The file that a pull prints.
fn pulled(run: Run) -> Vec<u8> {
    std::fs::read(run.result().trim_end()).unwrap()
}
