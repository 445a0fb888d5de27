//! Order, events and errors of synchronous and asynchronous queues.

use std::sync::Arc;
use std::time::Duration;

use orlop_backend::{Device, DeviceError, Event, Holder, HostBufferType, Queue};
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice};
use orlop_testkit::{ReferenceDevice, check_queue, f32_bytes};

use crate::support::{DOUBLED, Flag, Rig, X, arena, builder, claims, copy, floats, submit, values};

fn beside(name: &str) -> Arc<TestDevice> {
    builder(name).asynchronous(true).build()
}

/// A queue that waits for a flag before anything else.
fn held_up(device: &TestDevice) -> (Box<dyn Queue>, Arc<Flag>) {
    let (flag, event) = Flag::down();
    let mut queue = device.queue().expect("a queue");
    queue.wait(&event).expect("the wait is the queue's, not ours");
    (queue, flag)
}

#[test]
fn work_is_done_in_order_while_the_caller_goes_on() {
    let device = builder("gpu").asynchronous(true).step_delay(Duration::from_millis(2)).build();
    let rig = Rig::new(&device);
    let copied = floats(arena(&device));
    let (mut queue, flag) = held_up(&device);
    let held = claims(&[&rig.x, &rig.y, &copied]);
    submit(&mut *queue, &rig, &held).unwrap();
    let halfway = queue.record().unwrap();
    copy(&mut *queue, &rig.y, &copied, &held).unwrap();
    let end = queue.record().unwrap();
    drop(held);

    assert!(!halfway.is_done() && !end.is_done());
    let busy = DeviceError::Busy { buffer_type: "gpu".to_owned(), holder: Holder::Writer };
    assert_eq!(values(&copied), Err(busy));
    flag.raise();
    halfway.wait().unwrap();
    queue.sync().unwrap();
    assert!(end.is_done());
    assert_eq!(values(&copied).unwrap(), DOUBLED);
}

#[test]
fn queues_keep_what_they_work_on() {
    let device = beside("gpu");
    let target = floats(&(HostBufferType::new("host") as _));
    let (mut queue, flag) = held_up(&device);
    {
        let rig = Rig::new(&device);
        let held = claims(&[&rig.x, &rig.y, &target]);
        submit(&mut *queue, &rig, &held).unwrap();
        copy(&mut *queue, &rig.y, &target, &held).unwrap();
    }
    assert_eq!(device.counters().live_buffers, 2);
    flag.raise();
    queue.sync().unwrap();
    assert_eq!(values(&target).unwrap(), DOUBLED);
    assert_eq!(device.counters().live_buffers, 0);
}

#[test]
fn a_copy_waits_for_another_devices_event() {
    let (a, b) = (beside("a"), beside("b"));
    let rig = Rig::new(&a);
    let there = floats(arena(&b));
    let (mut first, flag) = held_up(&a);
    let mut second = b.queue().unwrap();
    let held = claims(&[&rig.x, &rig.y, &there]);
    submit(&mut *first, &rig, &held).unwrap();
    let computed = first.record().unwrap();
    second.wait(&computed).unwrap();
    copy(&mut *second, &rig.y, &there, &held).unwrap();
    let copied = second.record().unwrap();
    drop(held);
    assert!(!copied.is_done());
    flag.raise();
    copied.wait().unwrap();
    first.sync().unwrap();
    assert_eq!(values(&there).unwrap(), DOUBLED);
}

#[test]
fn copies_go_to_their_own_device_or_the_host() {
    for asynchronous in [false, true] {
        let device = builder("a").asynchronous(asynchronous).build();
        let (here, there) = (floats(arena(&device)), floats(arena(&beside("b"))));
        let refused = copy(&mut *device.queue().unwrap(), &here, &there, &claims(&[&here, &there]));
        assert!(matches!(refused, Err(DeviceError::Foreign { what: "the destination of a copy", .. })));
        let unclaimed = copy(&mut *device.queue().unwrap(), &there, &here, &claims(&[&here]));
        assert_eq!(unclaimed, Err(DeviceError::NotClaimed { buffer_type: "b".to_owned() }));
    }
}

#[test]
fn errors_come_at_sync_and_skip_what_is_behind_them() {
    let device = beside("gpu");
    let rig = Rig::new(&device);
    let copied = floats(arena(&device));
    let held = claims(&[&rig.x, &rig.y, &copied]);
    let mut queue = device.queue().unwrap();
    let before = queue.record().unwrap();
    device.faults().fail(FaultPoint::Submit, 1, FaultKind::OutOfMemory);
    let error = DeviceError::OutOfMemory { buffer_type: "gpu".to_owned(), bytes: 0 };
    submit(&mut *queue, &rig, &held).unwrap();
    let after = queue.record().unwrap();
    copy(&mut *queue, &rig.y, &copied, &held).unwrap();
    assert_eq!((before.wait(), after.wait()), (Ok(()), Err(error.clone())));
    assert_eq!(queue.sync(), Err(error.clone()));
    assert_eq!(device.counters().copies, 0);

    assert_eq!(queue.sync(), Ok(()));
    submit(&mut *queue, &rig, &held).unwrap();
    copy(&mut *queue, &rig.y, &copied, &held).unwrap();
    let end = queue.record().unwrap();
    queue.sync().unwrap();
    assert_eq!((end.wait(), after.wait()), (Ok(()), Err(error)));
    drop(held);
    assert_eq!(values(&copied).unwrap(), DOUBLED);
}

#[test]
fn who_waits_for_failed_work_fails_with_it() {
    let (a, b) = (beside("a"), beside("b"));
    let rig = Rig::new(&a);
    let there = floats(arena(&b));
    let held = claims(&[&rig.x, &rig.y, &there]);
    let (mut first, mut second) = (a.queue().unwrap(), b.queue().unwrap());
    a.faults().fail(FaultPoint::Submit, 1, FaultKind::OutOfMemory);
    submit(&mut *first, &rig, &held).unwrap();
    let computed = first.record().unwrap();
    second.wait(&computed).unwrap();
    copy(&mut *second, &rig.y, &there, &held).unwrap();
    let error = DeviceError::OutOfMemory { buffer_type: "a".to_owned(), bytes: 0 };
    assert_eq!(second.sync(), Err(error.clone()));
    assert_eq!(first.sync(), Err(error.clone()));
    assert_eq!(b.counters().copies, 0);
    // A device that works at once has the error there and then.
    let at_once = builder("c").build();
    assert_eq!(at_once.queue().unwrap().wait(&computed), Err(error));
}

#[test]
fn a_dropped_queue_finishes_its_work() {
    let device = beside("gpu");
    let rig = Rig::new(&device);
    let (mut queue, flag) = held_up(&device);
    submit(&mut *queue, &rig, &claims(&[&rig.x, &rig.y])).unwrap();
    let end = queue.record().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(10));
            flag.raise();
        });
        drop(queue);
    });
    assert!(end.is_done());
    assert_eq!(values(&rig.y).unwrap(), DOUBLED);
    drop((rig, end));
    assert_eq!((device.counters().live_buffers, device.counters().live_bytes), (0, 0));
}

#[test]
fn no_wait_lasts_forever() {
    let device = builder("gpu").asynchronous(true).patience(Duration::from_millis(5)).build();
    let rig = Rig::new(&device);
    let held = claims(&[&rig.x, &rig.y]);
    let (mut queue, _flag) = held_up(&device);
    submit(&mut *queue, &rig, &held).unwrap();
    let error = queue.sync().unwrap_err();
    assert_eq!(error.to_string(), "gpu is lost: no event came within 5ms");
    assert!(!device.facts().lost);
    submit(&mut *queue, &rig, &held).unwrap();
    queue.sync().unwrap();
    let (mut queue, _flag) = held_up(&device);
    submit(&mut *queue, &rig, &held).unwrap();
    let end: Arc<dyn Event> = queue.record().unwrap();
    drop(queue);
    assert_eq!(end.wait(), Err(error));
}

#[test]
fn work_given_at_once_is_done_at_once() {
    let device = builder("gpu").copy_delay(Duration::from_millis(1)).build();
    let rig = Rig::new(&device);
    let copied = floats(arena(&device));
    let held = claims(&[&rig.x, &rig.y, &copied]);
    let mut queue = device.queue().unwrap();
    submit(&mut *queue, &rig, &held).unwrap();
    copy(&mut *queue, &rig.y, &copied, &held).unwrap();
    assert!(queue.record().unwrap().is_done());
    drop(held);
    assert_eq!(values(&copied).unwrap(), DOUBLED);
    let mismatch = {
        let bytes = orlop_graph::TensorDesc::contiguous(orlop_graph::DType::I32, &[4]).unwrap();
        let other = orlop_backend::StoredTensor::new("other", bytes, copied.slot().clone()).unwrap();
        copy(&mut *queue, &rig.y, &other, &claims(&[&rig.y, &copied]))
    };
    assert!(matches!(mismatch, Err(DeviceError::LayoutMismatch { .. })));
    rig.x.set(0, &f32_bytes(&X)).unwrap();
}

#[test]
fn queues_set_and_get_bytes_in_order_with_their_work() {
    let devices: [Arc<dyn Device>; 3] = [ReferenceDevice::new(), builder("still").build(), beside("gpu")];
    for device in devices {
        assert_eq!(check_queue(&device), [""; 0], "{device:?}");
    }
}
