//! What fits, and how fast: measured, described and predicted.

use std::collections::BTreeMap;

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
