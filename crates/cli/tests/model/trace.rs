use serde_json::Value;

use crate::support::Folder;
use crate::with_model::{default_model, json, orlop};

#[test]
fn a_trace_has_planned_and_measured_memory() {
    let (model, folder) = (default_model(), Folder::new());
    let path = folder.path("trace.json");
    let arguments =
        ["run", "-m", &model, "-c", "512", "-n", "4", "--temp", "0", "-t", "2", "--trace", &path, "One, two"];
    let run = orlop(&arguments);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("planned") && run.stderr.contains("allocated"), "{}", run.stderr);
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let other = &trace["otherData"];
    assert_eq!(other["planned"]["devices"][0]["total"], other["allocated"]["devices"][0]["total"]);
    let plan = json(&["plan", &model, "-c", "512", "-t", "2", "--json"]);
    assert_eq!(other["planned"]["devices"][0]["compute"], plan["devices"][0]["compute"]);
    let events = trace["traceEvents"].as_array().unwrap();
    let counters = |name: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["ph"] == "C" && event["name"].as_str().unwrap().contains(name))
            .collect()
    };
    let in_use: Vec<u64> =
        counters("arena in use").iter().map(|event| event["args"]["bytes"].as_u64().unwrap()).collect();
    let arena = plan["devices"][0]["compute"].as_u64().unwrap();
    assert!(in_use.iter().all(|bytes| *bytes <= arena) && in_use.iter().any(|bytes| *bytes > 0));
    // Steps are timed one by one, not spread over their run.
    assert!(in_use.len() > 4 * 100, "{} samples", in_use.len());
    let times: Vec<f64> =
        counters("arena in use").iter().map(|event| event["ts"].as_f64().unwrap()).collect();
    assert!(times.is_sorted());
    let filled = counters("KV cache filled");
    assert!(
        filled.first().unwrap()["args"]["bytes"] == 0
            && filled.last().unwrap()["args"]["bytes"].as_u64() > Some(0)
    );
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 4, "the prompt and three tokens");
    #[cfg(target_os = "linux")]
    assert!(!counters("resident, measured").is_empty());
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_before_anything_is_loaded() {
    let folder = Folder::new();
    let nowhere = folder.path("no/such/trace.json");
    let run = orlop(&["run", "-m", "/no/such/model.gguf", "--trace", &nowhere, "One"]);
    let sentence = run.refusal(2);
    assert!(sentence.starts_with(&nowhere) && sentence.contains("cannot write the file"), "{sentence}");
}
