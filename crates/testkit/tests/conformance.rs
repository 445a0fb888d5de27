//! The conformance set holds together, and catches devices that do not.

mod faulty;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use faulty::{Fault, faulty};
use orlop_backend::{Device, LowerOptions, Precision};
use orlop_graph::{DType, OPS};
use orlop_testkit::ReferenceDevice;
use orlop_testkit::conformance::{
    CaseFailure, ConformanceOptions, Outcome, cases, check_ops_page, report, run,
};

#[test]
fn the_reference_passes_every_case_and_the_ops_page_says_so() {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let report = report(&device, &ConformanceOptions::default());
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!(report.unsupported(), 0, "{}", report.markdown());
    assert_eq!(report.passed(), cases().len());
    assert!(report.rows.iter().all(|row| row.worst == 0.0));
    assert!(report.markdown().contains("| `add` | "));
    check_ops_page("reference", &report);
}

#[test]
fn there_are_a_thousand_cases_of_a_hundred_kinds() {
    let cases = cases();
    let kinds: BTreeSet<&str> = cases.iter().map(|case| case.kind()).collect();
    println!("{} cases of {} kinds", cases.len(), kinds.len());
    assert!(cases.len() >= 1000, "{} cases", cases.len());
    assert!(kinds.len() >= 100, "{} kinds", kinds.len());
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    cases.iter().for_each(|case| *names.entry(case.name()).or_default() += 1);
    let repeated: Vec<_> = names.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}

#[test]
fn every_op_has_cases() {
    let cases = cases();
    let used: BTreeSet<&str> =
        cases.iter().flat_map(|case| case.graph().nodes()).map(|node| node.op.name()).collect();
    let missing: Vec<&str> =
        OPS.iter().flat_map(|info| info.names()).copied().filter(|name| !used.contains(name)).collect();
    assert!(missing.is_empty(), "ops without a case in src/conformance/cases: {missing:?}");
}

#[test]
fn every_quantised_type_is_multiplied_looked_up_converted_and_written() {
    let cases = cases();
    let quantised = DType::all().filter(|d| d.is_quantized() && orlop_quant::supports_encode(*d));
    for dtype in quantised {
        for op in ["mul_mat", "mul_mat_id", "get_rows", "cast", "copy", "set_rows"] {
            let touches = |node: &orlop_graph::Node, graph: &orlop_graph::Graph| {
                node.op.name() == op
                    && node
                        .inputs
                        .iter()
                        .chain([&node.output])
                        .any(|id| graph.tensor(*id).desc.dtype == dtype)
            };
            let covered =
                cases.iter().any(|case| case.graph().nodes().iter().any(|node| touches(node, case.graph())));
            assert!(covered, "{op} {dtype}");
        }
    }
}

/// The extents of the operands of every node of an op, with the first one's type.
fn operands(op: &str) -> Vec<(DType, Vec<[u64; 4]>)> {
    let mut found = Vec::new();
    for case in cases() {
        let graph = case.graph();
        for node in graph.nodes().iter().filter(|node| node.op.name() == op) {
            let descs = node.inputs.iter().map(|id| graph.tensor(*id).desc);
            let extents = descs.map(|desc| desc.extents).collect();
            found.push((graph.tensor(node.inputs[0]).desc.dtype, extents));
        }
    }
    found
}

#[test]
fn every_quantised_type_is_multiplied_with_many_rows() {
    let products = operands("mul_mat");
    for dtype in DType::all().filter(|d| d.is_quantized() && orlop_quant::supports_encode(*d)) {
        let most = products.iter().filter(|(found, _)| *found == dtype).map(|(_, x)| x[1][1]).max();
        assert!(most > Some(32), "{dtype}: {most:?}");
    }
}

#[test]
fn attention_has_masks_of_heads_and_caches_of_several_sequences() {
    let found = operands("flash_attention");
    let is_there = |fact: &dyn Fn(&[[u64; 4]]) -> bool| found.iter().any(|(_, x)| fact(x));
    assert!(is_there(&|x| x[1][3] > 0 && x[1][3] < x[0][3]), "a cache for several sequences");
    let has_mask = |x: &[[u64; 4]]| x.len() == 4 && x[3][1] > 1;
    assert!(is_there(&|x| has_mask(x) && x[3][2] == x[0][2] && x[3][2] > 1), "a mask for each head");
    assert!(is_there(&|x| has_mask(x) && (2..x[0][2]).contains(&x[3][2])), "masks for several heads");
    assert!(is_there(&|x| has_mask(x) && x[3][3] < x[0][3]), "a mask for several sequences");
}

#[test]
fn a_perturbed_element_is_caught_in_every_case() {
    let device = faulty(Fault::Perturbed);
    let (mut caught, mut total) = (0, 0);
    for case in &cases() {
        // What is computed there is kept but for its end.
        if case.name() == "view: as a result" {
            continue;
        }
        let empty = case.graph().results().iter().all(|id| case.graph().tensor(*id).desc.is_empty());
        if empty {
            continue;
        }
        total += 1;
        match run(&device, case, &ConformanceOptions::default()) {
            Outcome::Failed(_) => caught += 1,
            outcome => eprintln!("{}: {outcome:?}", case.name()),
        }
    }
    assert_eq!(caught, total);
}

#[test]
fn a_device_that_accepts_what_it_cannot_run_fails() {
    let device = faulty(Fault::Boastful);
    let case = cases().into_iter().find(|case| case.name().starts_with("rope normal")).unwrap();
    let outcome = run(&device, &case, &ConformanceOptions::default());
    assert!(matches!(outcome, Outcome::Failed(CaseFailure::NotRun { .. })), "{outcome:?}");
}

#[test]
fn a_refused_case_is_not_a_passed_one() {
    let device = faulty(Fault::Choosy);
    let report = report_of(&device, "rope");
    assert!(report.iter().all(|outcome| matches!(outcome, Outcome::Unsupported { .. })));
    assert!(report_of(&device, "neg").iter().all(Outcome::is_passed));
}

fn report_of(device: &Arc<dyn Device>, op: &str) -> Vec<Outcome> {
    let cases = cases();
    let chosen = cases.iter().filter(|case| case.op() == op);
    chosen.map(|case| run(device, case, &ConformanceOptions::default())).collect()
}

#[test]
fn small_errors_beside_large_results_are_caught() {
    let device = faulty(Fault::LosesTails);
    let cases = cases();
    let extremes = cases.iter().filter(|case| case.name().starts_with("silu: extremes"));
    let outcomes: Vec<Outcome> =
        extremes.map(|case| run(&device, case, &ConformanceOptions::default())).collect();
    let caught = |outcome: &&Outcome| matches!(outcome, Outcome::Failed(CaseFailure::Inexact { .. }));
    assert!(outcomes.iter().filter(caught).count() >= 1, "{outcomes:?}");
}

#[test]
fn results_that_depend_on_the_plan_are_caught() {
    let device = faulty(Fault::PlanDependent);
    let case = cases().into_iter().find(|case| case.name() == "chain: through views").unwrap();
    let outcome = run(&device, &case, &ConformanceOptions::default());
    assert!(matches!(outcome, Outcome::Failed(CaseFailure::PlanMatters { .. })), "{outcome:?}");
}

#[test]
fn activations_may_be_rounded_to_eight_bits_for_quantised_weights_and_no_further() {
    let cases = cases();
    let outcome = |fault: DType, weights: &str, precision: Precision| {
        let device = faulty(Fault::Rounds(fault));
        let wanted = |name: &str| name.starts_with(&format!("{weights} ")) && name.ends_with(" 12 7");
        let case =
            cases.iter().find(|case| case.name().strip_prefix("mul_mat quantised: ").is_some_and(wanted));
        let lower = LowerOptions { precision, ..LowerOptions::default() };
        run(
            &device,
            case.expect("such a case"),
            &ConformanceOptions { lower, ..ConformanceOptions::default() },
        )
    };
    for (weights, paired) in [
        ("q4_0", DType::Q8_0),
        ("q8_0", DType::Q8_0),
        ("q4_1", DType::Q8_1),
        ("q4_K", DType::Q8_K),
        ("mxfp4", DType::Q8_0),
    ] {
        let fast = outcome(paired, weights, Precision::Int8);
        assert!(matches!(fast, Outcome::Passed { error } if error > 1e-7), "{weights}: {fast:?}");
        let further = outcome(DType::Q5_0, weights, Precision::Int8);
        assert!(matches!(further, Outcome::Failed(CaseFailure::Inexact { .. })), "{weights}: {further:?}");
        let exact = outcome(paired, weights, Precision::F32);
        assert!(matches!(exact, Outcome::Failed(CaseFailure::Inexact { .. })), "{weights}: {exact:?}");
    }
}
