//! Time and memory of other programs.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// The result of a program.
pub(crate) struct Measured {
    pub(crate) output: String,
    /// Wall time, including file I/O.
    pub(crate) seconds: f64,
    /// Peak resident memory, on Linux.
    pub(crate) most_memory: Option<u64>,
}

/// Sampling interval of the memory.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a program, which must succeed.
pub(crate) fn measure(command: &mut Command) -> Result<Measured> {
    let name = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("starting {name}"))?;
    let mut pipe = child.stdout.take().context("no output pipe")?;
    let reader = std::thread::spawn(move || {
        let mut output = String::new();
        pipe.read_to_string(&mut output).map(|_| output)
    });
    let mut most_memory = None;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("waiting for {name}"))? {
            break status;
        }
        most_memory = memory_of(child.id()).or(most_memory);
        // Poll short runs more often.
        std::thread::sleep(LOOK.min(began.elapsed() / 16));
    };
    let seconds = began.elapsed().as_secs_f64();
    ensure!(status.success(), "{name} ended with {status}");
    let output = reader.join().ok().context("reading what was printed")?;
    Ok(Measured {
        output: output.with_context(|| format!("reading what {name} printed"))?,
        seconds,
        most_memory,
    })
}

fn memory_of(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// A short description of the machine.
pub(crate) fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {threads} threads, {}", std::env::consts::OS)
}
