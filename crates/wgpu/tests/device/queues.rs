use std::sync::Arc;

use orlop_backend::{Device, DeviceError, Role, Slot, StoredTensor};
use orlop_graph::{DType, TensorDesc};
use orlop_testkit::check_queue;
use orlop_wgpu::WgpuDevice;

use crate::support::gpu;

fn tensor(device: &WgpuDevice, bytes: u64) -> StoredTensor {
    let desc = TensorDesc::contiguous(DType::I32, &[bytes / 4]).unwrap();
    let buffer = Arc::clone(&device.buffer_types(Role::Arena)[0]).allocate(bytes).unwrap();
    StoredTensor::new("x", desc, Slot { buffer, offset: 0 }).unwrap()
}

#[test]
fn a_queue_sets_and_gets_bytes_in_order_with_its_work() {
    let device: Arc<dyn Device> = gpu();
    assert_eq!(check_queue(&device), [""; 0]);
}

#[test]
fn bytes_that_fit_staging_memory_are_set_and_read_without_waiting_for_the_device() {
    let device = gpu();
    let x = tensor(&device, 200 << 10);
    let mut queue = device.queue().unwrap();
    let before = device.counts();
    let arrived = queue.set(&x, 0, &[3; 200 << 10]).unwrap();
    let reads = [0, 1000, 2001].map(|offset| queue.get(&x, offset, 100_000).unwrap());
    assert_eq!(device.counts().since(&before).waits, 0);
    for read in reads {
        let mut found = vec![0; 100_000];
        read.wait(&mut found).unwrap();
        assert_eq!(found, [3; 100_000]);
    }
    assert!(arrived.is_done());
}

#[test]
fn staging_memory_of_queues_is_allocated_once_and_counted() {
    let device = gpu();
    let x = tensor(&device, 4 << 20);
    let mut queue = device.queue().unwrap();
    let (bytes, objects) = (device.allocated(), device.counts());
    assert_eq!(bytes, device.facts().staging.device + device.tensor_bytes());
    queue.set(&x, 0, &vec![5; 4 << 20]).unwrap();
    let reads = [0, 1 << 20].map(|offset| queue.get(&x, offset, 3 << 20).unwrap());
    assert_eq!((device.allocated(), device.counts().buffers), (bytes, objects.buffers));
    // Pieces that the ring had no room for were moved; the others go to their readers now.
    for read in reads.iter().rev() {
        let mut found = vec![0; 3 << 20];
        read.wait(&mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 5));
    }
}

#[test]
fn bytes_on_their_way_from_a_lost_device_are_an_error() {
    let device = gpu();
    let x = tensor(&device, 1 << 10);
    let mut queue = device.queue().unwrap();
    queue.set(&x, 0, &[1; 1 << 10]).unwrap();
    let read = queue.get(&x, 0, 1 << 10).unwrap();
    device.destroy();
    let lost = |error: DeviceError| matches!(error, DeviceError::Lost { .. });
    assert!(lost(read.wait(&mut [0; 1 << 10]).unwrap_err()));
    assert!(lost(queue.set(&x, 0, &[1; 4]).unwrap_err()));
    assert!(lost(queue.get(&x, 0, 4).err().unwrap()));
    assert!(read.is_done());
}
