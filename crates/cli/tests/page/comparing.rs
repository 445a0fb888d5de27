use serde_json::json;

use crate::browser::Browser;
use crate::looking::page;
use crate::support::{Folder, orlop};
use crate::with_model;

const UNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/unet.jsonl.gz");

#[test]
fn two_plans_stand_side_by_side_and_move_together() {
    let folder = Folder::new();
    let page = page(&folder, UNET, "unet");
    let mut browser = Browser::start();
    browser.open(&page);
    assert_eq!(browser.run("document.querySelectorAll('.pane')[1].hidden"), json!(true));
    browser.key("c");
    assert_eq!(browser.run("document.querySelectorAll('.pane')[1].hidden"), json!(false));
    let facts = browser.text("#facts");
    assert!(facts.contains("planned by ggml") && facts.contains("compared to the left"), "{facts}");
    let sizes = browser.run("orlop.panes.map((pane) => pane.plan.regions[0].bytes)");
    assert!(sizes[1].as_f64() >= sizes[0].as_f64(), "ggml's is not smaller: {sizes}");
    browser.press("#in");
    assert_eq!(
        browser.run("[orlop.panes[0].x0, orlop.panes[0].x1]"),
        browser.run("[orlop.panes[1].x0, orlop.panes[1].x1]")
    );
    browser.key("0");
    let at = browser.run("orlop.centre(0, 40)");
    browser.point(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    let names = browser.run(
        "[orlop.panes[0].plan.name[orlop.state.hover[0]], orlop.panes[1].plan.name[orlop.state.twin[1]]]",
    );
    assert_eq!(names[0], names[1], "the same tensor is shown in both");
    browser.keep("unet-compare.png");
    browser.press("#compare");
    assert_eq!(browser.run("document.querySelectorAll('.pane')[1].hidden"), json!(true));
}

#[test]
fn a_difference_opens_as_two_plans() {
    let folder = Folder::new();
    let (saved, page) = (folder.path("saved.json"), folder.path("diff.html"));
    orlop(&["plan", UNET, "--strategy", "ggml", "--save", &saved]).result();
    orlop(&["plan", "--diff", &saved, UNET, "--html", &page]).result();
    let mut browser = Browser::start();
    browser.open(&page);
    assert_eq!(browser.run("orlop.state.compare"), json!(true));
    let titles = browser.run("orlop.panes.map((pane) => pane.plan.title.split(':')[0])");
    assert_eq!(titles, json!(["before", "after"]));
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_model_shows_weights_caches_and_what_runs_compute() {
    let folder = Folder::new();
    let page = folder.path("model.html");
    let model = with_model::default_model();
    let planned = with_model::json(&["plan", &model, "-c", "2048", "--json", "--html", &page]);
    let mut browser = Browser::start();
    browser.open(&page);
    let legend = browser.text("#legend");
    for kind in ["weights", "KV cache", "inputs", "activations", "scratch"] {
        assert!(legend.contains(kind), "{kind}: {legend}");
    }
    let drawn = browser.number("orlop.panes[0].plan.regions.reduce((sum, region) => sum + region.bytes, 0)");
    let device = &planned["devices"][0];
    let arena = browser.number("mainRegion(orlop.panes[0].plan).bytes");
    let stored = ["weights", "repacked", "kv"].iter().map(|key| device[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!(drawn - arena, stored);
    assert!(arena <= device["compute"].as_f64().unwrap());
    browser.keep("smollm2-model-light.png");
    browser.surroundings("dark");
    browser.keep("smollm2-model-dark.png");
    browser.press("#legend li:last-child button");
    assert_eq!(browser.number("orlop.state.kind"), 4.0);
    assert_eq!(browser.complaints, [""; 0]);
}
