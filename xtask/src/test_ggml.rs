//! `cargo xtask test --on ggml`: llama.cpp as shared libraries, with Orlop's allocator and scheduler instead of ggml's.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use crate::peers::build::{self, Project};
use crate::peers::measure::compute_buffers;
use crate::peers::models::default_model;
use crate::peers::process::say;
use crate::{cargo, excerpts};

const MANIFEST: &str = include_str!("../ggml/manifest.toml");
const SOURCES: [(&str, &str); 3] = [
    ("main.rs", include_str!("../ggml/main.rs")),
    ("graph.rs", include_str!("../ggml/graph.rs")),
    ("time.rs", include_str!("../ggml/time.rs")),
];

const BATCHES: [u32; 3] = [1, 512, 2048];

/// Tokens of "Once upon a time" and "The capital of France is", used without references.
const FEW: [&[u32]; 2] = [&[6403, 1980, 253, 655], &[504, 3575, 282, 4649, 314]];

/// Builds both, and compares tokens, sizes and times.
pub(crate) fn run(folder: Option<PathBuf>, jobs: Option<usize>) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "preloading is set up for Linux only");
    let prompts = prompts(folder)?;
    cargo::run(&mut cargo::cargo(&["build", "--release", "--package", "orlop-ggml"]))?;
    let folder = cargo::target().join("test-ggml");
    let project = Project { folder: folder.clone(), manifest: MANIFEST, sources: &SOURCES };
    let release = project.build(jobs)?;
    let setting = Setting {
        driver: release.join("driver"),
        libraries: libraries(&release.join("build"))?,
        library: cargo::target().join("release").join("liborlop_ggml.so"),
        model: model(&folder)?,
        prompts,
    };
    excerpts::run(&folder, &setting.libraries)?;
    let mut good = setting.is_in_place()?;
    for batch in BATCHES {
        for flash in [false, true] {
            good &= setting.compare(batch, flash)?;
        }
    }
    setting.times()?;
    ensure!(good, "not everything is as it should be");
    Ok(())
}

fn model(folder: &Path) -> Result<PathBuf> {
    // Downloaded by `orlop`, which is built only if needed.
    default_model(&cargo::orlop(), folder).or_else(|_| default_model(&build::orlop()?, folder))
}

/// The folder of llama.cpp's build. Builds of other versions are beside it, and the loader would take the first.
fn libraries(builds: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(builds).with_context(|| format!("reading {}", builds.display()))?;
    let folders = entries.flatten().map(|entry| entry.path().join("out"));
    let folders = folders.flat_map(|out| ["lib", "lib64"].map(|name| out.join(name)));
    let found: Vec<PathBuf> = folders.filter(|folder| folder.join("libggml-base.so").exists()).collect();
    match &found[..] {
        [] => bail!("no shared libraries of llama.cpp are in {}", builds.display()),
        [one] => Ok(one.clone()),
        several => bail!(
            "shared libraries of {} builds of llama.cpp are in {}: delete that folder, and run this again",
            several.len(),
            builds.display()
        ),
    }
}

/// One line per prompt, in the format of `tokens`.
fn prompts(folder: Option<PathBuf>) -> Result<String> {
    if let Some(folder) = folder {
        let path = folder.join("smollm2").join("llama.cpp.jsonl");
        return fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()));
    }
    say("no folder with references was given, so a few prompts have to do");
    let lines = FEW.map(|tokens| json!({ "tokens": tokens, "greedy": vec![0; 48] }).to_string());
    Ok(lines.join("\n") + "\n")
}

/// The programs to run.
struct Setting {
    driver: PathBuf,
    /// The folder of llama.cpp's libraries.
    libraries: PathBuf,
    library: PathBuf,
    model: PathBuf,
    prompts: String,
}

/// The driver's output.
struct Said {
    answer: Value,
    log: String,
}

impl Setting {
    fn driver(&self, preloaded: bool) -> Command {
        let mut command = Command::new(&self.driver);
        command.env("LD_LIBRARY_PATH", &self.libraries);
        if preloaded {
            command.env("LD_PRELOAD", &self.library).env("ORLOP_GGML_LOG", "1");
        }
        command
    }

    fn tokens(&self, batch: u32, flash: bool, preloaded: bool) -> Result<Said> {
        let mut command = self.driver(preloaded);
        command.arg("tokens").arg("-m").arg(&self.model).args(["-b", &batch.to_string()]);
        command.args(["-fa", if flash { "1" } else { "0" }]);
        ask(&mut command, &self.prompts)
    }

    /// Whether the loader binds calls of llama.cpp's and of ggml's libraries to this library.
    fn is_in_place(&self) -> Result<bool> {
        let mut command = self.driver(true);
        command.arg("tokens").arg("-m").arg(&self.model).env("LD_DEBUG", "bindings");
        let log = ask(&mut command, "")?.log;
        let bound = log.lines().filter(|line| {
            let any = |names: [&str; 2]| names.iter().any(|name| line.contains(name));
            line.contains("orlop_ggml")
                && any(["libllama.so", "libggml-base.so"])
                && any(["`ggml_gallocr_", "`ggml_backend_sched_"])
        });
        let bound = bound.count();
        println!("functions that llama.cpp takes from Orlop   {bound}{}", mark(bound > 0));
        Ok(bound > 0)
    }

    fn compare(&self, batch: u32, flash: bool) -> Result<bool> {
        let [theirs, ours] = [false, true].map(|preloaded| self.tokens(batch, flash, preloaded));
        let (theirs, ours) = (theirs?, ours?);
        let lists = |said: &Said| said.answer["tokens"].as_array().cloned().unwrap_or_default();
        let (expected, found) = (lists(&theirs), lists(&ours));
        let same = expected.iter().zip(&found).filter(|(expected, found)| expected == found).count();
        let prompts = self.prompts.lines().count();
        let is_same = same == prompts && found.len() == prompts && prompts > 0;
        let [less, more] = [&ours, &theirs].map(|said| compute_buffers(&said.log));
        ensure!(more > 0.0 && less > 0.0, "llama.cpp logged no size of a compute buffer");
        ensure!(ours.log.contains("orlop: graph"), "nothing was planned by Orlop");
        let replay = replayed(&ours.log);
        // Logged sizes have two decimals of MiB.
        let near = (replay - more).abs() <= 0.01 * f64::from(1 << 20);
        let is_good = is_same && less <= more && near;
        println!(
            "batch {batch:>4}, flash attention {}: the same tokens for {same} of {prompts} prompts, compute buffer \
             {:.2} MiB, ggml's {:.2} MiB{}{}",
            if flash { "on " } else { "off" },
            mebibytes(less),
            mebibytes(more),
            if near { String::new() } else { format!(", which is foretold as {:.2}", mebibytes(replay)) },
            mark(is_good)
        );
        Ok(is_good)
    }

    fn times(&self) -> Result<()> {
        let mut command = self.driver(true);
        command.arg("time").env_remove("ORLOP_GGML_LOG");
        let answer = ask(&mut command, "")?.answer;
        println!(
            "a graph of {} nodes, microseconds as least, median and most of nine in ten:",
            answer["nodes"]
        );
        for side in ["orlop", "ggml"] {
            let values = &answer[side];
            let times = |name: &str| {
                ["least", "median", "most"]
                    .map(|key| format!("{:.1}", values[name][key].as_f64().unwrap_or(f64::NAN)))
            };
            println!(
                "{side:<6} first reserve {:<26} reserve {:<24} alloc_graph {:<20} {} bytes",
                times("first_reserve_us").join(" "),
                times("reserve_us").join(" "),
                times("alloc_graph_us").join(" "),
                values["bytes"]
            );
        }
        Ok(())
    }
}

/// The largest sizes of ggml's plans in Orlop's log, summed over the buffers.
fn replayed(log: &str) -> f64 {
    let mut most: Vec<(&str, f64)> = Vec::new();
    for line in log.lines() {
        let Some((_, rest)) = line.split_once(" nodes): ").filter(|_| line.starts_with("orlop: graph "))
        else {
            continue;
        };
        let Some((own, ggml)) = rest.split_once(" bytes, ggml's plan ") else { continue };
        let Some((name, _)) = own.rsplit_once(' ') else { continue };
        let bytes = ggml.trim().parse().unwrap_or(f64::NAN);
        match most.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = known.max(bytes),
            None => most.push((name, bytes)),
        }
    }
    most.iter().map(|(_, bytes)| bytes).sum()
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

fn mark(good: bool) -> &'static str {
    if good { "" } else { "   <- not met" }
}

/// Runs the driver with input.
fn ask(command: &mut Command, input: &str) -> Result<Said> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let mut stdin = child.stdin.take().context("standard input is a pipe")?;
    // Both pipes may fill up, so read and write concurrently.
    let (written, output) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output();
        (writer.join(), output)
    });
    let output = output.with_context(|| format!("waiting for {command:?}"))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let last: Vec<&str> = log.lines().rev().take(3).collect();
        bail!("{command:?} ended with {}: {}", output.status, last.join(" / "));
    }
    written.map_err(|_| anyhow!("a thread was lost"))?.context("handing over the prompts")?;
    let answer = serde_json::from_slice(&output.stdout).context("the driver printed no JSON")?;
    Ok(Said { answer, log })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_two_builds_are_refused() {
        let builds = std::env::temp_dir().join(format!("orlop-libraries-{}", std::process::id()));
        let put = |name: &str| {
            let folder = builds.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("libggml-base.so"), "").unwrap();
            folder
        };
        fs::create_dir_all(builds.join("other").join("out")).unwrap();
        assert!(libraries(&builds).is_err());
        let one = put("llama-1/out/lib64");
        assert_eq!(libraries(&builds).unwrap(), one);
        put("llama-2/out/lib");
        let refused = libraries(&builds).unwrap_err().to_string();
        assert!(refused.contains("2 builds") && refused.contains(&builds.display().to_string()), "{refused}");
        fs::remove_dir_all(builds).unwrap();
    }

    #[test]
    fn the_largest_plan_of_each_buffer_counts() {
        let log = "orlop: graph 1 (9 nodes): CPU 10 bytes, ggml's plan 12\nnoise\n\
                   orlop: graph 1 (9 nodes): GPU 0 5 bytes, ggml's plan 5\n\
                   orlop: graph 2 (9 nodes): CPU 20 bytes, ggml's plan 31\n\
                   orlop: graph 3 (9 nodes): CPU 20 bytes, ggml's plan 30";
        assert_eq!(replayed(log), 36.0);
    }

    #[test]
    fn without_a_folder_a_few_prompts_do_and_a_folder_without_references_is_named() {
        assert!(prompts(None).is_ok_and(|lines| lines.lines().count() == FEW.len()));
        let refused = prompts(Some("no/such/folder".into())).map_err(|error| error.to_string());
        assert!(refused.is_err_and(|said| said.contains("no/such/folder")));
    }
}
