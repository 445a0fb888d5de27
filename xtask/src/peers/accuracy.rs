//! `cargo xtask check accuracy`: how far logits are from those of F32 arithmetic, beside llama.cpp's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use super::models::Case;
use super::process::{Programs, ask, say};
use super::{build, models};

/// A line each: `chat` or `text`, and the prompt. `\n` is a line break.
const PROMPTS: &str = include_str!("../../peers/prompts.txt");
/// The best logits of exact arithmetic that are compared.
const BEST: usize = 10;
/// The largest error that is allowed, relative to llama.cpp's.
const LIMIT: f64 = 0.3;

const EXACT: &[&str] = &["--precision", "f32", "-ctk", "f32", "-ctv", "f32"];
const ONE_BY_ONE: &[&str] = &["-b", "1", "-ub", "1"];
const INT8: &[&str] = &["--precision", "int8"];

/// What to compare.
#[derive(Args)]
pub(crate) struct Accuracy {
    /// Model file (.gguf) instead of the default model in Q4_1, Q4_0 and Q8_0; can be repeated.
    #[arg(long, value_name = "FILE")]
    model: Vec<PathBuf>,
    /// Build jobs of llama.cpp [default: number of threads]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// The mean errors of a model.
struct Errors {
    batch: f64,
    one_by_one: f64,
    int8: f64,
    /// llama.cpp's: in a batch, and one by one.
    theirs: [f64; 2],
}

impl Errors {
    fn fit(&self) -> bool {
        self.batch <= LIMIT * self.theirs[0] && self.one_by_one <= LIMIT * self.theirs[1]
    }
}

/// Prints the mean errors of every model, and fails if one is too large.
pub(crate) fn run(arguments: &Accuracy) -> Result<()> {
    let programs = Programs { ours: build::orlop()?, theirs: build::llama_cpp(arguments.jobs)? };
    let quantized =
        |name: &str| ["Q4_1", "Q4_0", "Q8_0"].iter().any(|end| name == format!("SmolLM2-135M {end}"));
    let cases = match &arguments.model[..] {
        [] => models::usual(&programs, &quantized)?,
        given => given.iter().map(|path| Case::given(path)).collect::<Result<_>>()?,
    };
    println!(
        "{:<40} {:>9} {:>10} {:>9} {:>10} {:>10}",
        "mean RMS error", "batch", "one by one", "int8", "llama.cpp", "one by one"
    );
    let mut good = true;
    for case in cases {
        let errors = errors(&programs, &case.path)?;
        let Errors { batch, one_by_one, int8, theirs: [theirs, theirs_one] } = errors;
        let mark = if errors.fit() { "" } else { "   <- not met" };
        good &= errors.fit();
        println!(
            "{:<40} {batch:>9.4} {one_by_one:>10.4} {int8:>9.4} {theirs:>10.4} {theirs_one:>10.4}{mark}",
            case.name
        );
    }
    ensure!(good, "an error is more than {LIMIT} of llama.cpp's");
    Ok(())
}

fn errors(programs: &Programs, model: &Path) -> Result<Errors> {
    let prompts: Vec<Vec<u64>> =
        PROMPTS.lines().map(|line| tokens(programs, model, line)).collect::<Result<_>>()?;
    say(&format!("{} prompts on {}", prompts.len(), model.display()));
    let mut means = [0.0; 5];
    for ids in &prompts {
        let exact = ours(programs, model, ids, EXACT)?;
        let found = [
            ours(programs, model, ids, &[])?,
            ours(programs, model, ids, ONE_BY_ONE)?,
            ours(programs, model, ids, INT8)?,
            theirs(programs, model, ids, "512")?,
            theirs(programs, model, ids, "1")?,
        ];
        for (mean, found) in means.iter_mut().zip(found) {
            *mean += error(&found, &exact)? / prompts.len() as f64;
        }
    }
    let [batch, one_by_one, int8, theirs, theirs_one] = means;
    Ok(Errors { batch, one_by_one, int8, theirs: [theirs, theirs_one] })
}

/// The token ids of a line.
fn tokens(programs: &Programs, model: &Path, line: &str) -> Result<Vec<u64>> {
    let (kind, text) = line.split_once(' ').context("a line is `chat` or `text`, and a prompt")?;
    let text = text.replace("\\n", "\n");
    let mut command = Command::new(&programs.ours);
    let answer = match kind {
        "chat" => command.args(["run", "--chat", "--json", "-n", "1", "-m"]).arg(model),
        _ => command.args(["tokenize", "--json", "-m"]).arg(model),
    };
    let answer = ask(answer.arg("--").arg(&text))?.json()?;
    let ids = if kind == "chat" { &answer["prompt_tokens"] } else { &answer["tokens"] };
    let ids: Vec<u64> = ids.as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    ensure!(!ids.is_empty(), "no tokens for {line:?}");
    Ok(ids)
}

fn ours(programs: &Programs, model: &Path, ids: &[u64], options: &[&str]) -> Result<Vec<f64>> {
    let mut command = Command::new(&programs.ours);
    command.args(["logits", "--json", "--last", "-c", "512", "-m"]).arg(model).args(options);
    last_row(command.args(["--tokens", &list(ids, ",")]))
}

fn theirs(programs: &Programs, model: &Path, ids: &[u64], ubatch: &str) -> Result<Vec<f64>> {
    let mut command = Command::new(&programs.theirs);
    command.args(["logits", "--last", "-c", "512", "-ub", ubatch, "-m"]).arg(model);
    last_row(command.arg(list(ids, " ")))
}

fn list(ids: &[u64], between: &str) -> String {
    ids.iter().map(u64::to_string).collect::<Vec<String>>().join(between)
}

fn last_row(command: &mut Command) -> Result<Vec<f64>> {
    let answer = ask(command)?.json()?;
    let row = answer["logits"]
        .as_array()
        .and_then(|rows| rows.last()?.as_array())
        .context("there are no logits")?;
    Ok(row.iter().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect())
}

/// The root mean square of the differences of the exact best logits, without their mean: adding a number to all logits
/// changes no probability.
fn error(found: &[f64], exact: &[f64]) -> Result<f64> {
    ensure!(found.len() == exact.len(), "{} logits, not {}", found.len(), exact.len());
    let mut order: Vec<usize> = (0..exact.len()).collect();
    order.sort_by(|a, b| exact[*b].total_cmp(&exact[*a]));
    let differences: Vec<f64> = order.iter().take(BEST).map(|id| found[*id] - exact[*id]).collect();
    let count = differences.len().max(1) as f64;
    let mean = differences.iter().sum::<f64>() / count;
    Ok((differences.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_that_of_the_best_logits_without_their_mean() {
        let exact: Vec<f64> = (0..20).map(f64::from).collect();
        let shifted: Vec<f64> = exact.iter().map(|x| x + 3.0).collect();
        assert_eq!(error(&shifted, &exact).unwrap(), 0.0);
        let mut other = exact.clone();
        other[0] = 100.0;
        assert_eq!(error(&other, &exact).unwrap(), 0.0);
        other[19] += 10.0;
        assert!((error(&other, &exact).unwrap() - 3.0).abs() < 1e-12);
        assert!(error(&exact[1..], &exact).is_err());
        assert!(error(&[f64::NAN; 20], &exact).unwrap().is_nan());
    }

    #[test]
    fn there_are_forty_prompts_of_both_kinds() {
        let kinds = |kind: &str| PROMPTS.lines().filter(|line| line.starts_with(kind)).count();
        assert!(kinds("chat ") >= 20 && kinds("text ") >= 20);
        assert_eq!(kinds("chat ") + kinds("text "), PROMPTS.lines().count());
    }
}
