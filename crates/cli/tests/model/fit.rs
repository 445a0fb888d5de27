//! What fits, and how fast: measured, described and predicted.

use std::collections::BTreeMap;

use orlop::llm::{Experts, Synth};
use serde_json::{Value, json};

use crate::support::Folder;
use crate::with_model::{command, default_model, json as orlop_json, orlop};

/// A machine with a GPU of some memory and a host.
fn machine(folder: &Folder, name: &str, gpu_bytes: u64, gpu_read: f64) -> String {
    let device = |name: &str, kind: &str, bytes: u64, read: f64, flops: f64| {
        json!({
            "name": name, "kind": kind, "memory_bytes": bytes, "read_bytes_per_s": read,
            "flops": {"f16": flops, "i8": 2.0 * flops}, "launch_s": 2e-6,
        })
    };
    let link = |from: &str, to: &str| json!({"from": from, "to": to, "latency_s": 1e-5, "bytes_per_s": 2e10});
    let machine = json!({
        "devices": [device("gpu", "cuda", gpu_bytes, gpu_read, 5e13), device("cpu", "cpu", 64 << 30, 5e10, 1e12)],
        "links": [link("cpu", "gpu"), link("gpu", "cpu")],
    });
    let path = folder.path(name);
    std::fs::write(&path, machine.to_string()).unwrap();
    path
}

const SMALL: [&str; 8] = ["plan", "--preset", "smollm2-135m", "--type", "Q8_0", "-c", "512", "--no-measure"];

fn rates(predicted: &Value) -> [f64; 2] {
    let rate = |key: &str| predicted[key].as_f64().unwrap();
    let rates = [rate("prompt_tokens_per_second"), rate("generation_tokens_per_second")];
    assert!(rates.iter().all(|rate| rate.is_finite() && *rate > 0.0), "{predicted}");
    rates
}

#[test]
fn a_model_without_a_file_is_planned_for_a_described_machine() {
    let folder = Folder::new();
    let [large, small] = [("large.json", 4 << 30), ("small.json", 80 << 20)]
        .map(|(name, bytes)| machine(&folder, name, bytes, 8e11));
    let [fast, slow] =
        [large, small].map(|file| orlop_json(&[&SMALL[..], &["--machine", &file, "--json"]].concat()));
    assert_eq!((&fast["layers_on_device"], &fast["devices"][0]["name"]), (&json!(30), &json!("gpu")));
    assert!((1..30).contains(&slow["layers_on_device"].as_u64().unwrap()), "{slow}");
    assert!(rates(&fast["predicted"])[1] > 2.0 * rates(&slow["predicted"])[1]);
    assert_eq!(slow["predicted"]["limited_by"]["generation"], "the memory of cpu");
}

#[test]
fn a_saved_plan_keeps_its_layout() {
    let folder = Folder::new();
    let saved = folder.path("plan.json");
    let small = machine(&folder, "small.json", 80 << 20, 8e11);
    // Here, nothing would be on the GPU.
    let slow = machine(&folder, "slow.json", 80 << 20, 1e9);
    let planned = orlop_json(&[&SMALL[..], &["--machine", &small, "--json", "--save", &saved]].concat());
    let other = orlop_json(&[&SMALL[..], &["--machine", &slow, "--json"]].concat());
    assert_ne!(other["layers_on_device"], planned["layers_on_device"]);
    let again = orlop_json(
        &[&SMALL[..5], &["--no-measure", "--machine", &slow, "--json", "--plan", &saved]].concat(),
    );
    for key in ["layers_on_device", "devices", "context"] {
        assert_eq!(again[key], planned[key], "{key}");
    }
}

#[test]
fn the_choices_that_fit_are_listed() {
    let folder = Folder::new();
    let file = machine(&folder, "machine.json", 300 << 20, 8e11);
    let preset = ["plan", "--preset", "smollm2-135m", "--type", "Q8_0", "--machine", &file, "--fit"];
    let report = orlop_json(&[&preset[..], &["--json"]].concat());
    let choices = report["choices"].as_array().unwrap();
    assert!(choices.len() >= 2, "{report}");
    for choice in choices {
        rates(&choice["predicted"]);
        assert!(choice["bytes"].as_u64().unwrap() > 80 << 20, "{choice}");
        assert!(choice["layers_on_device"].as_u64().unwrap() <= 30);
    }
    let of = |context: u64, cache: &str| {
        let found =
            choices.iter().find(|choice| choice["context"] == context && choice["cache_type"] == cache);
        found.unwrap()["bytes"].as_u64().unwrap()
    };
    assert!(of(8192, "q8_0") < of(8192, "f16") && of(2048, "f16") < of(8192, "f16"));
    let text = orlop(&preset).result();
    let fitting = report["fitting_type"]["name"].as_str().unwrap();
    assert!(
        text.contains(&format!("{fitting} is the largest type of this model that fits on gpu")),
        "{text}"
    );
}

#[test]
fn descriptions_of_no_machine_are_refused() {
    let folder = Folder::new();
    let file = folder.path("machine.json");
    for text in ["{", "{\"devices\": []}", "{\"devices\": [], \"links\": [], \"more\": 1}"] {
        std::fs::write(&file, text).unwrap();
        let said = orlop(&[&SMALL[..], &["--machine", &file]].concat()).refusal(2);
        assert!(said.contains(&file), "{said}");
    }
    let said = orlop(&["plan", "--preset", "smollm2-135m", "--machine", &file, "--device", "cpu"]);
    assert_eq!(said.status, Some(2), "{said:?}");
}

#[test]
fn devices_are_measured_once_and_measurements_are_kept() {
    let (model, folder) = (default_model(), Folder::new());
    let cache = folder.path("cache");
    let run = |arguments: &[&str]| {
        let output = command().args(arguments).env("ORLOP_CACHE", &cache).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let kept = || {
        let folder = std::fs::read_dir(format!("{cache}/speeds"));
        let files = folder.into_iter().flatten().map(|entry| entry.unwrap().path());
        files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect::<BTreeMap<_, _>>()
    };
    let plan = ["plan", &model, "-c", "256", "-t", "1", "--json"];
    rates(&run(&[&plan[..], &["--no-measure"]].concat())["predicted"]);
    assert!(kept().is_empty(), "nothing was measured");
    let first = run(&plan);
    let measured = kept();
    assert_eq!(measured.len(), 1);
    let again = rates(&run(&plan)["predicted"]).into_iter().zip(rates(&first["predicted"]));
    assert!(again.clone().all(|(one, other)| (one / other - 1.0).abs() < 1e-9), "from the cache: {again:?}");
    assert_eq!(kept(), measured);
    let devices = run(&["devices", "--measure", "-t", "1", "--json"]);
    let speeds = &devices[0]["speeds"];
    assert!(speeds["bytes_per_second"].as_f64().unwrap() > 1e8, "{speeds}");
    assert!(!speeds["products"].as_array().unwrap().is_empty(), "{speeds}");
    // There may be a GPU beside it.
    let again = kept();
    assert!(measured.keys().all(|device| again.contains_key(device)), "the same device");
    assert!(measured.iter().all(|(device, speeds)| again[device] != *speeds), "measured again");
    let tests = run(&["bench", "-m", &model, "-p", "16", "-n", "2", "-r", "1", "-t", "1", "--json"]);
    for test in tests.as_array().unwrap() {
        assert!(test["predicted_tokens_per_second"].as_f64().unwrap() > 0.0, "{test}");
    }
}

/// A model with experts, and counts of what it chooses.
fn counted(folder: &Folder) -> (String, String) {
    let [file, counts] = ["moe.gguf", "counts.json"].map(|name| folder.path(name));
    let experts = Experts { count: 8, used: 2, hidden: 64, ..Experts::default() };
    let synth = Synth { experts: Some(experts), vocabulary: 300, ..Synth::default() };
    std::fs::write(&file, synth.bytes().unwrap()).unwrap();
    (file, counts)
}

#[test]
fn commands_count_experts_and_place_them_by_the_counts() {
    let folder = Folder::new();
    let (file, counts) = counted(&folder);
    let text = folder.path("text.txt");
    std::fs::write(&text, "Some words, and some more of them. ".repeat(20)).unwrap();
    let sums = |arguments: &[&str]| -> Vec<u64> {
        orlop(&[arguments, &["-m", &file, "--expert-stats", &counts]].concat()).result();
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&counts).unwrap()).unwrap();
        let sum = |layer: &Value| -> u64 {
            let counts = layer["counts"].as_array().unwrap();
            assert_eq!(counts.len(), 8);
            counts.iter().map(|count| count.as_u64().unwrap()).sum()
        };
        json["layers"].as_array().unwrap().iter().map(sum).collect()
    };
    // A warm-up and one repetition of each; the last layer sees the last token of a prompt alone.
    let bench = sums(&["bench", "-p", "20", "-n", "4", "-r", "1"]);
    assert_eq!(bench, [2 * 2 * 24, 2 * 2 * 5]);
    let run = sums(&["run", "-n", "5", "--temp", "0", "--json", "Some words"]);
    assert!(run[0] > 2 * 5 && run[0].is_multiple_of(2), "{run:?}");
    let perplexity = sums(&["perplexity", "-f", &text, "-c", "32"]);
    assert!(perplexity[0].is_multiple_of(64) && perplexity[0] > 0, "{perplexity:?}");

    let machine = machine(&folder, "machine.json", 480 << 20, 8e11);
    let preset = [
        "plan",
        "--preset",
        "moe-small",
        "--type",
        "Q8_0",
        "-c",
        "512",
        "--machine",
        &machine,
        "--n-prompt",
        "1",
    ];
    let layer = |layer: u64| json!({"layer": layer, "counts": [5, 40, 5, 5, 5, 30, 5, 5]});
    std::fs::write(&counts, json!({"layers": (0..16).map(layer).collect::<Vec<_>>()}).to_string()).unwrap();
    let saved = folder.path("plan.json");
    let by_counts = [&preset[..], &["--experts", &counts]].concat();
    let whole = orlop_json(&[&preset[..], &["--json"]].concat());
    let placed = orlop_json(&[&by_counts[..], &["--json", "--save", &saved]].concat());
    assert!(rates(&placed["predicted"])[1] > 1.05 * rates(&whole["predicted"])[1], "{placed} {whole}");
    let explained = orlop(&[&by_counts[..], &["--explain"]].concat()).result();
    assert!(explained.contains("2 of 8 are hot, on gpu"), "{explained}");
    // A saved plan keeps them.
    let again = orlop_json(&[&preset[..], &["--json", "--plan", &saved]].concat());
    assert_eq!(again["devices"], placed["devices"]);
}

#[test]
fn counts_that_are_not_the_models_are_refused() {
    let folder = Folder::new();
    let (file, counts) = counted(&folder);
    let plan = |text: &str| {
        std::fs::write(&counts, text).unwrap();
        orlop(&["plan", &file, "--experts", &counts, "--no-measure"]).refusal(2)
    };
    assert!(plan("{}").contains("write one with --expert-stats"));
    for layers in
        [json!([{"layer": 0, "counts": [1, 2]}]), json!([{"layer": 2, "counts": [1, 2, 3, 4, 5, 6, 7, 8]}])]
    {
        let refused = plan(&json!({"layers": layers}).to_string());
        assert!(refused.contains("they must be the model's"), "{refused}");
    }
    let dense = orlop(&["run", "--expert-stats", &folder.path("none.json"), "-n", "1", "A"]);
    assert!(dense.refusal(2).contains("the model has none"));
    assert!(!std::path::Path::new(&folder.path("none.json")).exists());
}
