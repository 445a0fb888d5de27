//! With `--fit`: plans with added steps within a share of the bound, replayed by a checker of their values.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use serde_json::Value;

use super::replay::replay;

/// A capacity is never below this multiple of the floor.
const ABOVE_FLOOR: f64 = 1.05;
/// Most added time, as a share of the time of the given steps.
const MOST_ADDED: f64 = 0.10;
/// Exit status for a capacity that is proven impossible.
const IMPOSSIBLE: i32 = 4;

/// Plans of one file.
#[derive(Default)]
struct Family {
    graphs: usize,
    /// Graphs whose plans have added steps.
    changed: usize,
    met: usize,
    /// Bytes: bounds, capacities, plans.
    bound: u128,
    capacity: u128,
    peak: u128,
    added_seconds: f64,
    given_seconds: f64,
    /// The largest share of added time of one graph.
    most: f64,
    proven: usize,
}

impl Family {
    fn add(&mut self, other: &Family) {
        self.graphs += other.graphs;
        self.changed += other.changed;
        self.met += other.met;
        self.bound += other.bound;
        self.capacity += other.capacity;
        self.peak += other.peak;
        self.added_seconds += other.added_seconds;
        self.given_seconds += other.given_seconds;
        self.most = self.most.max(other.most);
        self.proven += other.proven;
    }

    fn added(&self) -> f64 {
        self.added_seconds / self.given_seconds.max(f64::MIN_POSITIVE)
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:<24} {:>6} {:>6} {:>8} {:>16} {:>16} {:>16} {:>8.2} {:>8.2} {:>8}",
            self.graphs,
            self.met,
            self.changed,
            self.bound,
            self.capacity,
            self.peak,
            100.0 * self.added(),
            100.0 * self.most,
            self.proven
        )
    }
}

/// Plans every graph of one buffer within `share` of its bound. Fails if one is not met, if a plan computes other values,
/// if a capacity below the floor is not proven impossible, or if more than a tenth is added to the time of all graphs.
pub(super) fn run(command: &Path, files: &[PathBuf], share: f64) -> Result<()> {
    println!(
        "{:<24} {:>6} {:>6} {:>8} {:>16} {:>16} {:>16} {:>8} {:>8} {:>8}",
        "file", "graphs", "met", "changed", "bound", "capacity", "planned", "added %", "most %", "proven"
    );
    let scratch = std::env::temp_dir().join(format!("orlop-fit-{}", std::process::id()));
    fs::create_dir(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let families =
        files.iter().map(|file| family(command, file, share, &scratch)).collect::<Result<Vec<_>>>();
    // Removed even if a plan failed.
    fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    let mut all = Family::default();
    families?.iter().for_each(|family| all.add(family));
    println!("{}", all.line("all"));
    ensure!(all.met == all.graphs, "{} capacities are not met", all.graphs - all.met);
    ensure!(all.added() <= MOST_ADDED, "{:.2} % are added to the time", 100.0 * all.added());
    Ok(())
}

fn family(command: &Path, file: &Path, share: f64, scratch: &Path) -> Result<Family> {
    let mut family = Family::default();
    for line in BufReader::new(MultiGzDecoder::new(File::open(file)?)).lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let graph: Value = serde_json::from_str(&line)?;
        if graph["buffers"].as_array().map_or(0, Vec::len) == 1 {
            let label = graph["label"].as_str().context("a graph without a label")?;
            family.add(&fit(command, &line, &graph, share, scratch).with_context(|| label.to_owned())?);
        }
    }
    println!("{}", family.line(&file.file_name().unwrap_or_default().to_string_lossy()));
    Ok(family)
}

/// Plans one graph within its capacity, and one byte below its floor.
fn fit(command: &Path, line: &str, graph: &Value, share: f64, scratch: &Path) -> Result<Family> {
    let (file, out) = (scratch.join("graph.jsonl"), scratch.join("plan.jsonl"));
    fs::write(&file, line)?;
    let plan = |capacity: Option<u64>| {
        let mut run = Command::new(command);
        run.args(["plan", "--json", "--output"]).args([&out, &file]);
        run.args(capacity.iter().flat_map(|capacity| ["--capacity".to_owned(), capacity.to_string()]));
        run.output().with_context(|| format!("starting {}", command.display()))
    };
    let report =
        |output: &std::process::Output| -> Result<Value> { Ok(serde_json::from_slice(&output.stdout)?) };
    let given = report(&plan(None)?)?;
    let floor = given["floor"].as_u64().context("no floor")?;
    let bound = given["buffers"][0]["bound"].as_u64().context("no bound")?;
    if floor > 0 {
        let below = plan(Some(floor - 1))?;
        ensure!(
            below.status.code() == Some(IMPOSSIBLE),
            "below the floor, planning ends with {}",
            below.status
        );
    }
    let capacity = ((share * bound as f64).max(ABOVE_FLOOR * floor as f64)) as u64;
    let output = plan(Some(capacity))?;
    let given_seconds = given["seconds"].as_f64().context("no time")?;
    let (bound, capacity_bytes) = (bound.into(), capacity.into());
    let mut family =
        Family { graphs: 1, bound, capacity: capacity_bytes, given_seconds, ..Family::default() };
    match output.status.code() {
        Some(0) => family.met = 1,
        Some(3) => {
            println!("    not met: {}", String::from_utf8_lossy(&output.stderr).trim_end());
            return Ok(family);
        }
        _ => bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end()),
    }
    let made = report(&output)?;
    let peak = made["buffers"][0]["peak"].as_u64().context("no peak")?;
    ensure!(peak <= capacity, "the plan takes {peak} bytes of {capacity}");
    family.peak = peak.into();
    if let Some(added) = made["added"].as_object() {
        let number =
            |key: &str| added.get(key).and_then(Value::as_f64).with_context(|| format!("no `{key}`"));
        family.changed = 1;
        family.added_seconds = number("seconds")?;
        family.most = family.added();
        family.proven = usize::from(added.get("cheapest") == Some(&Value::Bool(true)));
        let placed: Value = serde_json::from_str(&fs::read_to_string(&out)?)?;
        replay(graph, &placed, peak)?;
    }
    Ok(family)
}
