use std::fmt::Write;
use std::sync::Arc;

use orlop_backend::Device;

use super::{CaseFailure, ConformanceOptions, Outcome, cases, run};

/// What a device made of the whole set.
#[derive(Debug)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// One row an op, in alphabetical order.
    pub rows: Vec<Row>,
    /// The cases that failed, by name.
    pub failures: Vec<(String, CaseFailure)>,
}

/// What a device made of the cases of one op.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
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

impl Report {
    fn count(&mut self, op: &str, name: &str, outcome: Outcome) {
        let known = self.rows.iter().position(|row| row.op == op);
        let index = known.unwrap_or_else(|| {
            let (op, reasons) = (op.to_owned(), Vec::new());
            self.rows.push(Row { op, passed: 0, unsupported: 0, failed: 0, worst: 0.0, reasons });
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
            let Row { op, passed, unsupported, failed, worst, reasons } = row;
            let reasons = reasons.join("; ").replace('|', "\\|");
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "| `{op}` | {passed} | {unsupported} | {failed} | {worst:.1e} | {reasons} |");
        }
        text
    }
}

/// One Markdown table for several devices: an op a row, a device a column, cases passed of cases there are.
///
/// `all` means every case; `9 of 12` that the others were refused; failures are named as such.
pub fn support_table(reports: &[Report]) -> String {
    let mut ops: Vec<&str> = reports.iter().flat_map(|report| &report.rows).map(|row| &*row.op).collect();
    ops.sort_unstable();
    ops.dedup();
    let mut text = "| op |".to_owned();
    for report in reports {
        let _ = write!(text, " {} |", report.device);
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(reports.len()));
    for op in ops {
        let _ = write!(text, "| `{op}` |");
        for report in reports {
            let row = report.rows.iter().find(|row| row.op == op);
            let _ = write!(text, " {} |", row.map_or_else(|| "–".to_owned(), cell));
        }
        text.push('\n');
    }
    text
}

fn cell(row: &Row) -> String {
    let total = row.passed + row.unsupported + row.failed;
    match row {
        Row { failed: failed @ 1.., .. } => format!("**{failed} wrong** of {total}"),
        Row { passed: 0, .. } => "no".to_owned(),
        Row { unsupported: 0, .. } => "all".to_owned(),
        Row { passed, .. } => format!("{passed} of {total}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(op: &str, passed: usize, unsupported: usize, failed: usize) -> Row {
        Row { op: op.to_owned(), passed, unsupported, failed, worst: 1e-12, reasons: Vec::new() }
    }

    #[test]
    fn devices_stand_side_by_side() {
        let one = |device: &str, rows| Report { device: device.to_owned(), rows, failures: Vec::new() };
        let reports = [
            one("cpu", vec![row("add", 3, 0, 0), row("rope", 2, 1, 0)]),
            one("gpu", vec![row("add", 2, 0, 1), row("argsort", 0, 4, 0)]),
        ];
        let expected = "| op | cpu | gpu |\n|---|---|---|\n| `add` | all | **1 wrong** of 3 |\n\
                        | `argsort` | – | no |\n| `rope` | 2 of 3 | – |\n";
        assert_eq!(support_table(&reports), expected);
    }
}
