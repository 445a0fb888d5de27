use std::fmt::Write;

use orlop_testkit::Random;

use crate::browser::Browser;
use crate::support::{Folder, orlop};

/// Fifty thousand buffers: most small and short-lived, some large, some that stay.
fn problem() -> String {
    let mut generator = Random::new(0);
    let mut random = |below: u64| generator.below(below);
    let mut text = "id,lower,upper,size\n".to_owned();
    for index in 0..50_000 {
        let lower = random(60_000);
        let span = if random(50) == 0 { 200 + random(6000) } else { 1 + random(60) };
        let size = 64 * (1 + if random(40) == 0 { random(40_000) } else { random(3000) });
        let _ = writeln!(text, "blk.{}.layer_result.{index},{lower},{},{size}", index % 120, lower + span);
    }
    text
}

#[test]
fn fifty_thousand_tensors_stay_small_and_quick() {
    let folder = Folder::new();
    let (file, page) = (folder.file("many.csv", problem()), folder.path("many.html"));
    orlop(&["plan", &file, "--strategy", "size", "--html", &page]).result();
    let bytes = std::fs::metadata(&page).unwrap().len();
    assert!(bytes < 15_000_000, "{bytes} bytes");
    let mut browser = Browser::start();
    browser.open(&page);
    assert_eq!(browser.number("orlop.panes[0].plan.count"), 50_000.0);
    browser.keep("many-light.png");
    let mut took = |steps: u32| {
        let all = browser.run(&format!("orlop.measure({steps}, 1.35, 700, 640)"));
        all.as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    // The first draws make the browser compile what draws.
    let warm = took(2);
    let mut all = took(14);
    all.sort_by(f64::total_cmp);
    let (median, most) = (all[all.len() / 2], all[all.len() - 1]);
    println!(
        "50,000 tensors: {bytes} bytes; a zoom step takes {median:.1} ms, at most {most:.1} ms, at first {warm:.1?}"
    );
    let seen = browser.number("orlop.panes[0].x1 - orlop.panes[0].x0");
    assert!(seen < 60_000.0 / 50.0, "{seen} steps are seen");
    browser.settle();
    browser.keep("many-zoomed.png");
    let begin = browser.run(
        "(() => { const t = performance.now(); search(orlop, 'blk.17.'); return performance.now() - t; })()",
    );
    println!("a search takes {begin} ms");
    assert!(browser.number("orlop.state.matches[0].size") > 400.0);
}
