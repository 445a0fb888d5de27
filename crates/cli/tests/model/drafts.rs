//! Speculative decoding.

use serde_json::Value;

use crate::support::Folder;
use crate::with_model::{default_model, json, orlop};

const REPEATS: &str = "red green blue red green blue red green";

fn counts(run: &Value) -> [u64; 2] {
    ["drafted", "accepted"].map(|key| run[key].as_u64().unwrap())
}

#[test]
fn drafts_change_no_token() {
    let model = default_model();
    for sampling in [&["--temp", "0"][..], &["-s", "3"], &["-s", "4", "--repeat-penalty", "1.2"]] {
        let run = |draft: &[&str]| {
            let fixed = ["run", "--json", "-n", "48", "-c", "256", REPEATS];
            json(&[&fixed, sampling, draft].concat())
        };
        let plain = run(&[]);
        assert_eq!(counts(&plain), [0, 0]);
        for draft in [&["--lookup"][..], &["--lookup", "--draft-max", "3"], &["-md", &model]] {
            let drafted = run(draft);
            assert_eq!(drafted["tokens"], plain["tokens"], "{sampling:?} {draft:?}");
            // How many tokens are drafted depends on measured times.
            let [all, accepted] = counts(&drafted);
            assert!(accepted <= all, "{accepted} of {all}");
        }
    }
}

#[test]
fn counts_come_after_the_timings() {
    let run = orlop(&["run", "--temp", "0", "-n", "24", "--lookup", REPEATS]);
    assert_eq!(run.status, Some(0), "{run:?}");
    let last = run.stderr.trim_end().lines().last().unwrap();
    assert!(last.starts_with("accepted ") && last.ends_with(" drafted tokens"), "{run:?}");
}

fn shares(memory: &Value) -> Vec<[u64; 5]> {
    let keys = ["weights", "repacked", "kv", "compute", "total"];
    let devices = memory["devices"].as_array().unwrap();
    devices.iter().map(|device| keys.map(|key| device[key].as_u64().unwrap())).collect()
}

#[test]
fn the_plan_has_what_drafts_take() {
    let (model, draft, folder) = (default_model(), "--draft-max", Folder::new());
    // The logits of many rows are larger than all else in a small batch.
    let plan = |words: &[&str]| {
        shares(&json(&[&["plan", &model, "--json", "-c", "300", "-ub", "32", "-t", "2"], words].concat()))
    };
    let run = |words: &[&str]| {
        let fixed =
            ["run", "--json", "-m", &model, "-c", "300", "-ub", "32", "-t", "2", "-n", "12", "--temp", "0"];
        shares(&json(&[&fixed, words, &[REPEATS]].concat())["memory"])
    };
    let alone = plan(&[]);
    let lookup = plan(&["--lookup", draft, "31"]);
    assert!(lookup[0][3] > alone[0][3], "{lookup:?} {alone:?}");
    assert_eq!(run(&["--lookup", draft, "31"]), lookup);
    let pair = plan(&["-md", &model]);
    assert!(pair[0][2] == 2 * alone[0][2] && pair[0][1] == 2 * alone[0][1], "{pair:?} {alone:?}");
    assert_eq!(run(&["-md", &model]), pair);

    // What the pair takes is refused as a whole, and the context that is offered fits.
    let budget = format!("cpu={}", pair[0][4] - 1);
    let over = ["-md", &model, "-ub", "32", "-t", "2", "--budget", &budget];
    let planned = json(&[&["plan", &model, "--json", "-c", "300"], &over[..]].concat());
    assert_eq!(planned["fits"], false);
    let largest = planned["largest_context"].as_u64().unwrap().to_string();
    let said = orlop(&[&["run", "-c", "300", "Hi"], &over[..]].concat()).refusal(3);
    assert!(said.contains(&format!("-c {largest} fits")), "{said}");
    let fits = orlop(&[&["run", "-n", "2", "-c", &largest, "Hi"], &over[..]].concat());
    assert_eq!(fits.status, Some(0), "{fits:?}");

    let saved = folder.path("plan.json");
    assert_eq!(plan(&["--lookup", "--save", &saved]), plan(&["--lookup"]));
    assert_eq!(run(&["--lookup", "--plan", &saved]), plan(&["--lookup"]));
    let said = orlop(&["run", "-m", &model, "-c", "300", "-ub", "24", "--lookup", "--plan", &saved, "Hi"]);
    assert_eq!(said.status, Some(2), "{said:?}");
}

#[test]
fn what_cannot_draft_is_refused() {
    let folder = Folder::new();
    let [other, state] = ["other.gguf", "state.gguf"].map(|name| folder.path(name));
    for (file, preset) in [(&other, "gpt2-124m"), (&state, "mamba2-130m")] {
        assert_eq!(orlop(&["synth", file, "--preset", preset]).status, Some(0));
    }
    let cases: [(&[&str], &[&str]); 6] = [
        (&["-md", &other], &["another vocabulary", "token 0 is", "50257 tokens", "49152", "-md"]),
        (&["-m", &state, "--lookup"], &["mamba2 model keeps a state", "--lookup"]),
        (&["-md", "missing.gguf"], &["missing.gguf"]),
        (&["--lookup", "--draft-max", "0"], &["from 1 to 512"]),
        (&["--lookup", "-md", &other], &["--lookup"]),
        (&["--draft-max", "4"], &["--lookup"]),
    ];
    for (words, expected) in cases {
        let said = orlop(&[&["run", "-n", "4", "Hello"], words].concat()).refusal(2);
        assert!(expected.iter().all(|text| said.contains(text)), "{words:?}: {said}");
    }
    let graph = folder.path("problem.csv");
    std::fs::write(&graph, "id,lower,upper,size\na,0,2,64\n").unwrap();
    let said = orlop(&["plan", &graph, "--lookup"]).refusal(2);
    assert!(said.contains("--lookup applies to models"), "{said}");
}
