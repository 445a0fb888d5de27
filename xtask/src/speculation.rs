//! `cargo xtask bench speculation`: generation with and without drafts, alternating, on tasks where drafts help and on tasks
//! where they do not.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::peers::build;
use crate::peers::measure::median;
use crate::peers::process::ask;

/// What to measure.
#[derive(Args)]
pub(crate) struct Speculation {
    /// Model file (.gguf) [default: SmolLM2-135M-Instruct]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Draft model; its tasks are left out without one.
    #[arg(long, value_name = "FILE")]
    model_draft: Option<PathBuf>,
    /// Numbers of threads.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Rounds of alternating runs.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Device, as for `orlop run`.
    #[arg(long, value_name = "NAMES", default_value = "cpu")]
    device: String,
}

/// A text, and how it is generated.
struct Task {
    name: &'static str,
    prompt: &'static str,
    words: &'static [&'static str],
}

const EDIT: &str = "Text with mistakes:
The library is open from Tuesday to Saturday. On Tuesday morning, volunteers sort the returned books and put them back on the \
shelves. The reading room on the second floor has forty seats, twelve desks with lamps, and a large window that looks over the \
river. Members may borrow up to ten books for four weeks. A book that is late costs twenty cents a day, but nobody has ever \
paid more than five dollars.

The same text, with the mistakes corrected:
The library is";

const CODE: &str = "Old version of the file:

fn area(width: f64, height: f64) -> f64 {
    width * height
}

fn perimeter(width: f64, height: f64) -> f64 {
    2.0 * (width + height)
}

fn diagonal(width: f64, height: f64) -> f64 {
    (width * width + height * height).sqrt()
}

New version of the file, with a function for the ratio of the sides:

fn area(";

const STORY: &str = "Write a strange story about a lighthouse, a violin and a very old map.";

const TASKS: [Task; 4] = [
    Task { name: "a text that is corrected", prompt: EDIT, words: &["--temp", "0", "-n", "128"] },
    Task { name: "code that is changed", prompt: CODE, words: &["--temp", "0", "-n", "128"] },
    Task {
        name: "a story",
        prompt: STORY,
        words: &["--chat", "--temp", "1", "--repeat-penalty", "1.1", "-n", "256"],
    },
    Task {
        name: "random tokens",
        prompt: EDIT,
        words: &["--temp", "9", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n", "256"],
    },
];

/// Measures every task with every drafter.
pub(crate) fn run(arguments: &Speculation) -> Result<()> {
    ensure!(arguments.rounds > 0, "at least one round is needed");
    let orlop = build::orlop()?;
    let draft = arguments.model_draft.as_ref().map(|path| path.display().to_string());
    let mut drafters: Vec<Vec<&str>> = vec![vec!["--lookup"]];
    drafters.extend(draft.as_deref().map(|path| vec!["-md", path]));
    for threads in &arguments.threads {
        for task in &TASKS {
            for drafter in &drafters {
                let generated = |words: &[&str]| -> Result<Value> {
                    let mut command = Command::new(&orlop);
                    command.args(["run", "--json", "-s", "1", "-c", "1024", "-t", &threads.to_string()]);
                    command.args(["--device", &arguments.device]).args(task.words).args(words);
                    if let Some(model) = &arguments.model {
                        command.arg("-m").arg(model);
                    }
                    ask(command.arg(task.prompt).stdin(Stdio::null()))?.json()
                };
                let speed =
                    |found: &Value| found["timings"]["generate_tokens_per_second"].as_f64().unwrap_or(0.0);
                let (mut plain, mut ratios, mut last, mut same) = (Vec::new(), Vec::new(), Value::Null, 0);
                for round in 0..arguments.rounds {
                    // Each goes first as often as the other.
                    let second = (round % 2 == 1).then(|| generated(&[])).transpose()?;
                    let drafted = generated(drafter)?;
                    let without = second.map_or_else(|| generated(&[]), Ok)?;
                    plain.push(speed(&without));
                    ratios.push(speed(&drafted) / speed(&without));
                    same += usize::from(drafted["tokens"] == without["tokens"]);
                    last = drafted;
                }
                ratios.sort_by(f64::total_cmp);
                println!(
                    "{}, {}, {threads} threads: {:.0} tokens/s without drafts, {:.2} × ({:.2} – {:.2}) with; {} tokens, \
                     drafted {}, accepted {}; the same tokens in {same} of {} rounds",
                    task.name,
                    drafter[0],
                    median(&plain),
                    median(&ratios),
                    ratios[0],
                    ratios[ratios.len() - 1],
                    last["tokens"].as_array().map_or(0, Vec::len),
                    last["drafted"],
                    last["accepted"],
                    arguments.rounds
                );
            }
        }
    }
    Ok(())
}
