//! The report, one line per test.

use super::measure::{Measured, Pairs, Reading, median};
use super::models::Case;

/// Model, threads, test; ours and theirs; their ratio with its spread; bytes read as a share of the bandwidth.
pub(super) fn print(measured: &Measured) {
    for (test, pairs) in &measured.tests {
        let reading = match test.starts_with("tg") {
            true => reading(measured),
            false => String::new(),
        };
        line(&measured.name, measured.shape.threads, test, "tokens/s", pairs, &reading);
    }
    line(&measured.name, measured.shape.threads, "process", "s", &measured.wall, "");
}

/// Bytes read as a share of the bandwidth measured between the tokens: of the mean, and of the best pass.
fn reading(measured: &Measured) -> String {
    let share = |of: fn(&Reading) -> f64| {
        let rate = median(&measured.readings.iter().map(of).collect::<Vec<f64>>()) / 1e9;
        let [least, middle, most] = measured.shares(of).map(|share| 100.0 * share);
        format!("{middle:.0} % ({least:.0} to {most:.0}) of {rate:.1} GB/s")
    };
    let [plain, best] = [share(|read| read.plain.mean), share(|read| read.plain.best)];
    let [large, best_large] = [share(|read| read.large_pages.mean), share(|read| read.large_pages.best)];
    format!("; reads {plain} in between, {best} at best; large pages {large}, {best_large}")
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
