//! Logs and files of plans. Settings apply to a whole process, so each test starts its own.

use std::process::Command;

use serde_json::Value;

/// Runs one of these tests in a process with settings, and returns its output.
fn run(test: &str, settings: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

const TWO_KINDS: &str = "plans::a_marker_keeps_its_source_alive_and_a_copy_follows_it";

#[test]
fn sizes_are_logged_against_ggmls_own_where_that_is_asked_for() {
    let said = run(TWO_KINDS, &[("ORLOP_GGML_LOG", "1")]);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("orlop: ")).collect();
    assert_eq!(
        lines,
        [
            "orlop: ggml , layout of 0.9 to 0.26",
            "orlop: graph 1 (5 nodes): dummy 128 bytes, ggml's plan 128",
            "orlop: graph 1 (5 nodes): dummy 128 bytes, ggml's plan 128",
        ]
    );
    assert_eq!(run(TWO_KINDS, &[("ORLOP_GGML_LOG", "0")]), "");
}

#[test]
fn splits_and_copies_are_logged_and_schedules_can_be_left_to_the_program() {
    let said = run("schedules::a_tensor_that_was_written_since_is_copied_again", &[("ORLOP_GGML_LOG", "1")]);
    let line = "orlop: schedule 1 (4 nodes): 3 splits, 2 copies of 128 bytes, ggml's 1 of 64";
    assert!(said.lines().any(|said| said == line), "{said}");
    let own = "schedules::the_programs_own_scheduler_serves_where_that_is_asked_for";
    assert!(!run(own, &[("ORLOP_GGML_SCHED", "0")]).contains("schedule"));
}

#[test]
fn several_graphs_run_at_a_time_where_that_is_asked_for() {
    for test in [
        "schedules::graphs_that_run_at_a_time_keep_their_inputs_apart",
        "schedules::an_input_that_a_device_reads_where_it_is_lies_elsewhere_for_the_next_graph",
    ] {
        let said = run(test, &[("ORLOP_GGML_SCHED", "parallel"), ("ORLOP_GGML_LOG", "1")]);
        assert!(said.contains("orlop: schedule "), "{test}: {said}");
    }
}

#[test]
fn plans_are_written_as_graphs_that_can_be_planned_again() {
    let folder = std::env::temp_dir().join(format!("orlop-ggml-{}", std::process::id()));
    run(TWO_KINDS, &[("ORLOP_GGML_PLAN", folder.to_str().unwrap())]);
    let files: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let json: Vec<_> =
        files.iter().filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    assert_eq!(json.len(), 1);
    let text = std::fs::read_to_string(json[0]).unwrap();
    let page = std::fs::read_to_string(json[0].with_extension("html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("graph 1, by Orlop"));
    std::fs::remove_dir_all(&folder).unwrap();
    let graph: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(graph["buffers"].as_array().unwrap().len(), 2);
    assert_eq!(graph["buffers"][0]["peak"], 128);
    assert_eq!(graph["buffers"][0]["ggml"], 128);
    assert_eq!(graph["reserved"], serde_json::json!([128, 128]));
    assert_eq!(graph["nodes"].as_array().unwrap().len(), 5);
    let marker = &graph["tensors"][graph["nodes"][2][0].as_u64().unwrap() as usize];
    assert_eq!((&marker["op"], &marker["view_src"]), (&Value::from("NONE"), &graph["nodes"][0][0]));
    // Everything but the marker is placed: tensor, buffer, chunk, offset.
    assert_eq!(graph["plan"].as_array().unwrap().len(), 5);
}

#[test]
fn a_folder_that_cannot_be_written_is_said_and_changes_nothing() {
    let said = run(TWO_KINDS, &[("ORLOP_GGML_PLAN", "/dev/null/plans")]);
    assert!(said.contains("cannot write plan 1 to /dev/null/plans"), "{said}");
}
