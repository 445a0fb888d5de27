use serde_json::json;

use crate::browser::Browser;
use crate::support::{Folder, orlop};

const SMOLLM2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/smollm2.jsonl.gz");
const UNET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/unet.jsonl.gz");

/// A page of one graph: our plan, and ggml's.
pub(crate) fn page(folder: &Folder, file: &str, graph: &str) -> String {
    let page = folder.path("page.html");
    orlop(&["plan", file, "--graph", graph, "--html", &page]).result();
    page
}

/// The largest block of the first pane's plan that is at most half of its arena.
const LARGE: &str = "(() => { const p = orlop.panes[0].plan; let best = 0; for (let i = 0; i < p.count; i++) \
    if (p.bytes[i] > p.bytes[best] && p.used[i] && p.producer[i]) best = i; return best; })()";

#[test]
fn pointing_at_a_tensor_says_what_it_is_and_why_it_is_there() {
    let folder = Folder::new();
    let page = page(&folder, SMOLLM2, "c4096");
    let mut browser = Browser::start();
    browser.open(&page);
    browser.keep("smollm2-light.png");
    let id = browser.number(LARGE);
    let name = browser.run(&format!("orlop.panes[0].plan.name[{id}]"));
    assert_eq!(browser.run("document.getElementById('card').hidden"), json!(true));
    let at = browser.run(&format!("orlop.centre(0, {id})"));
    browser.point(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    assert_eq!(browser.number("orlop.state.hover[0]"), id);
    let card = browser.text("#card");
    assert!(card.starts_with(name.as_str().unwrap()), "{card}");
    for term in ["kind", "size", "place", "lifetime", "producer", "consumers", "reason", "bytes)", "step"] {
        assert!(card.contains(term), "{term}: {card}");
    }
    browser.keep("smollm2-hover.png");
    assert_eq!(browser.complaints, [""; 0]);
    let foreign = browser.requests.iter().find(|url| !url.starts_with("file:") && !url.starts_with("data:"));
    assert!(foreign.is_none_or(|url| url == "about:blank"), "{foreign:?}");
}

#[test]
fn memory_is_drawn_against_added_time() {
    let folder = Folder::new();
    let page = page(&folder, UNET, "unet");
    let mut browser = Browser::start();
    browser.open(&page);
    let points = browser.number("orlop.panes[0].plan.tradeOffs.length");
    assert!(points > 2.0);
    assert_eq!(browser.number("document.querySelectorAll('#facts .curve circle').length"), points);
    let text = browser.run("document.querySelector('#facts .curve').textContent");
    assert!(text.as_str().is_some_and(|text| text.contains("% time")), "{text}");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
fn a_name_is_found_and_gone_to() {
    let folder = Folder::new();
    let page = page(&folder, SMOLLM2, "c4096");
    let mut browser = Browser::start();
    browser.open(&page);
    browser.key("/");
    browser.ask("Input.insertText", json!({"text": "ffn_out-2"}));
    browser.settle();
    let found = browser.run("[...orlop.state.matches[0]].map((id) => orlop.panes[0].plan.name[id])");
    let found: Vec<String> = serde_json::from_value(found).unwrap();
    assert!(!found.is_empty() && found.iter().all(|name| name.contains("ffn_out-2")), "{found:?}");
    assert_eq!(browser.text("#count"), format!("{} found", found.len()));
    let whole = browser.number("orlop.panes[0].x1 - orlop.panes[0].x0");
    browser.key("Enter");
    assert_eq!(browser.text("#count"), format!("1 of {}", found.len()));
    assert!(browser.number("orlop.panes[0].x1 - orlop.panes[0].x0") < whole / 4.0);
    assert!(browser.text("#tensor").trim_start().starts_with(&found[0]));
    browser.keep("smollm2-search.png");
    browser.key("Escape");
    assert_eq!(browser.run("orlop.state.matches[0]"), json!(null));
}

#[test]
fn wheel_keys_and_buttons_zoom() {
    let folder = Folder::new();
    let page = page(&folder, UNET, "unet");
    let mut browser = Browser::start();
    browser.open(&page);
    browser.keep("unet-light.png");
    let seen = "orlop.panes[0].x1 - orlop.panes[0].x0";
    let whole = browser.number(seen);
    assert_eq!(whole, browser.number("orlop.panes[0].plan.steps"));
    let under = browser.number("stepAt(orlop.panes[0], 500)");
    let left = browser.number("orlop.panes[0].canvas.getBoundingClientRect().left");
    browser.roll(left + 500.0, 400.0);
    let rolled = browser.number(seen);
    assert!(rolled < whole * 0.7, "{rolled} of {whole}");
    let still = browser.number("stepAt(orlop.panes[0], 500)");
    assert!((still - under).abs() < 1e-6, "what is under the pointer stays there: {under}, {still}");
    browser.key("+");
    let nearer = browser.number(seen);
    assert!(nearer < rolled);
    browser.press("#out");
    assert!((browser.number(seen) - rolled).abs() < 1e-6);
    let from = browser.number("orlop.panes[0].x0");
    browser.key("ArrowRight");
    assert!(browser.number("orlop.panes[0].x0") > from);
    browser.keep("unet-zoomed.png");
    browser.press("#fit");
    assert_eq!(browser.number(seen), whole);
}

#[test]
fn a_step_that_is_clicked_lists_what_is_in_memory_there() {
    let folder = Folder::new();
    let page = page(&folder, UNET, "unet");
    let mut browser = Browser::start();
    browser.surroundings("dark");
    browser.open(&page);
    let peak = browser.number("mainRegion(orlop.panes[0].plan).peak_step");
    let at = "orlop.panes[0].canvas.getBoundingClientRect()";
    let x = browser.number(&format!("{at}.left + toX(orlop.panes[0], {peak} + 0.5)"));
    let y = browser.number(&format!("{at}.top + {at}.height / 2"));
    browser.click(x, y);
    assert_eq!(browser.number("orlop.state.step[0]"), peak);
    let listed = browser.number("document.querySelectorAll('#step li').length");
    let alive = format!(
        "(() => {{ const p = orlop.panes[0].plan; let n = 0, b = 0; for (let i = 0; i < p.count; i++) \
         if (p.start[i] <= {peak} && p.end[i] > {peak}) {{ n++; b += p.bytes[i]; }} return [n, b]; }})()"
    );
    let alive = browser.run(&alive);
    assert_eq!(alive[0].as_f64(), Some(listed));
    assert_eq!(alive[1].as_f64().unwrap(), browser.number("mainRegion(orlop.panes[0].plan).peak"));
    let text = browser.text("#step");
    assert_eq!(
        browser.run(&format!("`Step ${{number({peak})}}`")).as_str(),
        text.split("IM2COL").next(),
        "{text}"
    );
    assert!(text.contains(&format!("{listed} tensors")), "{text}");
    browser.keep("unet-step-dark.png");
    browser.key(".");
    assert_eq!(browser.number("orlop.state.step[0]"), peak + 1.0);
    browser.press("#step li button");
    assert!(browser.number("orlop.state.selected[0]") >= 0.0);
    assert!(browser.text("#tensor").contains("reason"));
}

#[test]
fn a_page_on_a_disk_that_cannot_be_written_works() {
    let folder = Folder::new();
    let page = page(&folder, UNET, "unet");
    let locked = |locked: bool| {
        for path in [page.as_str(), std::path::Path::new(&page).parent().unwrap().to_str().unwrap()] {
            let mut rights = std::fs::metadata(path).unwrap().permissions();
            rights.set_readonly(locked);
            std::fs::set_permissions(path, rights).unwrap();
        }
    };
    locked(true);
    let mut browser = Browser::start();
    browser.open(&page);
    let ground = browser.run("getComputedStyle(document.body).backgroundColor");
    browser.press("#theme");
    browser.press("#theme");
    assert_eq!(browser.text("#theme"), "Dark");
    assert_ne!(browser.run("getComputedStyle(document.body).backgroundColor"), ground);
    assert_eq!(browser.complaints, [""; 0]);
    drop(browser);
    #[allow(clippy::permissions_set_readonly_false)] // the folder is this test's own
    locked(false);
}
