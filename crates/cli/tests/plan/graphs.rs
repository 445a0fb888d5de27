use std::collections::HashMap;

use serde_json::Value;

use crate::support::{Folder, fixture, fixture_text, json_lines, list, number, orlop};

/// Graphs planned by ggml, and one by hand with features of pipelined and training graphs; with ggml's results.
fn cases() -> Vec<Value> {
    let mut cases = json_lines(&fixture_text("graphs.jsonl.gz"));
    cases.extend(json_lines(&fixture_text("pipeline.jsonl")));
    cases
}

/// Plans all cases without ggml's results; returns each with its report and its offsets.
fn planned(arguments: &[&str]) -> Vec<(Value, Value, Value)> {
    let folder = Folder::new();
    let cases = cases();
    let mut text = String::new();
    for case in &cases {
        let mut case = case.clone();
        let keys = case.as_object_mut().expect("an object");
        for answer in ["reserved", "planned", "plan"] {
            keys.remove(answer).expect("an answer");
        }
        text += &format!("{case}\n");
    }
    let (file, out) = (folder.file("graphs.jsonl", text), folder.path("out.jsonl"));
    let all = [&["plan", &file, "--json", "--output", &out], arguments].concat();
    let reports = json_lines(&orlop(&all).result());
    let places = json_lines(&std::fs::read_to_string(&out).expect("the output"));
    assert_eq!((reports.len(), places.len()), (cases.len(), cases.len()));
    assert_eq!(folder.files(), ["graphs.jsonl", "out.jsonl"]);
    cases
        .into_iter()
        .zip(reports)
        .zip(places)
        .map(|((case, report), places)| (case, report, places))
        .collect()
}

/// Heights of the chunks of each buffer, from places alone.
fn heights(case: &Value, places: &Value) -> Vec<Vec<u64>> {
    let mut heights: Vec<Vec<u64>> = list(&case["buffers"]).iter().map(|_| Vec::new()).collect();
    for place in list(places) {
        let [tensor, buffer, chunk, offset] = [0, 1, 2, 3].map(|index| number(&place[index]) as usize);
        let alignment = number(&case["buffers"][buffer]["alignment"]);
        let bytes = number(&case["tensors"][tensor]["bytes"]).next_multiple_of(alignment);
        let chunks = &mut heights[buffer];
        chunks.resize(chunks.len().max(chunk + 1), 0);
        chunks[chunk] = chunks[chunk].max(offset as u64 + bytes);
    }
    heights
}

#[test]
fn ggmls_own_places_come_out_to_the_byte() {
    for (case, report, places) in planned(&[]) {
        let label = &case["label"];
        assert_eq!((label, label), (&report["label"], &places["label"]));
        let mut expected = list(&case["plan"]).to_vec();
        expected.sort_by_key(|place| number(&place[0]));
        assert_eq!(list(&places["ggml"]), expected, "{label}");
        let ggml: Vec<&Value> = list(&report["buffers"]).iter().map(|buffer| &buffer["ggml"]).collect();
        assert_eq!(ggml, list(&case["reserved"]).iter().collect::<Vec<_>>(), "{label}");
        for (heights, planned) in heights(&case, &places["ggml"]).iter().zip(list(&case["planned"])) {
            let planned: Vec<u64> = list(planned).iter().map(number).collect();
            assert_eq!(heights, &planned, "{label}");
        }
    }
}

#[test]
fn no_buffer_gets_larger_than_ggmls() {
    let mut saved = 0;
    for (case, report, places) in planned(&[]) {
        for (index, buffer) in list(&report["buffers"]).iter().enumerate() {
            assert_eq!(buffer["name"], case["buffers"][index]["name"]);
            let [ggml, peak] = ["ggml", "peak"].map(|key| number(&buffer[key]));
            assert!(peak <= ggml, "{}: {peak} over {ggml}", case["label"]);
            let heights = &heights(&case, &places["plan"])[index];
            // A storage may be larger than the values that took it over.
            assert!(heights.iter().sum::<u64>() <= peak, "{}: {heights:?} over {peak}", case["label"]);
            saved += ggml - peak;
        }
    }
    assert!(saved > 0);
}

/// The lifetime of a root: from its first use to its last.
#[derive(Clone, Copy)]
struct Life {
    first: usize,
    last: usize,
}

/// Lifetimes of tensors with memory of their own, by the rules for graph files.
fn lives(case: &Value) -> HashMap<usize, Life> {
    let tensors = list(&case["tensors"]);
    let nodes: Vec<usize> = list(&case["nodes"]).iter().map(|node| number(&node[0]) as usize).collect();
    let end = nodes.len() - 1;
    let root = |tensor: usize| tensors[tensor]["view_src"].as_u64().map_or(tensor, |root| root as usize);
    let sources = |tensor: usize| list(&tensors[tensor]["src"]).iter().map(|source| number(source) as usize);
    let mut read = vec![false; tensors.len()];
    nodes.iter().flat_map(|node| sources(*node)).for_each(|source| {
        read[source] = true;
        read[root(source)] = true;
    });
    let mut lives: HashMap<usize, Life> = HashMap::new();
    let mut touch = |tensor: usize, step: usize| {
        let life = lives.entry(tensor).or_insert(Life { first: step, last: step });
        *life = Life { first: life.first.min(step), last: life.last.max(step) };
    };
    for leaf in list(&case["leafs"]) {
        touch(number(&leaf[0]) as usize, 0);
    }
    for (step, node) in nodes.iter().enumerate() {
        for tensor in sources(*node).chain([*node]) {
            touch(root(tensor), step);
            if tensors[root(tensor)]["input"] == true {
                touch(root(tensor), 0);
            }
        }
        if root(*node) != *node && tensors[*node]["op"] != "NONE" && !read[*node] {
            touch(root(*node), end);
        }
    }
    for (tensor, life) in &mut lives {
        if !read[*tensor] || tensors[*tensor]["output"] == true {
            life.last = end;
        }
    }
    lives
}

/// Whether a tensor may overwrite another at the step that computes it: in place of a source.
fn may_take_over(case: &Value, old: usize, new: usize) -> bool {
    let tensors = list(&case["tensors"]);
    tensors[new]["inplace"] == true
        && tensors[old]["output"] == false
        && list(&tensors[new]["src"]).iter().any(|source| {
            let source = number(source) as usize;
            let view_of = tensors[source]["view_src"].as_i64();
            let same = |key: &str| tensors[source][key] == tensors[new][key];
            let through_view = view_of == Some(old as i64) && tensors[source]["view_offs"] == 0;
            (source == old || through_view) && ["type", "ne", "nb"].into_iter().all(same)
        })
}

#[test]
fn no_two_tensors_share_bytes_unless_one_takes_over_from_the_other() {
    for (case, _, places) in planned(&[]) {
        let lives = lives(&case);
        for plan in ["ggml", "plan"] {
            let placed: Vec<[u64; 4]> = list(&places[plan])
                .iter()
                .map(|place| [0, 1, 2, 3].map(|index| number(&place[index])))
                .collect();
            for (index, a) in placed.iter().enumerate() {
                for b in &placed[..index] {
                    let bytes = |place: &[u64; 4]| number(&case["tensors"][place[0] as usize]["bytes"]);
                    let apart = a[1..3] != b[1..3] || a[3] >= b[3] + bytes(b) || b[3] >= a[3] + bytes(a);
                    if apart {
                        continue;
                    }
                    let (ia, ib) = (a[0] as usize, b[0] as usize);
                    let (la, lb) = (lives[&ia], lives[&ib]);
                    let hands_over = |from: usize, to: usize| {
                        lives[&from].last == lives[&to].first && may_take_over(&case, from, to)
                    };
                    let legal = la.last < lb.first
                        || lb.last < la.first
                        || (a[3] == b[3] && (hands_over(ia, ib) || hands_over(ib, ia)));
                    assert!(legal, "{} {plan}: tensors {ia} and {ib}", case["label"]);
                }
            }
        }
    }
}

#[test]
fn tensors_with_memory_of_their_own_are_listed_once_in_order() {
    for (case, _, places) in planned(&[]) {
        for plan in ["ggml", "plan"] {
            let listed: Vec<u64> = list(&places[plan]).iter().map(|place| number(&place[0])).collect();
            let mut expected: Vec<u64> = list(&case["plan"]).iter().map(|place| number(&place[0])).collect();
            expected.sort_unstable();
            assert_eq!(listed, expected, "{} {plan}", case["label"]);
        }
    }
}

#[test]
fn ggmls_strategy_gives_ggmls_plan() {
    for (_, report, places) in planned(&["--strategy", "ggml"]) {
        assert_eq!(places["ggml"], places["plan"]);
        assert!(list(&report["buffers"]).iter().all(|buffer| buffer["ggml"] == buffer["peak"]));
    }
}

#[test]
fn buffers_of_one_type_share_an_arena_that_the_first_reports() {
    let folder = Folder::new();
    let mut case = cases().into_iter().find(|case| list(&case["buffers"]).len() == 2).expect("two buffers");
    case["buffers"][1]["same_as"] = 0.into();
    case["buffers"][1]["alignment"] = case["buffers"][0]["alignment"].clone();
    let file = folder.file("shared.jsonl", case.to_string());
    let report = &json_lines(&orlop(&["plan", &file, "--json"]).result())[0];
    let second = &report["buffers"][1];
    assert_eq!((&second["ggml"], &second["peak"], &second["bound"]), (&0.into(), &0.into(), &0.into()));
    assert!(number(&report["buffers"][0]["ggml"]) > 0);
}

#[test]
fn equal_input_gives_equal_output() {
    let [first, second] = [(); 2].map(|()| orlop(&["plan", &fixture("graphs.jsonl.gz"), "--json"]).result());
    assert_eq!(first, second);
}

#[test]
fn people_get_a_line_a_graph_and_a_total() {
    let text = orlop(&["plan", &fixture("graphs.jsonl.gz")]).result();
    let lines: Vec<&str> = text.lines().collect();
    let labels: Vec<String> =
        json_lines(&fixture_text("graphs.jsonl.gz")).iter().map(|case| case["label"].to_string()).collect();
    assert_eq!(lines.len(), labels.len() + 2);
    for (line, label) in lines[1..].iter().zip(&labels) {
        assert!(line.starts_with(label.trim_matches('"')), "{line}");
    }
    assert!(lines.last().expect("a total").starts_with(&format!("{} graphs", labels.len())));
}

#[test]
fn the_peak_is_explained() {
    let text = orlop(&["plan", &fixture("graphs.jsonl.gz"), "--explain"]).result();
    assert!(text.lines().any(|line| line.starts_with("  CPU: step ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("  RPC0: step ")), "{text}");
}

#[test]
fn a_capacity_is_about_all_buffers_of_a_graph() {
    let (file, reports) = (fixture("pipeline.jsonl"), planned(&[]));
    let (_, report, _) = reports.last().expect("the graph by hand");
    let sum: u64 = list(&report["buffers"]).iter().map(|buffer| number(&buffer["peak"])).sum();
    assert_eq!(orlop(&["plan", &file, "--json", "--capacity", &sum.to_string()]).status, Some(0));
    let run = orlop(&["plan", &file, "--json", "--capacity", &(sum - 1).to_string()]);
    assert_eq!((run.status, json_lines(&run.stdout).len()), (Some(3), 1));
    assert!(run.sentence().contains("by-hand/pipeline"));
}

#[test]
fn an_orlop_graph_is_planned_in_one_arena() {
    let folder = Folder::new();
    let mut builder = orlop::graph::GraphBuilder::new();
    let x = builder.input("x", orlop::graph::DType::F32, &[16]);
    let y = builder.sqr(x);
    let z = builder.relu(y);
    builder.output(z);
    let graph = builder.build().expect("a graph");
    let file = folder.file("own.json", graph.to_json().expect("JSON"));
    let report = &json_lines(&orlop(&["plan", &file, "--json"]).result())[0];
    assert_eq!(report["label"], "own.json");
    assert_eq!(list(&report["buffers"]).len(), 1);
    assert_eq!(number(&report["buffers"][0]["peak"]), 64);
    let broken = folder.file("broken.json", "{\"version\": 1,\n \"tensors\": 5}");
    assert!(orlop(&["plan", &broken]).refusal(2).contains("line 2, column"));
}
