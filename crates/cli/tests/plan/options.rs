use crate::support::{Folder, fixture, orlop};

const MODEL: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../llm/tests/models/fixtures/llama-dense.Q4_0.gguf");

#[test]
fn options_that_do_not_apply_to_a_file_are_rejected_by_name() {
    let folder = Folder::new();
    let (out, small, own) =
        (folder.path("out.json"), fixture("small.csv"), folder.file("graph.json", r#"{"tensors":[]}"#));
    let cases: [(&[&str], &str); 11] = [
        (&[MODEL, "--capacity", "1M"], "--capacity"),
        (&[MODEL, "-o", &out], "--output"),
        (&[MODEL, "--strategy", "best"], "--strategy"),
        (&[MODEL, "--effort", "9"], "--effort"),
        (&[MODEL, "--time-limit", "9"], "--time-limit"),
        (&[MODEL, "--graph", "x"], "--graph"),
        (&[&small, "-c", "0"], "--ctx-size"),
        (&[&small, "--device", "cuda"], "--device"),
        (&[&small, "--budget", "x=1"], "--budget"),
        (&[&small, "--graph", "x"], "--graph"),
        (&[&own, "--graph", "x"], "--graph"),
    ];
    for (arguments, option) in cases {
        let sentence = orlop(&[&["plan"], arguments].concat()).refusal(2);
        assert!(sentence.starts_with(&format!("{}: {option} applies to ", arguments[0])), "{sentence}");
        assert!(sentence.contains("remove it"), "{sentence}");
    }
    assert_eq!(folder.files(), ["graph.json"], "nothing was written");
    let sentence = orlop(&["plan", MODEL, "--capacity", "1M"]).refusal(2);
    assert!(sentence.contains("not to models (.gguf)"), "{sentence}");
}

#[test]
fn a_model_is_known_by_its_name_in_capitals() {
    let folder = Folder::new();
    let model = folder.file("MODEL.GGUF", std::fs::read(MODEL).expect("a fixture"));
    let json = ["--json", "--no-measure", "-c", "16", "--budget", "cpu=1GiB"];
    let found = orlop(&[&["plan", &model], &json[..]].concat()).result();
    assert_eq!(found, orlop(&[&["plan", MODEL], &json[..]].concat()).result());
    orlop(&["plan", "--diff", &model, &model, "-c", "16"]).result();
}

#[test]
fn a_comparison_takes_the_options_of_either_side() {
    let folder = Folder::new();
    let (small, saved) = (fixture("small.csv"), folder.path("saved.json"));
    orlop(&["plan", &small, "--save", &saved]).result();
    orlop(&["plan", "--diff", &saved, &small, "--strategy", "size"]).result();
    let sentence = orlop(&["plan", "--diff", &saved, &small, "-c", "5"]).refusal(2);
    assert!(
        sentence.contains("--ctx-size applies to models (.gguf), not to saved plans or buffers"),
        "{sentence}"
    );
    orlop(&["plan", "--diff", MODEL, MODEL, "-c", "16"]).result();
}

#[test]
fn saved_plans_of_a_model_are_checked_when_it_is_planned_again() {
    let folder = Folder::new();
    let saved = folder.path("saved.json");
    let plan = |context, option| orlop(&["plan", MODEL, "-c", context, "-t", "1", option, &saved]);
    plan("16", "--save").result();
    plan("16", "--plan").result();
    let sentence = plan("15", "--plan").refusal(2);
    assert!(sentence.contains("saved plans") && sentence.contains("--save"), "{sentence}");
}
