//! What a device made of the conformance set, counted by op.

use std::fmt::Write;
use std::sync::Arc;

use orlop_backend::{Device, NodeQuery, Operand, Support};

use super::{CaseFailure, ConformanceOptions, Outcome, cases, run};

/// What a device made of the whole set.
#[derive(Debug)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// One row per op, in alphabetical order.
    pub rows: Vec<ReportRow>,
    /// The cases that failed, by name.
    pub failures: Vec<(String, CaseFailure)>,
}

/// What a device made of the cases of one op.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportRow {
    /// The op.
    pub op: String,
    /// Cases that passed.
    pub passed: usize,
    /// Cases that the device refused.
    pub unsupported: usize,
    /// Cases that it got wrong.
    pub failed: usize,
    /// The largest error of those that passed.
    pub worst: f64,
    /// Why cases were refused, each reason once.
    pub reasons: Vec<String>,
}

/// Runs every case on a device.
pub fn report(device: &Arc<dyn Device>, options: &ConformanceOptions) -> Report {
    let mut report = Report { device: device.name().to_owned(), rows: Vec::new(), failures: Vec::new() };
    for case in cases() {
        let outcome = run(device, &case, options);
        report.count(case.op(), case.name(), outcome);
    }
    report.rows.sort_by(|a, b| a.op.cmp(&b.op));
    report
}

/// Asks which cases a device accepts, without running them: a case passes if every node is supported.
pub fn acceptance(device: &str, supports: impl Fn(&NodeQuery<'_>) -> Support) -> Report {
    let mut report = Report { device: device.to_owned(), rows: Vec::new(), failures: Vec::new() };
    for case in cases() {
        let graph = case.graph();
        let operand = |id| Operand { desc: &graph.tensor(id).desc, buffer_type: None };
        let refused = graph.nodes().iter().find_map(|node| {
            let inputs: Vec<Operand<'_>> = node.inputs.iter().copied().map(operand).collect();
            let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(node.output) };
            match supports(&query) {
                Support::Yes { .. } => None,
                Support::No(reason) => Some(Outcome::Unsupported { op: node.op.name().to_owned(), reason }),
            }
        });
        report.count(case.op(), case.name(), refused.unwrap_or(Outcome::Passed { error: 0.0 }));
    }
    report.rows.sort_by(|a, b| a.op.cmp(&b.op));
    report
}

impl Report {
    fn count(&mut self, op: &str, name: &str, outcome: Outcome) {
        let known = self.rows.iter().position(|row| row.op == op);
        let index = known.unwrap_or_else(|| {
            let (op, reasons) = (op.to_owned(), Vec::new());
            self.rows.push(ReportRow { op, passed: 0, unsupported: 0, failed: 0, worst: 0.0, reasons });
            self.rows.len() - 1
        });
        let row = &mut self.rows[index];
        match outcome {
            Outcome::Passed { error } => {
                row.passed += 1;
                row.worst = row.worst.max(error);
            }
            Outcome::Unsupported { op, reason } => {
                row.unsupported += 1;
                let reason = format!("{op}: {reason}");
                if !row.reasons.contains(&reason) {
                    row.reasons.push(reason);
                }
            }
            Outcome::Failed(failure) => {
                row.failed += 1;
                self.failures.push((name.to_owned(), failure));
            }
        }
    }

    /// Cases that passed.
    pub fn passed(&self) -> usize {
        self.rows.iter().map(|row| row.passed).sum()
    }

    /// Cases that the device refused.
    pub fn unsupported(&self) -> usize {
        self.rows.iter().map(|row| row.unsupported).sum()
    }

    /// Cases that it got wrong.
    pub fn failed(&self) -> usize {
        self.rows.iter().map(|row| row.failed).sum()
    }

    /// The device's rows as a Markdown table, with errors and reasons.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# {}\n\n{} passed, {} refused, {} failed\n\n",
            self.device,
            self.passed(),
            self.unsupported(),
            self.failed()
        );
        text.push_str("| op | passed | refused | failed | largest error | refused because |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let ReportRow { op, passed, unsupported, failed, worst, reasons } = row;
            let reasons = reasons.join("; ").replace('|', "\\|");
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "| `{op}` | {passed} | {unsupported} | {failed} | {worst:.1e} | {reasons} |");
        }
        text
    }
}
