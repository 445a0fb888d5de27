use serde_json::Value;

use crate::support::Folder;
use crate::with_model::{default_model, json, orlop};

fn shares(memory: &Value) -> Vec<[u64; 5]> {
    let keys = ["weights", "repacked", "kv", "compute", "total"];
    let devices = memory["devices"].as_array().unwrap();
    devices.iter().map(|device| keys.map(|key| device[key].as_u64().unwrap())).collect()
}

#[test]
fn a_run_allocates_exactly_the_planned_bytes() {
    let model = default_model();
    let settings: [&[&str]; 4] = [
        &["-c", "512"],
        &["-c", "1000", "-ub", "64", "-t", "2"],
        &["-c", "256", "-ctk", "q8_0", "-ctv", "f32", "-t", "1"],
        &["-c", "300", "--no-repack", "--precision", "f32"],
    ];
    for settings in settings {
        let plan = json(&[&["plan", &model, "--json"], settings].concat());
        let run = json(
            &[&["run", "-m", &model, "--json", "-n", "4", "--temp", "0", "One, two, three"], settings]
                .concat(),
        );
        assert_eq!(shares(&run["memory"]), shares(&plan), "{settings:?}");
        for [weights, repacked, kv, compute, total] in shares(&plan) {
            assert_eq!(weights + repacked + kv + compute, total);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn resident_memory_is_close_to_the_plan() {
    let model = default_model();
    let run = json(&["run", "-m", &model, "--json", "-n", "8", "-c", "2048", "-t", "2", "One, two, three"]);
    let planned: u64 = shares(&run["memory"]).iter().map(|share| share[4]).sum();
    let resident = run["memory"]["peak_resident"].as_u64().unwrap();
    assert!(resident <= planned + (64 << 20), "{resident} bytes of {planned}");
}

#[test]
fn a_model_that_does_not_fit_names_the_largest_context() {
    let model = default_model();
    let plan = json(&["plan", &model, "--json", "-c", "512"]);
    let total = shares(&plan)[0][4];
    let budget = format!("cpu={}", total - 1);
    let over = json(&["plan", &model, "--json", "-c", "512", "--budget", &budget]);
    assert_eq!(over["fits"], false);
    let largest = over["largest_context"].as_u64().unwrap();
    assert!(largest < 512, "{largest}");
    let said = orlop(&["run", "-m", &model, "-c", "512", "--budget", &budget, "Hello"]).refusal(3);
    assert!(said.contains(&format!("-c {largest}")), "{said}");
    let fits = json(&[
        "run",
        "-m",
        &model,
        "--json",
        "-n",
        "2",
        "-c",
        &largest.to_string(),
        "--budget",
        &budget,
        "Hi",
    ]);
    assert!(shares(&fits["memory"])[0][4] < total);
}

#[test]
fn a_saved_plan_is_used_for_its_own_settings_and_no_others() {
    let (model, folder) = (default_model(), Folder::new());
    let file = folder.path("plan.json");
    let plan = json(&["plan", &model, "--json", "-c", "256", "--save", &file]);
    let run = |context| {
        ["run", "-m", &model, "--json", "-n", "4", "--temp", "0", "-c", context, "--plan", &file, "One, two"]
    };
    assert_eq!(shares(&json(&run("256"))["memory"]), shares(&plan));
    let said = orlop(&run("255")).refusal(2);
    assert!(said.contains("saved plans") && said.contains("--save"), "{said}");
    // The context is part of what was saved.
    let without =
        json(&["run", "-m", &model, "--json", "-n", "4", "--temp", "0", "--plan", &file, "One, two"]);
    assert_eq!(shares(&without["memory"]), shares(&plan));
    let mut saved: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    saved["plans"] = serde_json::json!([]);
    std::fs::write(&file, saved.to_string()).unwrap();
    assert_eq!(orlop(&run("256")).status, Some(0), "no plans at all are no other plans");
    std::fs::write(&file, "{").unwrap();
    assert!(orlop(&run("256")).refusal(2).contains(&file));
}

#[test]
fn a_plan_can_explain_itself() {
    let run = orlop(&["plan", &default_model(), "-c", "64", "-ub", "8", "--explain"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    for expected in ["compute", "largest context", "blk.29.attn_output", "placement of the nodes"] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
}

#[test]
fn a_saved_plan_of_a_model_is_compared_with_what_is_planned_now() {
    let (model, folder) = (default_model(), Folder::new());
    let saved = folder.path("plans.json");
    orlop(&["plan", &model, "-c", "512", "-t", "1", "--save", &saved]).result();
    let text = orlop(&["plan", "--diff", &saved, &model, "-c", "512", "-t", "1"]).result();
    assert_eq!(text.matches(" unchanged").count(), 2, "a batch and a token: {text}");
    assert!(text.contains("cpu KV cache") && text.contains("cpu arena"), "{text}");
    let sentence =
        orlop(&["plan", "--diff", &saved, &model, "-c", "512", "-t", "1", "-ub", "100"]).refusal(2);
    assert!(sentence.contains("is not a plan of") && sentence.contains("of these settings"), "{sentence}");
}

/// A model that was trained for few tokens.
fn short_sighted(folder: &Folder) -> String {
    let synth = orlop::llm::Synth { vocabulary: 700, context: 32, ..orlop::llm::Synth::default() };
    folder.file("short.gguf", synth.bytes().unwrap())
}

#[test]
fn a_context_beyond_the_training_context_is_noted() {
    let folder = Folder::new();
    let model = short_sighted(&folder);
    let said = |context: &str| {
        let run = orlop(&["plan", &model, "-c", context]);
        let line = run.stdout.lines().find(|line| line.starts_with("a context of"));
        line.unwrap_or_default().to_owned()
    };
    assert_eq!(said("64"), "a context of 64 fits; the model was trained for 32 tokens");
    assert_eq!(said("16"), "a context of 16 fits; the largest context that fits is 32");
    assert_eq!(json(&["plan", &model, "--json", "-c", "64"])["largest_context"], 64);
}

#[test]
fn a_long_prompt_names_the_context_that_fits() {
    let folder = Folder::new();
    let (model, prompt) = (short_sighted(&folder), "a b c d e ".repeat(20));
    let said = orlop(&["run", "-m", &model, "-n", "1", &prompt]).refusal(3);
    assert!(said.contains(" fits, though the model was trained for 32 tokens"), "{said}");
    let wanted = said.split("-c ").nth(1).unwrap().split(' ').next().unwrap();
    let run = orlop(&["run", "-m", &model, "-n", "1", "-c", wanted, &prompt]);
    assert_eq!(run.status, Some(0), "{run:?}");
}
