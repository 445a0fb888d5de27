use serde_json::Value;

use crate::with_model::{default_model, ids, json, orlop, prompts};

#[test]
fn the_capital_of_france_is_paris() {
    let run = orlop(&["run", "--temp", "0", "-n", "8", "The capital of France is"]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.starts_with(" Paris"), "{run:?}");
    assert!(run.stderr.contains("tokens/s"), "timings come last: {run:?}");
}

#[test]
fn prompts_become_the_tokens_that_llama_cpp_makes_of_them() {
    for line in prompts() {
        let found = json(&["tokenize", "--json", "--", line["prompt"].as_str().unwrap()]);
        assert_eq!(found["tokens"], line["tokens"], "{}", line["prompt"]);
    }
}

/// The root mean square error of the logits that a line lists.
fn error(row: &Value, exact: &Value) -> f64 {
    let exact = exact.as_array().unwrap();
    let square = |pair: &Value| {
        let id = pair[0].as_u64().unwrap() as usize;
        (row[id].as_f64().unwrap() - pair[1].as_f64().unwrap()).powi(2)
    };
    (exact.iter().map(square).sum::<f64>() / exact.len() as f64).sqrt()
}

#[test]
fn logits_are_close_to_exact_arithmetic() {
    let (mut sum, mut count) = (0.0, 0.0);
    for line in prompts().iter().step_by(3) {
        let tokens = ids(&line["tokens"]);
        let fixed = ["logits", "--json", "--last", "--tokens", &tokens];
        let exact = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"];
        let precise = json(&[&fixed[..], &exact[..]].concat());
        let rms = error(&precise["logits"][0], &line["exact"]);
        assert!(rms <= 0.02, "{rms}: {}", line["prompt"]);
        sum += error(&json(&fixed)["logits"][0], &line["exact"]);
        count += 1.0;
    }
    assert!(sum / count <= 1.3 * 0.235, "{}", sum / count);
}

#[test]
fn equal_seeds_give_equal_texts() {
    let text =
        |seed: &str| json(&["run", "--json", "-n", "12", "-s", seed, "Once upon a time"])["text"].clone();
    assert_eq!(text("7"), text("7"));
    assert_ne!(text("7"), text("8"));
}

#[test]
fn one_run_tells_tokens_text_timings_and_memory() {
    let found = json(&["run", "--json", "--temp", "0", "-n", "3", "The capital of France is"]);
    assert_eq!(found["prompt_tokens"], serde_json::json!([504, 3575, 282, 4649, 314]));
    assert_eq!(found["tokens"].as_array().unwrap().len(), 3);
    assert!(found["text"].as_str().unwrap().starts_with(" Paris"));
    for key in ["load_s", "prompt_s", "repack_s", "generate_s"] {
        assert!(found["timings"][key].as_f64().unwrap() > 0.0, "{key}: {found}");
    }
}

#[test]
fn the_end_token_is_among_the_tokens_and_not_in_the_text() {
    let prompt = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n";
    let found = json(&["run", "--json", "--temp", "0", "-n", "200", prompt]);
    let tokens = found["tokens"].as_array().unwrap();
    assert!(tokens.len() < 200, "it ends by itself: {found}");
    assert_eq!(tokens.last().unwrap(), 2);
    assert!(!found["text"].as_str().unwrap().contains("<|im_end|>"));
}

#[test]
fn a_benchmark_reports_its_tests() {
    let found = json(&["bench", "--json", "-p", "8", "-n", "2", "-r", "2", "-t", "1"]);
    let tests: Vec<&str> =
        found.as_array().unwrap().iter().map(|test| test["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["pp8", "tg2"]);
    for test in found.as_array().unwrap() {
        assert_eq!((&test["threads"], &test["device"]), (&1.into(), &"cpu".into()));
        assert!(test["tokens_per_second"].as_f64().unwrap() > 0.0);
        assert!(test.get("reads").is_none());
    }
    let found = json(&["bench", "--json", "-p", "4", "-n", "2", "-r", "1", "-t", "2", "--reads"]);
    assert!(found[0].get("reads").is_none(), "prompts are not a matter of reading: {found}");
    for kind in ["plain", "large_pages"] {
        let [mean, best] = ["mean", "best"].map(|name| found[1]["reads"][kind][name].as_f64().unwrap());
        assert!(mean > 0.0 && mean <= best, "{found}");
    }
}

#[test]
fn bench_of_several_sequences_has_a_test_for_each_count() {
    let found = json(&["bench", "--json", "-p", "0", "-n", "2", "-r", "1", "-d", "70", "-npl", "1,3"]);
    let tests = found.as_array().unwrap();
    assert_eq!(tests[0]["sequences"], serde_json::Value::Null);
    for (test, sequences) in tests[1..].iter().zip([1, 3]) {
        assert_eq!((&test["test"], test["sequences"].as_u64()), (&"tg2@d70".into(), Some(sequences)));
        assert!(test["tokens_per_second"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(tests.len(), 3);
    let said = orlop(&["bench", "-npl", "1,0"]).refusal(2);
    assert!(said.contains("'0'") && said.contains("--sequences"), "{said}");
}

#[test]
fn the_largest_logits_are_listed_on_demand() {
    let found = json(&["logits", "--json", "--top", "2", "--tokens", "504,3575,282,4649,314"]);
    let rows = found["logits"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[4][0][0], 7042);
    assert_eq!(rows[4].as_array().unwrap().len(), 2);
}

#[test]
fn without_a_file_the_default_model_is_planned_and_inspected() {
    let model = default_model();
    for command in [&["plan", "--json", "-c", "64", "--budget", "cpu=1GiB"][..], &["inspect", "--json"]] {
        let found = orlop(command).result();
        assert_eq!(found, orlop(&[command, &[&model]].concat()).result());
        assert_eq!(found, orlop(&[command, &["-m", &model]].concat()).result());
    }
}

#[test]
fn devices_are_listed() {
    let found = json(&["devices", "--json"]);
    assert_eq!(found[0]["name"], "cpu");
}
