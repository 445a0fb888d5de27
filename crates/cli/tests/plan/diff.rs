use crate::support::{Folder, fixture, json_lines, list, number, orlop};

const UNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/unet.jsonl.gz");

#[test]
fn the_same_plan_has_no_differences() {
    let text = orlop(&["plan", "--diff", UNET, UNET]).result();
    assert!(text.contains("tensors: all ") && text.contains(" unchanged"), "{text}");
}

#[test]
fn changes_of_a_problem_are_listed_per_tensor() {
    let folder = Folder::new();
    let before = folder.file("before.csv", "id,lower,upper,size\na,0,4,128\nb,2,6,64\nold,7,8,32\n");
    let after = folder.file("after.csv", "id,lower,upper,size\na,0,4,256\nb,2,6,64\nnew,6,9,16\n");
    let text = orlop(&["plan", "--diff", &before, &after]).result();
    assert!(text.starts_with("from before.csv\nto   after.csv\n"), "{text}");
    assert!(text.contains("192 B →        320 B         +128 B"), "{text}");
    let starts = |what: &str, name: &str| {
        text.lines().any(|line| line.trim_start().starts_with(what) && line.contains(&format!("  {name}  ")))
    };
    assert!(starts("resized", "a") && starts("removed", "old") && starts("added", "new"), "{text}");
    let json = &json_lines(&orlop(&["plan", "--diff", &before, &after, "--json"]).result())[0];
    assert_eq!((number(&json["total"][0]), number(&json["total"][1])), (192, 320));
    let listed = list(&json["changes"]).len() as u64 + number(&json["unchanged"]);
    assert_eq!(listed, 4, "two of both, one of each: {json}");
}

#[test]
fn a_saved_plan_is_compared_with_its_graph_by_name() {
    let folder = Folder::new();
    let saved = folder.path("ggml.json");
    orlop(&["plan", UNET, "--strategy", "ggml", "--save", &saved]).result();
    let text = orlop(&["plan", "--diff", &saved, UNET]).result();
    assert!(text.contains("123.07 MiB →   107.73 MiB") && text.contains("−15.34 MiB"), "{text}");
    assert!(text.contains("moved       67.50 MiB  node_2107  from CPU arena 0:58268768"), "{text}");
    assert!(text.starts_with(&format!("from sd15-unet/512x512/b1/fa1/im2col ({saved})\n")), "{text}");
    let back = orlop(&["plan", "--diff", UNET, &saved]).result();
    assert!(back.contains("+15.34 MiB"), "{back}");
}

#[test]
fn two_saved_plans_of_one_graph_are_compared_by_number() {
    let folder = Folder::new();
    let [ggml, best] = ["ggml.json", "best.json"].map(|name| folder.path(name));
    orlop(&["plan", UNET, "--strategy", "ggml", "--save", &ggml]).result();
    orlop(&["plan", UNET, "--save", &best]).result();
    let text = orlop(&["plan", "--diff", &ggml, &best]).result();
    assert!(text.contains("123.07 MiB →   107.73 MiB") && text.contains("moved"), "{text}");
}

#[test]
fn plans_of_other_graphs_and_damaged_plans_are_refused() {
    let folder = Folder::new();
    let [of_unet, of_small, of_csv] = ["unet.json", "small.json", "csv.json"].map(|name| folder.path(name));
    let small =
        folder.file("small.jsonl", crate::support::fixture_text("pipeline.jsonl").lines().next().unwrap());
    orlop(&["plan", UNET, "--save", &of_unet]).result();
    orlop(&["plan", &small, "--save", &of_small]).result();
    orlop(&["plan", &fixture("small.csv"), "--save", &of_csv]).result();
    assert!(orlop(&["plan", &of_unet]).refusal(2).contains("is a saved plan; `orlop plan FILE --diff"));
    let refused = |before: &str, after: &str| orlop(&["plan", "--diff", before, after]).refusal(2);
    let sentence = refused(&of_small, UNET);
    assert!(sentence.contains("is not a plan of") && sentence.contains("signature"), "{sentence}");
    let sentence = refused(&of_small, &of_unet);
    assert!(sentence.contains("plans of different graphs"), "{sentence}");
    let sentence = refused(&of_csv, UNET);
    assert!(sentence.contains("different kinds of files"), "{sentence}");
    let text = std::fs::read_to_string(&of_unet).unwrap();
    let damaged = folder.file("damaged.json", text.replacen("\"arenas\"", "\"areas\"", 1));
    let sentence = refused(&damaged, UNET);
    assert!(sentence.contains("invalid saved plan"), "{sentence}");
    let cut = folder.file("cut.json", &text[..text.len() / 2]);
    assert!(refused(&cut, UNET).starts_with(&cut));
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let place = value["storages"][0]["place"].clone();
    value["storages"][1]["place"] = place.clone();
    value["places"].as_array_mut().unwrap().fill(place);
    let overlapping = folder.file("overlapping.json", value.to_string());
    let sentence = refused(&overlapping, UNET);
    assert!(sentence.contains("the plan is damaged"), "{sentence}");
    let sentence = refused(&folder.path("missing.json"), UNET);
    assert!(sentence.contains("cannot read the file"), "{sentence}");
}
