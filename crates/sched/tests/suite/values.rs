//! Values that go to JSON and back, and numbers that are measured.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use orlop_backend::Device;
use orlop_graph::DType;
use orlop_sched::{CalibrateOptions, Machine, calibrate_by};
use orlop_testkit::ReferenceDevice;
use orlop_testkit::devices::VirtualClock;

use crate::support::private;

#[cfg(feature = "serde")]
mod json {
    use orlop_graph::DType;
    use orlop_sched::{
        AttentionSpeed, DeviceSpeeds, PassSpeed, Placement, ProductSpeed, Schedule, place_by_rules, split,
    };
    use orlop_testkit::{Random, generate};

    use crate::equality::private_machine;
    use crate::support::memory_of;

    #[test]
    fn placements_schedules_and_speeds_survive_being_written_and_read() {
        for seed in 0..20 {
            let (graph, _) = generate::graph(seed + 60_000, &generate::Size::default());
            let machine = private_machine(seed);
            let mut constraints = orlop_sched::Constraints::default();
            for (id, _) in graph.leaves().filter(|(_, leaf)| leaf.is_external()) {
                constraints.pinned.insert(id, memory_of(&**machine.devices().last().unwrap()));
            }
            for (index, node) in graph.nodes().iter().enumerate().filter(|(_, node)| node.op.name() == "add")
            {
                let device =
                    machine.indices().nth(Random::nth(seed, index as u64) as usize % machine.devices().len());
                constraints.assigned.insert(node.output, device.unwrap());
            }
            let Ok(placement) = place_by_rules(&graph, &machine, &constraints) else { continue };
            let text = serde_json::to_string(&placement).unwrap();
            assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), placement);
            let schedule = split(&graph, &machine, &constraints, &placement);
            let text = serde_json::to_string(&schedule).unwrap();
            assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule);
        }
        let numbers = DeviceSpeeds {
            flops: 1e9,
            quantized_flops: 4e9,
            bytes_per_second: 2e9,
            launch_seconds: 1e-6,
            host_bytes_per_second: 3e9,
            to_host_bytes_per_second: 2e9,
            host_latency_seconds: 4e-6,
            products: vec![ProductSpeed { dtype: DType::Q4_K, rows: 1, seconds_per_weight: 5e-10 }],
            attention: vec![AttentionSpeed { tokens: 64, seconds_per_element: 2e-11 }],
            passes: vec![PassSpeed { bytes: 1 << 20, seconds: 1e-4 }],
        };
        let text = serde_json::to_string(&numbers).unwrap();
        assert_eq!(serde_json::from_str::<DeviceSpeeds>(&text).unwrap(), numbers);
    }
}

#[test]
fn a_slow_device_is_measured_to_be_slow_in_about_the_time_given() {
    let virtual_clock = VirtualClock::new();
    let device = |step: f64| -> Arc<dyn Device> {
        private("counted")
            .without(["add"])
            .bytes_per_second(123.0)
            .clock(&virtual_clock, move |steps, _| step * steps.nodes.len() as f64)
            .build()
    };
    let (quick, slow) = (device(1e-4), device(2e-3));
    // Each look at the clock takes a millisecond, steps what the devices say.
    let looks = Cell::new(0);
    let now = || {
        looks.set(looks.get() + 1);
        Duration::from_secs_f64(virtual_clock.host_seconds()) + Duration::from_millis(looks.get())
    };
    let time = Duration::from_millis(300);
    let [fast, late] = [&quick, &slow].map(|device| {
        let begin = now();
        let options = CalibrateOptions {
            types: vec![DType::Q8_0],
            time,
            bytes: 1 << 16,
            side: 64,
            ..CalibrateOptions::default()
        };
        let numbers = calibrate_by(device, &options, &now).unwrap();
        assert!(now() - begin < 4 * time, "{:?}", now() - begin);
        numbers
    });
    for numbers in [&fast, &late] {
        let all = [
            numbers.flops,
            numbers.launch_seconds,
            numbers.host_bytes_per_second,
            numbers.host_latency_seconds,
            numbers.to_host_bytes_per_second,
            numbers.passes[0].seconds,
            numbers.products[0].seconds_per_weight,
            numbers.attention[0].seconds_per_element,
        ];
        assert!(all.iter().all(|number| number.is_finite() && *number > 0.0), "{numbers:?}");
    }
    for (numbers, step) in [(&fast, 1e-4), (&late, 2e-3)] {
        assert!((numbers.launch_seconds - step).abs() < 2e-5, "{numbers:?}");
    }
    assert!(late.flops < fast.flops, "{fast:?} {late:?}");
    assert_eq!(late.bytes_per_second, 123.0, "what it cannot run is left as it says");
    let machine = Machine::new([slow]).unwrap();
    let ix = machine.indices().next().unwrap();
    let machine = machine.calibrated(ix, late.clone()).unwrap();
    assert_eq!(machine.speeds(ix), &late);
    assert!(
        machine
            .calibrated(
                Machine::new([ReferenceDevice::new() as Arc<dyn Device>, ReferenceDevice::named("b")])
                    .unwrap()
                    .indices()
                    .nth(1)
                    .unwrap(),
                late
            )
            .is_err()
    );
}
