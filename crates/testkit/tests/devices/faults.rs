//! Injected faults: what fails, and what stays intact.

use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::{Device, DeviceError, RunOptions};
use orlop_sched::{Machine, Session, SessionOptions};
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice};
use orlop_testkit::generate::{self, Size};
use orlop_testkit::{PlannedOptions, f32_bytes, run_planned};

use crate::support::{DOUBLED, Rig, X, arena, builder, claims, copy, doubled, floats, submit, values};

fn both(name: &str) -> [Arc<TestDevice>; 2] {
    [false, true].map(|asynchronous| builder(name).asynchronous(asynchronous).build())
}

fn out_of_memory(bytes: u64) -> DeviceError {
    DeviceError::OutOfMemory { buffer_type: "gpu".to_owned(), bytes }
}

#[test]
fn every_allocation_may_fail_and_the_next_run_succeeds() {
    let (graph, feeds) = generate::graph(11, &Size::default());
    for test in both("gpu") {
        let device: Arc<dyn Device> = test.clone();
        let expected = run_planned(&device, &graph, &feeds, &PlannedOptions::default()).unwrap();
        let allocations = test.counters().allocations;
        for nth in 1..=allocations {
            test.faults().fail(FaultPoint::Allocation, nth, FaultKind::OutOfMemory);
            run_planned(&device, &graph, &feeds, &PlannedOptions::default()).unwrap_err();
            assert_eq!((test.counters().live_buffers, test.counters().live_bytes), (0, 0));
            let again = run_planned(&device, &graph, &feeds, &PlannedOptions::default()).unwrap();
            assert_eq!(again, expected);
        }
        assert_eq!(test.faults().open(), 0);
    }
}

#[test]
fn a_failed_run_is_an_error_and_the_next_one_succeeds() {
    let graph = doubled();
    for device in both("gpu") {
        let mut session =
            Session::new(Machine::new([device.clone() as _]).unwrap(), SessionOptions::default()).unwrap();
        let plan = session.prepare(&graph, &Externals::new()).unwrap();
        let [x, y] = [0, 1].map(|index| graph.tensor_ids().nth(index).unwrap());
        let mut run = || {
            session.set(plan, x, &f32_bytes(&X)).unwrap();
            session.run(plan, &RunOptions::default())?;
            let mut bytes = [0; 16];
            session.get(plan, y, &mut bytes).map(|()| bytes)
        };
        device.faults().fail(FaultPoint::Submit, 2, FaultKind::Error(out_of_memory(3)));
        assert_eq!(run().unwrap()[..], f32_bytes(&DOUBLED));
        assert_eq!(run().unwrap_err().device_error(), Some(&out_of_memory(3)));
        assert_eq!(run().unwrap()[..], f32_bytes(&DOUBLED));
        assert_eq!(device.counters().submits, 3);
    }
}

#[test]
fn a_failed_copy_copies_nothing() {
    for device in both("gpu") {
        let (from, to) = (floats(arena(&device)), floats(arena(&device)));
        from.set(0, &f32_bytes(&X)).unwrap();
        let mut queue = device.queue().unwrap();
        let mut run = || {
            let given = copy(&mut *queue, &from, &to, &claims(&[&from, &to]));
            given.and(queue.sync())
        };
        device.faults().fail(FaultPoint::Copy, 1, FaultKind::OutOfMemory);
        assert_eq!(run(), Err(out_of_memory(16)));
        assert_eq!(values(&to).unwrap(), [0.0; 4]);
        run().unwrap();
        assert_eq!(values(&to).unwrap(), X);
        assert_eq!((device.counters().copies, device.counters().copied_bytes), (2, 16));
    }
}

#[test]
fn a_lost_device_stays_lost() {
    for device in both("gpu") {
        let rig = Rig::new(&device);
        let mut queue = device.queue().unwrap();
        device.faults().fail(FaultPoint::Submit, 1, FaultKind::Lost);
        let given = submit(&mut *queue, &rig, &claims(&[&rig.x, &rig.y]));
        let lost = given.and(queue.sync()).unwrap_err();
        assert!(matches!(&lost, DeviceError::Lost { device, .. } if device == "gpu"));
        assert!(device.facts().lost);
        device.faults().clear();
        let again = submit(&mut *queue, &rig, &claims(&[&rig.x, &rig.y]));
        let refusals = [
            again,
            queue.sync(),
            queue.record().map(|_| ()),
            device.queue().map(|_| ()),
            Arc::clone(arena(&device)).allocate(1).map(|_| ()),
            values(&rig.y).map(|_| ()),
            rig.x.set(0, &[1]),
            crate::support::compile(&device, &rig.x, &rig.y).map(|_| ()),
        ];
        assert!(refusals.iter().all(|refusal| refusal.as_ref() == Err(&lost)), "{refusals:?}");
        drop((rig, queue));
        assert_eq!((device.counters().live_buffers, device.counters().live_bytes), (0, 0));
    }
}

#[test]
fn a_device_is_lost_at_once_if_told_so() {
    let device = builder("gpu").build();
    device.faults().fail(FaultPoint::Copy, 0, FaultKind::Lost);
    assert_eq!(device.faults().open(), 0);
    device.faults().lose();
    assert!(device.facts().lost);
    assert!(matches!(device.queue(), Err(DeviceError::Lost { .. })));
}

#[test]
fn orders_of_several_kinds_are_open_together() {
    let device = builder("gpu").build();
    let faults = device.faults();
    faults.fail(FaultPoint::Allocation, 2, FaultKind::OutOfMemory);
    faults.fail(FaultPoint::Allocation, 3, FaultKind::OutOfMemory);
    faults.fail(FaultPoint::Submit, 1, FaultKind::OutOfMemory);
    let worked: Vec<bool> = (0..4).map(|_| Arc::clone(arena(&device)).allocate(8).is_ok()).collect();
    assert_eq!(worked, [true, false, false, true]);
    assert_eq!(faults.open(), 1);
    faults.clear();
    let rig = Rig::new(&device);
    submit(&mut *device.queue().unwrap(), &rig, &claims(&[&rig.x, &rig.y])).unwrap();
}
