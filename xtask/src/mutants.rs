//! `cargo xtask mutants`: [cargo-mutants](https://mutants.rs) changes a crate in one place at a time, and the crate's own tests
//! must fail. Changes that cannot be noticed are listed in `xtask/mutants.json`, each with the reason.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::cargo;
use crate::tools::Tool;

const MUTANTS: Tool = Tool { name: "cargo-mutants", version: "27.1.0" };

/// Which mutants to run.
#[derive(Args, Debug)]
pub(crate) struct Mutants {
    /// A folder of `crates`, such as `plan`.
    #[arg(value_name = "CRATE")]
    name: String,
    /// Every Nth mutant from the Kth on, counted from 0: `3/20`.
    #[arg(value_name = "K/N")]
    shard: String,
    /// Seconds after which tests count as failed.
    #[arg(long, value_name = "N", default_value_t = 300)]
    timeout: u64,
    /// Folder of the copy that is changed and built [default: `mutants` in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<std::path::PathBuf>,
}

/// A change of one place. The text of its line tells it from others of a function, and stays when the line moves.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mutant {
    file: String,
    change: String,
    line: String,
}

/// An entry of the list: a change that computes the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Accepted {
    mutant: Mutant,
    reason: String,
}

/// What came of the mutants of a shard.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    /// Tests failed, or did not end.
    caught: usize,
    unviable: usize,
    accepted: Vec<Mutant>,
    missed: Vec<Mutant>,
}

/// Runs a shard; fails if the tests miss a mutant that is not on the list.
pub(crate) fn run(arguments: &Mutants) -> Result<()> {
    let root = cargo::workspace();
    let folder = Path::new("crates").join(&arguments.name);
    ensure!(root.join(&folder).is_dir(), "{} is no folder of this workspace", folder.display());
    let package = format!("orlop-{}", arguments.name).replace("orlop-orlop", "orlop");
    let list = accepted(&root)?;
    let program = MUTANTS.own()?;
    let mutants = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(&root).args(["mutants", "--no-config", "--package", &package, "--all-features"]);
        command.args(words).env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    };

    let listed = mutants(&["--list", "--json"]).output().context("listing mutants")?;
    ensure!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let known: Value = serde_json::from_slice(&listed.stdout).context("reading the list of mutants")?;
    let known: Vec<Mutant> =
        known.as_array().into_iter().flatten().filter_map(|one| mutant(&root, one)).collect();
    let stale = stale(&list, &known, &arguments.name);
    ensure!(stale.is_empty(), "xtask/mutants.json names mutants that do not exist: {stale:#?}");

    let scratch = arguments.scratch.clone().unwrap_or_else(|| cargo::target().join("mutants"));
    fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    let timeout = arguments.timeout.to_string();
    let _ = fs::remove_dir_all(scratch.join("mutants.out"));
    let mut command = mutants(&["--shard", &arguments.shard, "--sharding", "round-robin"]);
    command.args(["--timeout", &timeout, "--jobs", "1", "--colors", "never", "--output"]).arg(&scratch);
    // The copies of the tree, and one build folder for all of them.
    command.env("TMPDIR", &scratch).env("CARGO_TARGET_DIR", scratch.join("target"));
    let status = command.status().context("starting cargo-mutants")?;
    // 2: mutants were missed; 3: tests did not end.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants ended with {status}");

    let path = scratch.join("mutants.out/outcomes.json");
    if !path.exists() {
        println!("{package}, shard {}: no mutants", arguments.shard);
        return Ok(());
    }
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let outcomes = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    let tally = Tally::of(&root, &outcomes, &list);
    println!("{package}, shard {}: {tally}", arguments.shard);
    ensure!(tally.missed.is_empty(), "{} mutants were missed and are not on the list", tally.missed.len());
    Ok(())
}

/// The entries of the list.
fn accepted(root: &Path) -> Result<Vec<Accepted>> {
    let path = root.join("xtask/mutants.json");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    entries(&text).with_context(|| format!("reading {}", path.display()))
}

fn entries(text: &str) -> Result<Vec<Accepted>> {
    let list: Vec<Value> = serde_json::from_str(text)?;
    let entry = |value: &Value| {
        let field = |name| {
            let text = value[name].as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).with_context(|| format!("an entry without {name}: {value}"))
        };
        let mutant = Mutant { file: field("file")?, change: field("change")?, line: field("line")? };
        Ok(Accepted { mutant, reason: field("reason")? })
    };
    list.iter().map(entry).collect()
}

/// Entries for a crate that are no mutants of it.
fn stale<'a>(list: &'a [Accepted], known: &[Mutant], name: &str) -> Vec<&'a Mutant> {
    let folder = format!("crates/{name}/");
    let own = list.iter().map(|entry| &entry.mutant).filter(|mutant| mutant.file.starts_with(&folder));
    own.filter(|mutant| !known.contains(mutant)).collect()
}

/// A mutant as cargo-mutants describes it.
fn mutant(root: &Path, value: &Value) -> Option<Mutant> {
    let file = value["file"].as_str()?;
    let (row, column) =
        (value["span"]["start"]["line"].as_u64()?, value["span"]["start"]["column"].as_u64()?);
    let change = value["name"].as_str()?.strip_prefix(&format!("{file}:{row}:{column}: "))?;
    let text = fs::read_to_string(root.join(file)).ok()?;
    let line = text.lines().nth(usize::try_from(row).ok()?.checked_sub(1)?)?.trim();
    Some(Mutant { file: file.to_owned(), change: change.to_owned(), line: line.to_owned() })
}

impl Tally {
    fn of(root: &Path, outcomes: &Value, list: &[Accepted]) -> Tally {
        let mut tally = Tally::default();
        for outcome in outcomes["outcomes"].as_array().into_iter().flatten() {
            let Some(mutant) = mutant(root, &outcome["scenario"]["Mutant"]) else { continue };
            match outcome["summary"].as_str() {
                Some("CaughtMutant" | "Timeout") => tally.caught += 1,
                Some("Unviable") => tally.unviable += 1,
                _ if list.iter().any(|entry| entry.mutant == mutant) => tally.accepted.push(mutant),
                _ => tally.missed.push(mutant),
            }
        }
        tally
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { caught, unviable, accepted, missed } = self;
        let viable = caught + accepted.len() + missed.len();
        let (accepted_count, missed_count) = (accepted.len(), missed.len());
        write!(f, "{caught} of {viable} viable mutants caught, {missed_count} missed, ")?;
        write!(f, "{accepted_count} accepted; {unviable} unviable")?;
        let accepted = accepted.iter().map(|mutant| ("accepted", mutant));
        for (what, mutant) in accepted.chain(missed.iter().map(|mutant| ("missed", mutant))) {
            write!(f, "\n{what}: {mutant}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in `{}`", self.file, self.change, self.line)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed(row: usize, change: &str) -> Value {
        let file = "xtask/src/mutants.rs";
        let name = format!("{file}:{row}:1: {change}");
        json!({"file": file, "name": name, "span": {"start": {"line": row, "column": 1}}})
    }

    fn entry(change: &str) -> Accepted {
        let file = "xtask/src/mutants.rs".to_owned();
        let first = include_str!("mutants.rs").lines().next().unwrap().to_owned();
        Accepted {
            mutant: Mutant { file, change: change.to_owned(), line: first },
            reason: "none".to_owned(),
        }
    }

    #[test]
    fn survivors_are_accepted_by_file_change_and_line() {
        let outcome = |summary: &str, mutant| json!({"scenario": {"Mutant": mutant}, "summary": summary});
        let outcomes = json!({"outcomes": [
            {"scenario": "Baseline", "summary": "Success"},
            outcome("CaughtMutant", listed(1, "a")),
            outcome("Timeout", listed(1, "b")),
            outcome("Unviable", listed(1, "c")),
            outcome("MissedMutant", listed(1, "d")),
            outcome("MissedMutant", listed(2, "d")),
            outcome("MissedMutant", listed(1, "e")),
        ]});
        let tally = Tally::of(&cargo::workspace(), &outcomes, &[entry("d")]);
        assert_eq!((tally.caught, tally.unviable, tally.accepted.len()), (2, 1, 1));
        assert_eq!(tally.missed.iter().map(|mutant| &*mutant.change).collect::<Vec<_>>(), ["d", "e"]);
        let line = tally.to_string();
        assert!(
            line.starts_with("2 of 5 viable mutants caught, 2 missed, 1 accepted; 1 unviable\n"),
            "{line}"
        );
    }

    #[test]
    fn entries_that_are_no_mutants_are_found() {
        let known = mutant(&cargo::workspace(), &listed(1, "d")).unwrap();
        let in_crate = |change: &str| {
            let mut entry = entry(change);
            entry.mutant.file = "crates/plan/src/lib.rs".to_owned();
            entry
        };
        let known = [Mutant { file: "crates/plan/src/lib.rs".to_owned(), ..known }];
        let list = [in_crate("d"), in_crate("gone"), entry("of another crate")];
        let changes: Vec<_> = stale(&list, &known, "plan").iter().map(|mutant| &*mutant.change).collect();
        assert_eq!(changes, ["gone"]);
        assert!(entries(r#"[{"file": "a", "change": "b", "line": "c", "reason": ""}]"#).is_err());
    }

    #[test]
    fn every_accepted_mutant_is_of_a_line_that_exists() {
        let root = cargo::workspace();
        for Accepted { mutant, reason } in accepted(&root).unwrap() {
            let text = fs::read_to_string(root.join(&mutant.file)).unwrap_or_default();
            assert!(text.lines().any(|line| line.trim() == mutant.line), "{mutant} ({reason})");
        }
    }
}
