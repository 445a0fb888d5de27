use std::sync::Arc;

use orlop_backend::Device;
use orlop_graph::DType;
use orlop_testkit::conformance::{Case, ConformanceOptions, Outcome, cases, report, run};
use orlop_testkit::guard::Guarded;
use orlop_wgpu::WgpuOptions;

use crate::support::{gpu, gpu_with};

#[test]
fn every_case_that_is_accepted_agrees_with_the_reference() {
    let device: Arc<dyn Device> = gpu();
    let report = report(&device, &ConformanceOptions::default());
    println!("{}", report.markdown());
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(report.passed() >= 500, "{} passed", report.passed());
    // Only encoding into most block types is unsupported.
    let encodes = ["cast", "copy", "set_rows"];
    let only_blocks = |reason: &String| {
        let Some((op, reason)) = reason.split_once(": ") else { return false };
        let of = |dtype: DType| reason.starts_with(&format!("no kernel for {dtype} as"));
        encodes.contains(&op) && DType::all().filter(|dtype| dtype.is_quantized()).any(of)
    };
    for row in &report.rows {
        assert!(row.reasons.iter().all(only_blocks), "{}: {:?}", row.op, row.reasons);
    }
}

/// Reductions differ without subgroups, and products on real GPUs.
#[test]
fn every_form_of_sums_agrees() {
    for [subgroups, cooperative] in [[false, true], [true, true]] {
        let options = WgpuOptions { subgroups, cooperative: Some(cooperative), ..WgpuOptions::default() };
        let device: Arc<dyn Device> = gpu_with(options);
        let reduces = ["sum", "mean", "rms_norm", "group_norm", "soft_max", "flash_attention"];
        let passed = all_pass(&device, cases().iter().filter(|case| reduces.contains(&case.op())).step_by(9));
        assert!(passed >= 20, "{passed}");
        let products: Vec<Case> = cases().into_iter().filter(|case| case.op() == "mul_mat").collect();
        assert_eq!(all_pass(&device, products.iter()), products.len());
    }
}

#[test]
fn nothing_is_written_but_results() {
    let guarded = Guarded::new(gpu());
    let device: Arc<dyn Device> = guarded.clone();
    let passed = all_pass(&device, cases().iter().step_by(41));
    assert_eq!(guarded.trespasses(), []);
    assert!(passed >= 40, "{passed}");
}

/// How many pass, none of them failing.
fn all_pass<'a>(device: &Arc<dyn Device>, chosen: impl Iterator<Item = &'a Case>) -> usize {
    let mut passed = 0;
    for case in chosen {
        match run(device, case, &ConformanceOptions::default()) {
            Outcome::Failed(failure) => panic!("{}: {failure:?}", case.name()),
            outcome => passed += usize::from(outcome.is_passed()),
        }
    }
    passed
}
