//! Whole graphs on test devices.

use std::sync::Arc;
use std::time::Duration;

use orlop_backend::Device;
use orlop_graph::Graph;
use orlop_testkit::conformance::{ConformanceOptions, report};
use orlop_testkit::devices::{TestDevice, TestDeviceBuilder};
use orlop_testkit::generate::{self, BlockSize, ExpertShape, Size, block};
use orlop_testkit::guard::Guarded;
use orlop_testkit::{Feeds, PlannedOptions, ReferenceDevice, kept, run_planned, run_unplanned};

use crate::support::builder;

fn unplanned(graph: &Graph, feeds: &Feeds) -> Feeds {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    let outputs = run_unplanned(&device, graph, feeds).expect("the reference runs it");
    kept(graph).into_iter().map(|id| (id, outputs.bytes(id).expect("the graph's own"))).collect()
}

/// Runs a graph with and without a plan; afterwards nothing is left.
#[track_caller]
fn check(device: TestDeviceBuilder, graph: &Graph, feeds: &Feeds) {
    let test = device.build();
    let device: Arc<dyn Device> = test.clone();
    let expected = unplanned(graph, feeds);
    assert_eq!(run_planned(&device, graph, feeds, &PlannedOptions::default()).expect("it runs"), expected);
    let outputs = run_unplanned(&device, graph, feeds).expect("it runs");
    for (id, bytes) in &expected {
        assert_eq!(outputs.bytes(*id).expect("the graph's own"), *bytes, "{id}");
    }
    drop(outputs);
    let counters = test.counters();
    assert_eq!((counters.live_buffers, counters.live_bytes, counters.submits), (0, 0, 2));
    assert!(counters.allocations > 1);
}

#[test]
fn generated_graphs_give_the_bytes_of_an_unplanned_run() {
    for seed in 0..25 {
        let (graph, feeds) = generate::graph(seed, &Size::default());
        for asynchronous in [false, true] {
            check(builder("gpu").asynchronous(asynchronous), &graph, &feeds);
            let narrow = builder("gpu").alignment(1).fresh_bytes(0xa5);
            check(narrow.asynchronous(asynchronous), &graph, &feeds);
            let wide = builder("gpu").alignment(4096).direct_copies(true).host_visible(false);
            check(wide.asynchronous(asynchronous), &graph, &feeds);
        }
    }
}

#[test]
fn blocks_give_the_bytes_of_an_unplanned_run() {
    let dense = BlockSize::default();
    for size in [dense, BlockSize { experts: Some(ExpertShape { count: 4, used: 2 }), ..dense }] {
        let (graph, feeds) = block(&size).unwrap();
        for asynchronous in [false, true] {
            let delay = Duration::from_micros(20);
            check(builder("gpu").asynchronous(asynchronous).step_delay(delay), &graph, &feeds);
        }
    }
}

#[test]
fn a_guard_inside_sees_nothing_wrong() {
    for seed in 0..10 {
        let guard = Guarded::new(ReferenceDevice::new());
        let (graph, feeds) = generate::graph(seed, &Size::default());
        let device = TestDevice::builder(guard.clone()).name("gpu").asynchronous(seed % 2 == 0);
        check(device, &graph, &feeds);
        assert!(guard.trespasses().is_empty());
    }
}

#[test]
fn a_test_device_goes_around_another() {
    let (graph, feeds) = generate::graph(3, &Size::default());
    let inner = builder("inner").asynchronous(true).build();
    check(TestDevice::builder(inner.clone()).name("outer"), &graph, &feeds);
    assert_eq!(inner.counters().live_bytes, 0);
    assert_eq!(inner.counters().submits, 2);
}

#[test]
fn the_conformance_set_passes_in_private_memory() {
    let device: Arc<dyn Device> = builder("gpu").asynchronous(true).build();
    let report = report(&device, &ConformanceOptions::default());
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert_eq!(report.unsupported(), 0, "{}", report.markdown());
}
