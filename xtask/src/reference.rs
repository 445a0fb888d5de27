//! `cargo xtask reference`: models that another engine has run, run again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

/// Activations and caches as exact as they come.
const EXACT: [&str; 6] = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"];

/// Runs the models of a folder, prints how close they come, and fails where that is not close enough.
pub(crate) fn run(folder: &Path) -> Result<()> {
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-cli"]))?;
    let tiny = tiny(&folder.join("tiny"))?;
    let default = default_model(&folder.join("smollm2"))?;
    ensure!(tiny && default, "not everything is as close as it should be");
    Ok(())
}

/// Small random models: the mean squared error of all logits over their mean square.
fn tiny(folder: &Path) -> Result<bool> {
    let mut models: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    models.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    models.sort();
    let mut good = true;
    for model in models {
        let expected = read(&model.with_extension("logits.json"))?;
        let tokens: Vec<String> = array(&expected["tokens"]).map(Value::to_string).collect();
        let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let quantised = [".Q", ".IQ", ".MX"].iter().any(|kind| name.contains(kind));
        let limit = if quantised { 5e-3 } else { 1e-4 };
        let found =
            orlop(&["logits", "--json", "-m", &model.to_string_lossy(), "--tokens", &tokens.join(",")])?;
        let (mut error, mut all) = (0.0, 0.0);
        for (found, expected) in numbers(&found["logits"]).zip(numbers(&expected["logits"])) {
            error += (found - expected).powi(2);
            all += expected * expected;
        }
        let nmse = error / all;
        good &= nmse <= limit;
        println!("{name:<24} {nmse:10.3e} of {limit:e}{}", mark(nmse <= limit));
    }
    Ok(good)
}

/// The default model: token ids, first choices, logits, perplexity.
fn default_model(folder: &Path) -> Result<bool> {
    let theirs = lines(&folder.join("llama.cpp.jsonl"))?;
    let exact = lines(&folder.join("exact.jsonl"))?;
    let (mut ids, mut first, mut worst, mut sum, mut agreed, mut text) = (0, 0, 0.0f64, 0.0, 0, 0);
    for (line, exact) in theirs.iter().zip(&exact) {
        let prompt = line["prompt"].as_str().context("a prompt is text")?;
        let tokens = orlop(&["tokenize", "--json", "--", prompt])?;
        ids += usize::from(tokens["tokens"] == line["tokens"]);
        let list: Vec<String> = array(&line["tokens"]).map(Value::to_string).collect();
        let list = list.join(",");
        let logits = |options: &[&str]| {
            let fixed = ["logits", "--json", "--last", "--tokens", list.as_str()];
            orlop(&[&fixed[..], options].concat())
        };
        let precise = logits(&EXACT)?;
        first += usize::from(best(&precise) == exact["top"][0][0].as_u64());
        worst = worst.max(distance(&precise, exact));
        let usual = logits(&[])?;
        sum += distance(&usual, exact);
        agreed += usize::from(best(&usual) == exact["top"][0][0].as_u64());
        let count = array(&line["greedy"]).count().to_string();
        let answer = orlop(&["run", "--json", "--temp", "0", "-n", &count, "--", prompt])?;
        text += usize::from(answer["tokens"] == line["greedy"]);
    }
    let prompts = theirs.len();
    let mean = sum / prompts as f64;
    println!("token ids as llama.cpp's          {ids} of {prompts}{}", mark(ids == prompts));
    println!("exactly: first choices            {first} of {prompts}{}", mark(first == prompts));
    println!("exactly: worst RMS error          {worst:.4} of 0.02{}", mark(worst <= 0.02));
    println!(
        "as usual: mean RMS error          {mean:.4} of {:.4} (llama.cpp 0.235){}",
        1.3 * 0.235,
        mark(mean <= 1.3 * 0.235)
    );
    println!("as usual: first choices           {agreed} of {prompts}");
    println!("as usual: whole texts as llama.cpp's {text} of {prompts}");
    let file = folder.join("gpl-3.txt");
    let found =
        orlop(&["perplexity", "--json", "-ctk", "f32", "-ctv", "f32", "-f", &file.to_string_lossy()])?;
    let perplexity = found["perplexity"].as_f64().context("a perplexity is a number")?;
    let near = (perplexity - 18.33).abs() <= 0.15;
    println!("perplexity                        {perplexity:.4} of 18.33 ± 0.15{}", mark(near));
    Ok(ids == prompts && first == prompts && worst <= 0.02 && mean <= 1.3 * 0.235 && near)
}

/// The root mean square distance of the logits that a line lists.
fn distance(found: &Value, expected: &Value) -> f64 {
    let row = &found["logits"][0];
    let squares = array(&expected["top"]).map(|pair| {
        let id = pair[0].as_u64().unwrap_or(u64::MAX) as usize;
        (row[id].as_f64().unwrap_or(f64::NAN) - pair[1].as_f64().unwrap_or(f64::NAN)).powi(2)
    });
    (squares.sum::<f64>() / array(&expected["top"]).count() as f64).sqrt()
}

/// The id of the largest logit.
fn best(found: &Value) -> Option<u64> {
    let row = numbers(&found["logits"]).enumerate();
    row.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(id, _)| id as u64)
}

fn mark(good: bool) -> &'static str {
    if good { "" } else { "   <- not met" }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// All numbers of a list of lists.
fn numbers(rows: &Value) -> impl Iterator<Item = f64> + '_ {
    array(rows).flat_map(array).map(|number| number.as_f64().unwrap_or(f64::NAN))
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

fn lines(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    text.lines().map(|line| serde_json::from_str(line).context("a line is no JSON")).collect()
}

/// What a command prints.
fn orlop(arguments: &[&str]) -> Result<Value> {
    let output = Command::new(cargo::orlop()).args(arguments).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "orlop {} failed: {errors}", arguments.join(" "));
    serde_json::from_slice(&output.stdout).context("it printed no JSON")
}
