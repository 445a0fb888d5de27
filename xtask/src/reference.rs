//! `cargo xtask check reference`: runs models and compares with recorded results of another engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::cargo;

/// F32 activations and caches.
const EXACT: [&str; 6] = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"];

/// Which models to compare, and on which devices.
#[derive(Args, Debug)]
pub(crate) struct Reference {
    /// Folder with `tiny` and `smollm2`.
    folder: PathBuf,
    /// Run on these devices, and check that they are as accurate as the CPU.
    #[arg(long)]
    device: Option<String>,
    /// Use this `orlop` command instead of building one, for machines without Rust.
    #[arg(long, value_name = "FILE")]
    orlop: Option<PathBuf>,
    /// Use this file instead of downloading the default model.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
}

/// Runs the models of a folder, prints their errors, and fails if one is too large.
pub(crate) fn run(arguments: &Reference) -> Result<()> {
    let program = match &arguments.orlop {
        Some(program) => program.clone(),
        None => {
            let features: &[&str] = if arguments.device.is_some() { &["--features", "cuda"] } else { &[] };
            let build = ["build", "--release", "--package", "orlop-cli"];
            cargo::run(cargo::cargo(&build).args(features))?;
            cargo::orlop()
        }
    };
    let folder = &arguments.folder;
    let model = arguments.model.iter().flat_map(|file| ["-m".to_owned(), file.display().to_string()]);
    let cpu = Orlop { program, model: model.collect(), device: Vec::new() };
    let good = match &arguments.device {
        None => {
            let tiny = tiny(&cpu, &folder.join("tiny"))?;
            default_model(&cpu, &folder.join("smollm2"))? && tiny
        }
        Some(device) => {
            let other = Orlop { device: vec!["--device".to_owned(), device.clone()], ..cpu.clone() };
            beside(&[cpu, other], folder)?
        }
    };
    ensure!(good, "not everything is as close as it should be");
    Ok(())
}

/// Allowed error of another device relative to the CPU: the order of sums differs.
const SLACK: f64 = 1.25;
/// Errors below this are due to the order of sums.
const FLOOR: f64 = 1e-9;

/// The CPU and another device side by side. llama.cpp quantizes activations of tiny models, so exact results are further
/// from it than equally quantized ones: the CPU with F32 activations is listed, too.
fn beside(both: &[Orlop; 2], folder: &Path) -> Result<bool> {
    let mut good = true;
    let mut print = |name: &str, [cpu, other]: [f64; 2], exact: Option<f64>| {
        let fits = is_as_close(other, exact.map_or(cpu, |exact| worse(cpu, exact)));
        good &= fits;
        let exact = exact.map_or(String::new(), |exact| format!("{exact:10.3e}"));
        println!("{name:<34} {cpu:10.3e} {exact:>10} {other:10.3e}{}", mark(fits));
    };
    println!("{:<34} {:>10} {:>10} {:>10}", "", "cpu", "in f32", both[1].device[1]);
    let exact =
        Orlop { device: EXACT[..2].iter().map(|word| (*word).to_owned()).collect(), ..both[0].clone() };
    for model in models(&folder.join("tiny"))? {
        let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let errors = [tiny_error(&both[0], &model)?, tiny_error(&both[1], &model)?];
        print(&name, errors, Some(tiny_error(&exact, &model)?));
    }
    let lines = lines(&folder.join("smollm2").join("exact.jsonl"))?;
    for (name, options) in [("as usual", &[][..]), ("exactly", &EXACT[..])] {
        let mut means = [0.0; 2];
        for line in &lines {
            for (mean, orlop) in means.iter_mut().zip(both) {
                *mean += distance(&last_logits(orlop, line, options)?, line) / lines.len() as f64;
            }
        }
        print(&format!("default model {name}: mean RMS error"), means, None);
    }
    Ok(good)
}

/// Whether a device's error is within the tolerance of the CPU's.
fn is_as_close(other: f64, cpu: f64) -> bool {
    cpu.is_finite() && other <= (SLACK * cpu).max(FLOOR)
}

/// The command, and its arguments for the default model and the device.
#[derive(Clone, Debug)]
struct Orlop {
    program: PathBuf,
    model: Vec<String>,
    device: Vec<String>,
}

/// Small random models: the mean squared error of all logits over their mean square.
fn tiny(orlop: &Orlop, folder: &Path) -> Result<bool> {
    let mut good = true;
    for model in models(folder)? {
        let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let quantized = [".Q", ".IQ", ".MX"].iter().any(|kind| name.contains(kind));
        let limit = if quantized { 5e-3 } else { 1e-4 };
        let nmse = tiny_error(orlop, &model)?;
        good &= nmse <= limit;
        println!("{name:<24} {nmse:10.3e} of {limit:e}{}", mark(nmse <= limit));
    }
    Ok(good)
}

/// The models of a folder.
fn models(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut models: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    models.retain(|path| path.extension().is_some_and(|extension| extension == "gguf"));
    models.sort();
    ensure!(!models.is_empty(), "there are no models in {}", folder.display());
    Ok(models)
}

fn tiny_error(orlop: &Orlop, model: &Path) -> Result<f64> {
    let expected = read(&model.with_extension("logits.json"))?;
    let file = model.to_string_lossy();
    let found = orlop.call(&["logits", "--json", "-m", &file, "--tokens", &token_list(&expected)])?;
    relative_error(&found["logits"], &expected["logits"]).with_context(|| format!("the logits of {file}"))
}

/// The normalized mean squared error.
fn relative_error(found: &Value, expected: &Value) -> Result<f64> {
    let lengths = |rows: &Value| array(rows).map(|row| array(row).count()).collect::<Vec<usize>>();
    let (rows, wanted) = (lengths(found), lengths(expected));
    ensure!(rows == wanted, "rows of {rows:?} numbers, not {wanted:?}");
    ensure!(wanted.iter().sum::<usize>() > 0, "there is nothing to compare with");
    let (mut error, mut all) = (0.0, 0.0);
    for (found, expected) in numbers(found).zip(numbers(expected)) {
        error += (found - expected).powi(2);
        all += expected * expected;
    }
    Ok(error / all)
}

/// The larger of two; NaN if one is NaN.
fn worse(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

fn token_list(line: &Value) -> String {
    array(&line["tokens"]).map(Value::to_string).collect::<Vec<String>>().join(",")
}

/// The default model's logits after a line's tokens.
fn last_logits(orlop: &Orlop, line: &Value, options: &[&str]) -> Result<Value> {
    let tokens = token_list(line);
    orlop.call_default(&[&["logits", "--json", "--last", "--tokens", &tokens][..], options].concat())
}

/// The default model: token ids, first choices, logits, perplexity.
fn default_model(orlop: &Orlop, folder: &Path) -> Result<bool> {
    let theirs = lines(&folder.join("llama.cpp.jsonl"))?;
    let exact = lines(&folder.join("exact.jsonl"))?;
    let prompts = theirs.len();
    ensure!(exact.len() == prompts, "{prompts} lines of llama.cpp's, but {} exact ones", exact.len());
    let (mut ids, mut first, mut worst, mut sum, mut agreed, mut text) = (0, 0, 0.0f64, 0.0, 0, 0);
    for (line, exact) in theirs.iter().zip(&exact) {
        let prompt = line["prompt"].as_str().context("a prompt is text")?;
        let tokens = orlop.call_default(&["tokenize", "--json", "--", prompt])?;
        ids += usize::from(tokens["tokens"] == line["tokens"]);
        let precise = last_logits(orlop, line, &EXACT)?;
        first += usize::from(best(&precise) == exact["top"][0][0].as_u64());
        worst = worse(worst, distance(&precise, exact));
        let usual = last_logits(orlop, line, &[])?;
        sum += distance(&usual, exact);
        agreed += usize::from(best(&usual) == exact["top"][0][0].as_u64());
        let count = array(&line["greedy"]).count().to_string();
        let answer = orlop.call_default(&["run", "--json", "--temp", "0", "-n", &count, "--", prompt])?;
        text += usize::from(answer["tokens"] == line["greedy"]);
    }
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
    let found = orlop.call_default(&[
        "perplexity",
        "--json",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
        "-f",
        &file.to_string_lossy(),
    ])?;
    let perplexity = found["perplexity"].as_f64().context("a perplexity is a number")?;
    let near = (perplexity - 18.33).abs() <= 0.15;
    println!("perplexity                        {perplexity:.4} of 18.33 ± 0.15{}", mark(near));
    Ok(ids == prompts && first == prompts && worst <= 0.02 && mean <= 1.3 * 0.235 && near)
}

/// The RMS error of the logits of a line.
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
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).context("a line is no JSON"))
        .collect::<Result<_>>()?;
    ensure!(!lines.is_empty(), "{} is empty", path.display());
    Ok(lines)
}

impl Orlop {
    /// The output of a command.
    fn call(&self, arguments: &[&str]) -> Result<Value> {
        let (name, rest) = arguments.split_first().context("no command")?;
        let mut command = Command::new(&self.program);
        let output = command.arg(name).args(&self.device).args(rest).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "orlop {} failed: {errors}", arguments.join(" "));
        serde_json::from_slice(&output.stdout).context("it printed no JSON")
    }

    /// The output of a command with the default model.
    fn call_default(&self, arguments: &[&str]) -> Result<Value> {
        let (name, rest) = arguments.split_first().context("no command")?;
        let model = self.model.iter().map(String::as_str);
        self.call(&[*name].into_iter().chain(model).chain(rest.iter().copied()).collect::<Vec<&str>>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_compared_is_no_agreement() {
        let error = |found: Value, expected: Value| relative_error(&found, &expected);
        assert_eq!(error(json!([[1.0, 2.0], [2.0]]), json!([[1.0, 2.0], [2.0]])).unwrap(), 0.0);
        assert_eq!(error(json!([[3.0], [4.0]]), json!([[3.0], [3.0]])).unwrap(), 1.0 / 18.0);
        assert!(error(json!([]), json!([])).is_err());
        assert!(error(json!(null), json!([[1.0]])).is_err());
        assert!(error(json!([[1.0]]), json!([[1.0], [2.0]])).is_err());
        assert!(error(json!([[1.0, 2.0]]), json!([[1.0]])).is_err());
        assert!(error(json!([[null]]), json!([[1.0]])).unwrap().is_nan());
    }

    #[test]
    fn an_error_that_is_no_number_is_the_worst() {
        for errors in [[f64::NAN, 0.5, 0.1], [0.5, f64::NAN, 0.1], [0.5, 0.1, f64::NAN]] {
            assert!(errors.into_iter().fold(0.0, worse).is_nan());
        }
        assert_eq!([0.1, 0.5, 0.2].into_iter().fold(0.0, worse), 0.5);
        assert!(is_as_close(1.2, 1.0) && is_as_close(1e-10, 0.0) && !is_as_close(1.3, 1.0));
        assert!(!is_as_close(f64::NAN, 1.0) && !is_as_close(0.0, f64::NAN));
    }

    #[test]
    fn folders_and_files_with_nothing_in_them_are_refused() {
        let folder = std::env::temp_dir().join(format!("orlop-reference-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("exact.jsonl"), "").unwrap();
        assert!(models(&folder).is_err() && lines(&folder.join("exact.jsonl")).is_err());
        fs::write(folder.join("exact.jsonl"), "{}\n").unwrap();
        fs::write(folder.join("a.gguf"), "").unwrap();
        assert_eq!(models(&folder).unwrap().len() + lines(&folder.join("exact.jsonl")).unwrap().len(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
