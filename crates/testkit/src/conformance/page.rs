//! The page of ops and devices, `docs/src/reference/ops.md`: an op a row, a device a column.
//!
//! Every device's crate checks its own column with [`check_ops_page`]; with `UPDATE_GOLDEN=1` that writes it. The other
//! columns come from the table of ops in `orlop-graph`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use orlop_graph::{Arity, OPS};

use super::cases;
use super::report::{Report, ReportRow};

/// Devices, in the order of their columns.
const DEVICES: [&str; 5] = ["reference", "cpu", "cuda", "wgpu", "rpc"];

const HEAD: &str = "# Ops and devices

Which ops each device runs, by the cases of the conformance set. `all` means every case of the op, `9 of 12` that the \
others are refused, `no` that all are. The reference and the CPU run the cases; for CUDA, wgpu and servers of ggml's RPC \
protocol (5.1) the table says which cases they accept, and the same cases check the results where there is a GPU or a server. `block`, `chain` and `feed_forward` are \
graphs of several ops.

Made by tests: `UPDATE_GOLDEN=1 cargo test -p orlop-testkit -p orlop-cpu -p orlop-cuda -p orlop-wgpu -p orlop-rpc ops_page`.

";

/// Compares a device's column of `docs/src/reference/ops.md` with what it made of the conformance set.
///
/// # Panics
/// If the page has no column for the device, or they differ and `UPDATE_GOLDEN` is not set.
#[track_caller]
pub fn check_ops_page(device: &str, report: &Report) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/reference/ops.md");
    let written = std::fs::read_to_string(path).unwrap_or_default();
    let page = page(&written, device, report);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        assert!(std::fs::write(path, &page).is_ok(), "cannot write {path}");
        return;
    }
    let line = written.lines().zip(page.lines()).find(|(written, page)| written != page);
    assert!(
        written == page,
        "docs/src/reference/ops.md is out of date; run this test with UPDATE_GOLDEN=1. First difference: {line:?}"
    );
}

/// The page with a device's column from its report, and the others' as they are written.
fn page(written: &str, device: &str, report: &Report) -> String {
    assert!(DEVICES.contains(&device), "{device} has no column: add it to DEVICES in {}", file!());
    let mut columns = read(written);
    let own = report.rows.iter().map(|row| (row.op.clone(), cell(row))).collect();
    columns.insert(device.to_owned(), own);
    let all_cases = cases();
    let ops: BTreeSet<&str> = all_cases.iter().map(|case| case.op()).collect();
    let mut text = format!("{HEAD}| op | family | operands | {} |\n|---|---|", DEVICES.join(" | "));
    let _ = writeln!(text, "---|{}", "---|".repeat(DEVICES.len()));
    for op in ops {
        let info = OPS.iter().find(|info| info.names().contains(&op));
        let (family, operands) =
            info.map_or(("–", "–".to_owned()), |info| (info.family, count(info.operands)));
        let cells = DEVICES.map(|device| columns.get(device).and_then(|cells| cells.get(op)));
        let cells = cells.map(|cell| cell.map_or("?", String::as_str)).join(" | ");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| `{op}` | {family} | {operands} | {cells} |");
    }
    text
}

fn count(Arity { min, max, .. }: Arity) -> String {
    match max {
        usize::MAX => format!("{min} or more"),
        _ if max == min => min.to_string(),
        _ => format!("{min} to {max}"),
    }
}

/// Columns of a written page by their heads: cells by ops.
fn read(page: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let mut lines = page.lines().filter(|line| line.starts_with('|')).map(cells);
    let heads = lines.next().unwrap_or_default();
    let mut columns: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for line in lines {
        let Some(op) = line.first().cloned() else { continue };
        for (head, cell) in heads.iter().zip(line) {
            columns.entry(head.clone()).or_default().insert(op.clone(), cell);
        }
    }
    columns
}

fn cell(row: &ReportRow) -> String {
    let total = row.passed + row.unsupported + row.failed;
    match row {
        ReportRow { failed: failed @ 1.., .. } => format!("**{failed} wrong** of {total}"),
        ReportRow { passed: 0, .. } => "no".to_owned(),
        ReportRow { unsupported: 0, .. } => "all".to_owned(),
        ReportRow { passed, .. } => format!("{passed} of {total}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(op: &str, passed: usize, unsupported: usize, failed: usize) -> ReportRow {
        ReportRow { op: op.to_owned(), passed, unsupported, failed, worst: 1e-12, reasons: Vec::new() }
    }

    fn report(rows: Vec<ReportRow>) -> Report {
        Report { device: "a device".to_owned(), rows, failures: Vec::new() }
    }

    #[test]
    #[should_panic(expected = "tpu has no column: add it to DEVICES")]
    fn a_device_without_a_column_fails() {
        page("", "tpu", &report(vec![row("add", 3, 0, 0)]));
    }

    #[test]
    fn a_report_changes_its_own_column_alone() {
        let first = page("", "cpu", &report(vec![row("add", 3, 0, 0), row("rope", 2, 1, 0)]));
        let line = |page: &str, op: &str| {
            page.lines().find(|line| line.starts_with(&format!("| `{op}` |"))).map(str::to_owned)
        };
        assert_eq!(line(&first, "add").unwrap(), "| `add` | elementwise | 2 | ? | all | ? | ? | ? |");
        let both = page(&first, "cuda", &report(vec![row("add", 2, 0, 1), row("rope", 0, 4, 0)]));
        assert_eq!(
            line(&both, "add").unwrap(),
            "| `add` | elementwise | 2 | ? | all | **1 wrong** of 3 | ? | ? |"
        );
        assert_eq!(line(&both, "rope").unwrap(), "| `rope` | rope | 2 to 3 | ? | 2 of 3 | no | ? | ? |");
        assert_eq!(page(&both, "cpu", &report(vec![row("add", 3, 0, 0), row("rope", 2, 1, 0)])), both);
    }
}
