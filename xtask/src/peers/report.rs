//! What was measured, one line a test.

use super::measure::{Bandwidth, Measured, Pairs, Side, median};
use super::models::Case;

/// Model, threads, test; ours and theirs; their ratio with its spread; what is read, as a share of what can be.
pub(super) fn print(measured: &Measured) {
    for (test, pairs) in &measured.tests {
        let reading = match test.starts_with("tg") {
            true => reading(measured, test),
            false => String::new(),
        };
        line(&measured.name, measured.shape.threads, test, "tokens/s", pairs, &reading);
    }
    line(&measured.name, measured.shape.threads, "process", "s", &measured.wall, "");
}

/// What is read, as a share of what a loop over memory reads in the same round, both at their best there: in as much time,
/// and in one pass.
fn reading(measured: &Measured, test: &str) -> String {
    let share = |side, of| measured.reading(test, side, of).map(|share| 100.0 * share);
    let ours = |of: fn(&Bandwidth) -> f64| {
        let rate = median(&measured.reads.iter().map(of).collect::<Vec<f64>>()) / 1e9;
        let [least, middle, most] = share(Side::Ours, of);
        format!("{middle:.0} % ({least:.0} to {most:.0}) of {rate:.1} GB/s")
    };
    let [plain, pass] = [ours(|read| read.plain.stretch), ours(|read| read.plain.pass)];
    let [huge, huge_pass] = [ours(|read| read.huge.stretch), ours(|read| read.huge.pass)];
    let [_, theirs, _] = share(Side::Theirs, |read| read.plain.stretch);
    format!(
        "; reads {plain} in as long, {pass} in the best pass; from huge pages {huge}, {huge_pass}; theirs {theirs:.0} %"
    )
}

pub(super) fn print_starts(case: &Case, threads: usize, pairs: &Pairs) {
    line(&case.name, threads, "first token", "s", pairs, "");
}

pub(super) fn print_memory(case: &Case, pairs: &Pairs) {
    let mebibytes = |values: &[f64]| values.iter().map(|bytes| bytes / f64::from(1 << 20)).collect();
    let pairs = Pairs { ours: mebibytes(&pairs.ours), theirs: mebibytes(&pairs.theirs) };
    line(&case.name, 1, "compute", "MiB", &pairs, "");
}

fn line(name: &str, threads: usize, test: &str, unit: &str, pairs: &Pairs, more: &str) {
    let [least, middle, most] = pairs.ratios();
    let (ours, theirs) = (median(&pairs.ours), median(&pairs.theirs));
    println!(
        "{name:<20} {threads} {test:<12} {ours:>9.2} {theirs:>9.2} {unit:<8} {middle:>6.2} × ({least:.2} to {most:.2}){more}"
    );
}
