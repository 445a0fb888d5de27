use serde_json::Value;

use crate::support::model_file;
use crate::with_model::{json, orlop};

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|device| device["name"].as_str().unwrap()).collect()
}

#[test]
fn adapters_are_listed_with_memory_and_limits() {
    let devices = json(&["devices", "--json"]);
    assert_eq!(names(&devices)[..2], ["cpu", "wgpu"]);
    let gpu = &devices[1];
    assert!(gpu["total"].as_u64().unwrap() >= gpu["free"].as_u64().unwrap());
    assert!(gpu["largest_buffer"].as_u64().unwrap() >= 1 << 20, "{gpu}");
    assert!(gpu["alignment"].as_u64().unwrap().is_power_of_two(), "{gpu}");
    let printed = orlop(&["devices"]).stdout;
    assert!(printed.contains("\nwgpu "), "{printed}");
}

#[test]
fn a_plan_shows_each_devices_share_and_a_run_takes_it() {
    let settings = ["--device", "wgpu,cpu", "-ngl", "2", "-c", "32", "-ub", "8", "-t", "2"];
    let file = model_file().display().to_string();
    let plan = json(&[&["plan", &file, "--json"][..], &settings].concat());
    let run = json(&[&["run", "--json", "-n", "2", "--temp", "0", "One, two,"][..], &settings].concat());
    assert_eq!(names(&plan["devices"]), ["wgpu", "cpu"]);
    for memory in [&plan, &run["memory"]] {
        assert_eq!(memory["layers_on_device"], 2);
        for (device, planned) in [0, 1].map(|at| (&memory["devices"][at], &plan["devices"][at])) {
            for part in ["weights", "repacked", "kv", "compute", "total"] {
                assert_eq!(device[part], planned[part], "{part}");
            }
            assert!(device["kv"].as_u64().unwrap() > 0);
        }
    }
    assert_eq!(run["tokens"].as_array().unwrap().len(), 2);
}

#[test]
fn benchmarks_name_the_devices() {
    let tests = json(&[
        "bench", "--json", "-p", "0", "-n", "1", "-r", "1", "--device", "wgpu,cpu", "-ngl", "1", "-t", "2",
    ]);
    assert_eq!(tests[0]["device"], "wgpu,cpu");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let run = orlop(&["run", "--device", "wgpu7", "a"]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("no device `wgpu7`"), "{}", run.stderr);
}
