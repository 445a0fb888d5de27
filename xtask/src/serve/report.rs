//! What was measured, as a table and as JSON.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::cells::{Load, Outcome};
use super::servers::Server;
use crate::peers::measure::median;

/// The rounds of one server under one load.
pub(crate) struct Measured {
    server: &'static str,
    cell: &'static str,
    load: Load,
    outcomes: Vec<Outcome>,
    peak_bytes: Option<u64>,
    planned: Option<f64>,
    allocated: Option<f64>,
}

impl Measured {
    pub(crate) fn new(server: &'static str, cell: &'static str, load: &Load) -> Measured {
        let (peak_bytes, planned, allocated) = (None, None, None);
        Measured { server, cell, load: *load, outcomes: Vec::new(), peak_bytes, planned, allocated }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.outcomes.push(outcome);
    }

    /// Asks a server for its memory. Orlop's must be what was planned.
    pub(crate) fn finish(&mut self, server: &Server) -> Result<()> {
        self.peak_bytes = server.peak_bytes();
        self.planned = server.metric("orlop_planned_bytes");
        self.allocated = server.metric("orlop_allocated_bytes");
        ensure!(
            self.planned == self.allocated,
            "{:?} bytes are allocated, not {:?}",
            self.allocated,
            self.planned
        );
        Ok(())
    }

    /// New tokens a second in each round.
    fn speeds(&self) -> Vec<f64> {
        let speed = |outcome: &Outcome| {
            let tokens: u64 = outcome.requests.iter().map(|timing| timing.generated).sum();
            tokens as f64 / outcome.seconds
        };
        self.outcomes.iter().map(speed).collect()
    }

    fn firsts(&self) -> Vec<f64> {
        self.outcomes.iter().flat_map(|outcome| &outcome.requests).map(|timing| timing.first).collect()
    }

    fn intruders(&self) -> Vec<f64> {
        self.outcomes.iter().flat_map(|outcome| &outcome.intruders).map(|timing| timing.first).collect()
    }

    fn between(&self) -> Vec<f64> {
        let timings = self.outcomes.iter().flat_map(|outcome| &outcome.requests);
        timings.flat_map(|timing| timing.between.iter().copied()).collect()
    }

    fn errors(&self) -> usize {
        self.outcomes.iter().map(|outcome| outcome.errors).sum()
    }

    fn cached(&self) -> u64 {
        self.outcomes.iter().flat_map(|outcome| &outcome.requests).map(|timing| timing.cached).sum()
    }

    pub(crate) fn json(&self) -> Value {
        let spread = |values: Vec<f64>| {
            json!({
                "p50": percentile(&values, 0.5),
                "p95": percentile(&values, 0.95),
                "max": percentile(&values, 1.0),
                "count": values.len(),
            })
        };
        json!({
            "server": self.server,
            "cell": self.cell,
            "note": self.load.note,
            "clients": self.load.clients,
            "rows": self.load.rows,
            "tokens_per_second": self.speeds(),
            "first_token": spread(self.firsts()),
            "between_tokens": spread(self.between()),
            "long_prompt": spread(self.intruders()),
            "errors": self.errors(),
            "cached_tokens": self.cached(),
            "peak_bytes": self.peak_bytes,
            "planned_bytes": self.planned,
            "allocated_bytes": self.allocated,
        })
    }
}

/// The value that a part of all values does not exceed.
fn percentile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied()
}

/// The head of the table.
pub(crate) fn head() {
    println!(
        "{:<28} {:>7} {:<19} {:>9} {:>17} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}",
        "cell",
        "clients",
        "server",
        "tokens/s",
        "range",
        "first p50",
        "first p95",
        "next p50",
        "next p95",
        "next max",
        "errors",
        "cached"
    );
}

/// A row of the table; times in milliseconds.
pub(crate) fn row(measured: &Measured) {
    let ms = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{:.1}", value * 1e3));
    let mut speeds = measured.speeds();
    speeds.sort_by(f64::total_cmp);
    let range = match speeds.as_slice() {
        [first, .., last] => format!("{first:.1}–{last:.1}"),
        _ => String::new(),
    };
    let firsts = if measured.load.clients == 0 { measured.intruders() } else { measured.firsts() };
    let between = measured.between();
    println!(
        "{:<28} {:>7} {:<19} {:>9.1} {:>17} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>8}",
        format!("{} {}", measured.cell, measured.load.note),
        measured.load.clients,
        measured.server,
        median(&speeds),
        range,
        ms(percentile(&firsts, 0.5)),
        ms(percentile(&firsts, 0.95)),
        ms(percentile(&between, 0.5)),
        ms(percentile(&between, 0.95)),
        ms(percentile(&between, 1.0)),
        measured.errors(),
        measured.cached(),
    );
    if measured.load.clients > 0 && !measured.intruders().is_empty() {
        let intruders = measured.intruders();
        println!(
            "{:<28} long prompts: first token after {} ms (median)",
            "",
            ms(percentile(&intruders, 0.5))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=20).rev().map(f64::from).collect();
        assert_eq!(
            [0.0, 0.5, 0.95, 1.0].map(|part| percentile(&values, part)),
            [1.0, 10.0, 19.0, 20.0].map(Some)
        );
        assert_eq!(percentile(&[], 0.5), None);
    }
}
