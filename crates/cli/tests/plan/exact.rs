use serde_json::Value;

use crate::support::{Folder, fixture, number, orlop};

/// The bound is 6 bytes, the optimum 7.
const AWKWARD: &str = "id,lower,upper,size\na,6,9,3\nb,0,2,3\nc,3,6,2\nd,2,5,2\ne,1,3,3\nf,5,9,3\ng,2,6,1\n";

fn report(arguments: &[&str]) -> Value {
    serde_json::from_str(&orlop(arguments).result()).expect("one JSON object")
}

#[test]
fn exact_proves_that_a_plan_above_the_bound_is_the_smallest() {
    let folder = Folder::new();
    let file = folder.file("awkward.csv", AWKWARD);
    let report = report(&["plan", &file, "--json", "--strategy", "exact"]);
    assert_eq!((number(&report["bound"]), number(&report["peak"])), (6, 7));
    assert_eq!((&report["optimal"], &report["stopped"]), (&Value::Bool(true), &Value::Null));
}

#[test]
fn an_infeasible_capacity_names_the_conflicting_buffers() {
    let folder = Folder::new();
    let file = folder.file("awkward.csv", format!("{AWKWARD}innocent,20,21,1\n"));
    let sentence = orlop(&["plan", &file, "--json", "--strategy", "exact", "--capacity", "6"]).refusal(4);
    assert!(sentence.contains("no plan fits the capacity of 6") && sentence.contains("`a`"), "{sentence}");
    assert!(!sentence.contains("innocent"), "{sentence}");
    let met = report(&["plan", &file, "--json", "--strategy", "exact", "--capacity", "7"]);
    assert_eq!(number(&met["peak"]), 7);
}

#[test]
fn a_capacity_below_the_bound_names_the_conflicting_buffers() {
    let folder = Folder::new();
    let file = folder.file("two.csv", "id,lower,upper,size\nbig,0,4,10\nsmall,0,4,1\nother,2,4,9\n");
    let sentence = orlop(&["plan", &file, "--capacity", "18"]).refusal(4);
    assert!(sentence.contains("`big`, `other`") && !sentence.contains("`small`"), "{sentence}");
}

#[test]
fn the_time_limit_gives_the_best_plan_so_far() {
    let folder = Folder::new();
    let file = folder.file("awkward.csv", AWKWARD);
    let stopped = report(&["plan", &file, "--json", "--strategy", "exact", "--time-limit", "0"]);
    assert_eq!(stopped["stopped"], "time");
    assert!(number(&stopped["peak"]) >= 7);
    let run = orlop(&["plan", &file, "--json", "--time-limit", "0", "--capacity", "6"]);
    assert_eq!(run.status, Some(3), "{run:?}");
    let late: Value = serde_json::from_str(&run.stdout).expect("one JSON object");
    assert_eq!(late["stopped"], "time");
    let unhurried = report(&["plan", &file, "--json", "--time-limit", "1000"]);
    assert_eq!(unhurried["stopped"], Value::Null);
}

#[test]
fn a_capacity_without_a_strategy_is_met_or_proven_impossible() {
    let folder = Folder::new();
    let file = folder.file("awkward.csv", AWKWARD);
    // The default effort of `best` ends without a proof for a problem of this kind that is large enough.
    let many: String = (0..60)
        .flat_map(|copy| {
            let lines = AWKWARD.lines().skip(1).map(move |line| (copy, line));
            lines.map(|(copy, line)| {
                let fields: Vec<&str> = line.split(',').collect();
                let step = |field: &str| field.parse::<u64>().expect("a step") + 8 * copy;
                format!("{}{copy},{},{},{}\n", fields[0], step(fields[1]), step(fields[2]), fields[3])
            })
        })
        .collect();
    let chain = folder.file("chain.csv", format!("id,lower,upper,size\n{many}"));
    for threads in ["1", "2"] {
        let run = |file: &str, more: &[&str]| {
            orlop(&[&["plan", file, "--json", "--search-threads", threads], more].concat())
        };
        assert!(run(&file, &["--capacity", "6"]).refusal(4).contains("no plan fits the capacity of 6"));
        run(&file, &["--capacity", "7"]).result();
        assert_eq!(run(&chain, &["--capacity", "9", "--effort", "0"]).status, Some(3));
        let least = report(&["plan", &chain, "--json", "--time-limit", "1000"]);
        assert_eq!(least["optimal"], Value::Bool(true));
        let peak = number(&least["peak"]);
        run(&chain, &["--capacity", &peak.to_string()]).result();
        run(&chain, &["--capacity", &(peak - 1).to_string()]).refusal(4);
    }
}

#[test]
fn a_time_limit_is_a_number_of_seconds() {
    for wrong in ["-1", "soon", "nan", "1e300"] {
        let limit = format!("--time-limit={wrong}");
        let sentence = orlop(&["plan", &fixture("small.csv"), &limit]).refusal(2);
        assert!(sentence.contains("--time-limit"), "{sentence}");
    }
}

#[test]
fn a_saved_plan_names_what_it_is_a_plan_of() {
    let folder = Folder::new();
    let (one, two) = (folder.file("one.csv", AWKWARD), folder.file("two.csv", AWKWARD.replace("a,", "z,")));
    let grown = folder.file("grown.csv", format!("{AWKWARD}x,0,1,1\n"));
    let signature = |file: &str| {
        let out = folder.path("plan.json");
        report(&["plan", file, "--json", "--save", &out]);
        let saved: Value =
            serde_json::from_str(&std::fs::read_to_string(&out).expect("a plan")).expect("JSON");
        assert!(saved["plan"]["places"].as_array().is_some_and(|places| places.len() >= 7));
        saved["signature"].clone()
    };
    assert_eq!(signature(&one), signature(&two), "names do not matter");
    assert_ne!(signature(&one), signature(&grown));
}

#[test]
fn a_saved_plan_is_of_one_graph() {
    let folder = Folder::new();
    let out = folder.path("plan.json");
    let sentence = orlop(&["plan", &fixture("graphs.jsonl.gz"), "--save", &out]).refusal(2);
    assert!(sentence.contains("single graph"), "{sentence}");
}
