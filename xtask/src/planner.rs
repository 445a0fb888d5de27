//! `cargo xtask bench planner`: quality and speed of the planner.

mod generate;
mod measure;
// The testkit's generator, without what else it needs.
#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/testkit/src/random.rs"]
mod random;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;
use generate::Mix;
use measure::{Measured, machine, measure};

/// What to plan, and the planners to compare with.
#[derive(clap::Args)]
pub(crate) struct Planner {
    /// Folder, searched recursively for *.csv. The name `A.1048576.csv` sets a capacity in bytes; others are minimized.
    folder: Option<PathBuf>,
    /// MiniMalloc's command, to run on problems with a capacity.
    #[arg(long, value_name = "PATH")]
    minimalloc: Option<PathBuf>,
    /// idealloc's command line, with `{input}` for the file, to run on problems without a capacity.
    #[arg(long, value_name = "COMMAND")]
    idealloc: Option<String>,
    /// Runs per problem; the fastest counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Buffers of each generated problem: short-lived, nested, long-lived, and as in training; 0: none.
    #[arg(long, default_value_t = 1_000_000)]
    generated: usize,
    /// Work per buffer for the generated problems, one line each [default: that of `orlop plan`].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    effort: Vec<u64>,
}

/// A problem's file, and the capacity in its name.
struct Case {
    file: PathBuf,
    capacity: Option<u64>,
    effort: Option<u64>,
}

/// Plans every problem and prints a table.
pub(crate) fn run(arguments: &Planner) -> Result<()> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli"]))?;
    let scratch = cargo::target().join("planner");
    std::fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let mut cases = Vec::new();
    if let Some(folder) = &arguments.folder {
        collect(folder, &mut cases)?;
        cases.sort_by(|a, b| (a.capacity.is_none(), &a.file).cmp(&(b.capacity.is_none(), &b.file)));
    }
    if arguments.generated > 0 {
        let given = arguments.effort.iter().copied().map(Some);
        let efforts: Vec<Option<u64>> =
            if arguments.effort.is_empty() { vec![None] } else { given.collect() };
        for mix in Mix::ALL {
            let file = scratch.join(format!("{}-{}.csv", mix.name(), arguments.generated));
            generate::write(&file, mix, arguments.generated)?;
            cases.extend(efforts.iter().map(|effort| Case {
                file: file.clone(),
                capacity: None,
                effort: *effort,
            }));
        }
    }
    ensure!(!cases.is_empty(), "there is nothing to plan; give a folder with *.csv");
    println!("{}, one thread each, the fastest of {}", machine(), arguments.runs);
    println!(
        "{:<28} {:>8} {:>8} {:>16} {:>16} {:>9} {:>8} {:>10} {:>8} {:>12}",
        "problem", "effort", "buffers", "bound", "peak", "gap %", "optimal", "seconds", "MiB", "other, s"
    );
    let mut total = 0.0;
    for case in &cases {
        total += compare(case, arguments, &scratch)?;
    }
    println!("{:<28} {:>82.3}", "all", total);
    Ok(())
}

/// Plans one problem, prints its line, and returns the seconds.
fn compare(case: &Case, arguments: &Planner, scratch: &Path) -> Result<f64> {
    let mut best: Option<(Measured, Value)> = None;
    let mut other: Option<f64> = None;
    for _ in 0..arguments.runs.max(1) {
        let mut ours = Command::new(cargo::orlop());
        ours.arg("plan").arg(&case.file).arg("--json");
        if let Some(capacity) = case.capacity {
            ours.args(["--strategy", "exact", "--capacity", &capacity.to_string()]);
        }
        if let Some(effort) = case.effort {
            ours.args(["--effort", &effort.to_string()]);
        }
        let measured = measure(&mut ours)?;
        let report: Value = serde_json::from_str(&measured.output)
            .with_context(|| format!("reading what orlop says of {}", case.file.display()))?;
        let seconds = |report: &Value| report["seconds"].as_f64().unwrap_or(f64::MAX);
        if best.as_ref().is_none_or(|(_, least)| seconds(&report) < seconds(least)) {
            best = Some((measured, report));
        }
        if let Some(mut command) = peer(case, arguments, scratch)? {
            let seconds = measure(&mut command)?.seconds;
            other = Some(other.map_or(seconds, |least| least.min(seconds)));
        }
    }
    let (measured, report) = best.context("nothing was run")?;
    let number = |key: &str| report[key].as_u64().unwrap_or(0);
    let gap = 100.0 * number("gap") as f64 / number("bound").max(1) as f64;
    let seconds = report["seconds"].as_f64().unwrap_or(f64::NAN);
    println!(
        "{:<28} {:>8} {:>8} {:>16} {:>16} {gap:>9.4} {:>8} {seconds:>10.4} {:>8} {:>12}",
        case.file.file_name().unwrap_or_default().to_string_lossy(),
        case.effort.map_or(String::new(), |effort| effort.to_string()),
        number("buffers"),
        number("bound"),
        number("peak"),
        if report["optimal"] == Value::Bool(true) { "yes" } else { "" },
        measured.most_memory.map_or("?".to_owned(), |bytes| (bytes >> 20).to_string()),
        other.map_or(String::new(), |seconds| format!("{seconds:.4}")),
    );
    Ok(seconds)
}

/// The other planner for a problem, if given.
fn peer(case: &Case, arguments: &Planner, scratch: &Path) -> Result<Option<Command>> {
    if let (Some(capacity), Some(path)) = (case.capacity, &arguments.minimalloc) {
        let mut command = Command::new(path);
        command.arg(format!("--capacity={capacity}")).arg(format!("--input={}", case.file.display()));
        command.arg(format!("--output={}", scratch.join("minimalloc.csv").display()));
        return Ok(Some(command));
    }
    if let (None, Some(line)) = (case.capacity, &arguments.idealloc) {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().context("the command of idealloc is empty")?);
        let input = case.file.display().to_string();
        command.args(words.map(|word| word.replace("{input}", &input)));
        return Ok(Some(command));
    }
    Ok(None)
}

fn collect(folder: &Path, cases: &mut Vec<Case>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
        let file = entry?.path();
        if file.is_dir() {
            collect(&file, cases)?;
        } else if file.extension().is_some_and(|extension| extension == "csv") {
            let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let capacity = stem.rsplit_once('.').and_then(|(_, number)| number.parse().ok());
            cases.push(Case { file, capacity, effort: None });
        }
    }
    Ok(())
}
