//! What a system may do to the command: a full disk, memory that is refused, folders that cannot be written, and an end in the
//! middle of a write.
#![cfg(unix)]

mod killed;
mod limits;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use orlop::llm::Synth;

use support::{Folder, Run};

/// A small model's file; its cache takes 8 KiB for each token.
fn model(folder: &Folder) -> String {
    let heads = Synth { kv_heads: 4, key: 64, value: 64, ..Synth::default() };
    let synth = Synth { layers: 8, vocabulary: 2048, context: 1 << 16, ..heads };
    let path = folder.path("model.gguf");
    synth.create(Path::new(&path), &mut |_, _| ()).unwrap();
    path
}

/// Runs the command under a limit of the shell's `ulimit`; a write beyond a limit of files is an error, not a signal.
fn limited(limit: &str, arguments: &[&str]) -> Run {
    let script = format!("trap '' XFSZ; ulimit {limit} && exec \"$@\"");
    run(Command::new("sh").args(["-c", &script, "sh", env!("CARGO_BIN_EXE_orlop")]).args(arguments))
}

fn run(command: &mut Command) -> Run {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Run {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
