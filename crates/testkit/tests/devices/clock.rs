//! Times on the virtual clock.

use std::sync::Arc;

use orlop_backend::{Device, Event, Link};
use orlop_testkit::devices::{TestDevice, VirtualClock};

use crate::support::{Rig, arena, builder, claims, copy, floats, submit};

fn device(name: &str, clock: &VirtualClock, step: f64, asynchronous: bool) -> Arc<TestDevice> {
    let link = Link { bytes_per_second: 64.0, latency_seconds: 0.5 };
    let counted = builder(name).host_link(link).asynchronous(asynchronous);
    counted.clock(clock, move |steps, graph| step * (steps.nodes.len() * graph.nodes().len()) as f64).build()
}

#[test]
fn programs_copies_and_waits_add_up() {
    for asynchronous in [false, true] {
        let clock = VirtualClock::new();
        let a = device("a", &clock, 2.0, asynchronous);
        let b = device("b", &clock, 3.0, asynchronous);
        let (on_a, on_b, there) = (Rig::new(&a), Rig::new(&b), floats(arena(&b)));
        let held = claims(&[&on_a.x, &on_a.y, &on_b.x, &on_b.y, &there]);
        let (mut first, mut second) = (a.queue().unwrap(), b.queue().unwrap());

        submit(&mut *first, &on_a, &held).unwrap(); // a: 0 to 2
        let computed = first.record().unwrap();
        submit(&mut *second, &on_b, &held).unwrap(); // b: 0 to 3
        second.wait(&computed).unwrap(); // passed long ago
        copy(&mut *second, &on_a.y, &there, &held).unwrap(); // b: 0.5 and 16 bytes at 64 a second, to 3.75
        let copied: Arc<dyn Event> = second.record().unwrap();
        first.wait(&copied).unwrap();
        submit(&mut *first, &on_a, &held).unwrap(); // a: 3.75 to 5.75
        submit(&mut *second, &on_b, &held).unwrap(); // b: 3.75 to 6.75
        copied.wait().unwrap();
        assert_eq!(clock.host_seconds(), 3.75);
        first.sync().unwrap();
        assert_eq!(clock.host_seconds(), 5.75);
        second.sync().unwrap();
        assert_eq!((clock.device_seconds("a"), clock.device_seconds("b")), (5.75, 6.75));
        assert_eq!((clock.makespan(), clock.host_seconds()), (6.75, 6.75));

        submit(&mut *first, &on_a, &held).unwrap(); // given at 6.75
        first.sync().unwrap();
        assert_eq!(clock.makespan(), 8.75);
        clock.reset();
        submit(&mut *second, &on_b, &held).unwrap();
        second.sync().unwrap();
        assert_eq!((clock.makespan(), clock.device_seconds("a")), (3.0, 0.0));
    }
}

#[test]
fn two_queues_of_a_device_run_side_by_side() {
    let clock = VirtualClock::new();
    let device = device("a", &clock, 2.0, false);
    let rig = Rig::new(&device);
    let held = claims(&[&rig.x, &rig.y]);
    for _ in 0..2 {
        let mut queue = device.queue().unwrap();
        submit(&mut *queue, &rig, &held).unwrap();
    }
    assert_eq!(clock.makespan(), 2.0);
}
