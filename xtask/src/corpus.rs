//! `cargo xtask check corpus`: plans recorded ggml graphs and compares with ggml's plans.

mod fit;
mod orders;
mod replay;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use serde_json::Value;

use crate::cargo;
use orders::OrderOutcome;

/// The result of one graph.
struct Outcome {
    label: String,
    /// Every tensor has ggml's offset.
    same_places: bool,
    /// Every chunk of ggml's plan has the recorded height.
    same_heights: bool,
    /// No buffer is larger than ggml's.
    never_larger: bool,
    ggml: u128,
    peak: u128,
    bound: u128,
    /// With `--reorder`.
    order: Option<OrderOutcome>,
}

impl Outcome {
    fn within_bound(&self) -> bool {
        self.peak <= self.bound
    }

    /// Peak over bound.
    fn ratio(&self) -> f64 {
        if self.bound == 0 { 1.0 } else { self.peak as f64 / self.bound as f64 }
    }
}

/// Graphs to plan, and how.
#[derive(clap::Args)]
pub(crate) struct Corpus {
    /// Folder, searched recursively for *.jsonl.gz.
    folder: PathBuf,
    /// Only files whose names contain TEXT; may be repeated.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Number of graphs furthest from the bound to list.
    #[arg(long, default_value_t = 10)]
    worst: usize,
    /// Instead, add steps to meet this share of each bound, or 1.05 of the floor if that is more, and replay the plans.
    #[arg(long, value_name = "SHARE", conflicts_with = "options")]
    fit: Option<f64>,
    /// Arguments of `orlop plan`.
    #[arg(last = true)]
    options: Vec<String>,
}

/// Plans every graph file of a folder, prints a table, and fails unless ggml's plans are reproduced and no buffer is
/// larger.
pub(crate) fn run(Corpus { folder, only, worst, fit, options }: &Corpus) -> Result<()> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli"]))?;
    let command = cargo::orlop();
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    let name = |file: &PathBuf| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    files.retain(|file| only.is_empty() || only.iter().any(|text| name(file).contains(text)));
    ensure!(!files.is_empty(), "there is no such *.jsonl.gz in {}", folder.display());
    if let Some(share) = fit {
        return fit::run(&command, &files, *share);
    }

    println!(
        "{:<24} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "file", "graphs", "places", "heights", "<= ggml", "<= bound", "seconds"
    );
    let mut all: Vec<(String, Vec<Outcome>)> = Vec::new();
    let mut total = Duration::ZERO;
    for file in &files {
        let (outcomes, time) = sweep(&command, file, options)?;
        let name = name(file);
        print_row(&name, &outcomes, time);
        all.push((name, outcomes));
        total += time;
    }
    let families = orders::families(&all);
    let mut all: Vec<Outcome> = all.into_iter().flat_map(|(_, outcomes)| outcomes).collect();
    print_row("all", &all, total);
    families.iter().for_each(|line| println!("{line}"));
    summary(&mut all, *worst);
    let wrong = all.iter().filter(|graph| {
        let in_order = graph.order.as_ref().is_none_or(OrderOutcome::is_right);
        !(graph.same_places && graph.same_heights && graph.never_larger && in_order)
    });
    match wrong.count() {
        0 => Ok(()),
        count => bail!("{count} graphs differ from what their files say, or got larger"),
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.to_string_lossy().ends_with(".jsonl.gz") {
            files.push(path);
        }
    }
    Ok(())
}

/// Plans one file and compares line by line.
fn sweep(command: &Path, file: &Path, options: &[String]) -> Result<(Vec<Outcome>, Duration)> {
    let out = std::env::temp_dir().join(format!("orlop-corpus-{}.jsonl", std::process::id()));
    let began = Instant::now();
    let run = Command::new(command)
        .args(["plan", "--json", "--output"])
        .args([&out, file])
        .args(options)
        .output()
        .with_context(|| format!("starting {}", command.display()))?;
    let time = began.elapsed();
    let text = std::fs::read_to_string(&out);
    // Removed even if the run failed; it may not exist then.
    let _ = std::fs::remove_file(&out);
    if !run.status.success() {
        bail!("{}", String::from_utf8_lossy(&run.stderr).trim_end());
    }
    let (reports, places) = (String::from_utf8(run.stdout)?, text.context("reading the places")?);
    let graphs = BufReader::new(MultiGzDecoder::new(File::open(file)?)).lines();
    let mut outcomes = Vec::new();
    let (mut reports, mut places) = (reports.lines(), places.lines());
    for graph in graphs {
        let graph = graph?;
        if graph.trim().is_empty() {
            continue;
        }
        let (Some(report), Some(place)) = (reports.next(), places.next()) else {
            bail!("{}: there are more graphs than answers", file.display());
        };
        let [graph, report, place] = [graph.as_str(), report, place].map(serde_json::from_str::<Value>);
        outcomes.push(compare(&graph?, &report?, &place?)?);
    }
    Ok((outcomes, time))
}

fn compare(graph: &Value, report: &Value, places: &Value) -> Result<Outcome> {
    let label = graph["label"].as_str().context("a graph without a label")?.to_owned();
    ensure!(
        report["label"] == graph["label"] && places["label"] == graph["label"],
        "answers are out of order"
    );
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut expected = list(&graph["plan"]);
    expected.sort_by_key(|place| place[0].as_u64());
    let buffers = list(&report["buffers"]);
    let bytes = |buffer: &Value, key: &str| u128::from(buffer[key].as_u64().unwrap_or(u64::MAX));
    let sum = |key: &str| buffers.iter().map(|buffer| bytes(buffer, key)).sum();
    let ggml: Vec<Value> = buffers.iter().map(|buffer| buffer["ggml"].clone()).collect();
    Ok(Outcome {
        label,
        same_places: list(&places["ggml"]) == expected,
        same_heights: ggml == list(&graph["reserved"]) && heights(graph, &places["ggml"]) == graph["planned"],
        never_larger: buffers.iter().all(|buffer| bytes(buffer, "peak") <= bytes(buffer, "ggml")),
        ggml: sum("ggml"),
        peak: sum("peak"),
        bound: sum("bound"),
        order: OrderOutcome::of(graph, &buffers, places)?,
    })
}

/// Heights of the chunks of each buffer, computed from the offsets.
fn heights(graph: &Value, places: &Value) -> Value {
    let buffers = graph["buffers"].as_array().map_or(0, Vec::len);
    let mut heights = vec![Vec::<u64>::new(); buffers];
    for place in places.as_array().into_iter().flatten() {
        let [tensor, buffer, chunk, offset] =
            [0, 1, 2, 3].map(|index| place[index].as_u64().unwrap_or(0) as usize);
        let alignment = graph["buffers"][buffer]["alignment"].as_u64().unwrap_or(1).max(1);
        let bytes = graph["tensors"][tensor]["bytes"].as_u64().unwrap_or(0).next_multiple_of(alignment);
        let Some(chunks) = heights.get_mut(buffer) else { continue };
        chunks.resize(chunks.len().max(chunk + 1), 0);
        chunks[chunk] = chunks[chunk].max(offset as u64 + bytes);
    }
    heights.into()
}

fn print_row(name: &str, outcomes: &[Outcome], time: Duration) {
    let count = |holds: fn(&Outcome) -> bool| outcomes.iter().filter(|graph| holds(graph)).count();
    println!(
        "{name:<24} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8.2}",
        outcomes.len(),
        count(|graph| graph.same_places),
        count(|graph| graph.same_heights),
        count(|graph| graph.never_larger),
        count(Outcome::within_bound),
        time.as_secs_f64()
    );
}

/// Prints the share of graphs at or below the bound, the savings, and the graphs furthest above the bound.
fn summary(all: &mut [Outcome], worst: usize) {
    let within = all.iter().filter(|graph| graph.within_bound()).count();
    let percent = 100.0 * within as f64 / all.len().max(1) as f64;
    let [ggml, peak, bound] = all.iter().fold([0; 3], |[ggml, peak, bound], graph| {
        [ggml + graph.ggml, peak + graph.peak, bound + graph.bound]
    });
    println!("\n{percent:.1} % of the graphs are at or below the bound");
    println!("bytes of all graphs: ggml {ggml}, planned {peak}, bound {bound}");
    all.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()).then_with(|| a.label.cmp(&b.label)));
    let above: Vec<&Outcome> = all.iter().filter(|graph| !graph.within_bound()).take(worst).collect();
    if !above.is_empty() {
        println!("\nfurthest above the bound:");
    }
    for graph in above {
        let ggml = graph.ggml as f64 / graph.bound.max(1) as f64;
        println!("{:>10.6}  (ggml {ggml:.6})  {}", graph.ratio(), graph.label);
    }
}
