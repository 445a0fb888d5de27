use std::sync::Arc;

use orlop_alloc::Externals;
use orlop_backend::{BufferType, Claim, Device, DeviceError, Role, RunOptions};
use orlop_graph::{AccessKind, DType, FlashAttention, GraphBuilder, PagedRows};
use orlop_sched::{Error, Machine, Session, SessionOptions};
use orlop_testkit::{f32_bytes, f32s, i32_bytes};
use orlop_wgpu::WgpuOptions;

use crate::support::{cpu, gpu, gpu_with};

fn memory(device: &dyn Device) -> Arc<dyn BufferType> {
    Arc::clone(&device.buffer_types(Role::Arena)[0])
}

#[test]
fn no_memory_is_an_error_and_changes_nothing() {
    let memory_bytes = 4 << 20;
    let device = gpu_with(WgpuOptions { memory: Some(memory_bytes), ..WgpuOptions::default() });
    let empty = device.allocated();
    assert_eq!(empty, device.facts().staging.device);
    let first = memory(&*device).allocate(1600 << 10).unwrap();
    let before = device.allocated();
    let refused = memory(&*device).allocate(300 << 10);
    let wanted = DeviceError::OutOfMemory { buffer_type: "wgpu".to_owned(), bytes: 300 << 10 };
    assert_eq!(refused.unwrap_err(), wanted);
    assert_eq!(device.allocated(), before);
    assert_eq!(device.facts().memory.unwrap().free, memory_bytes - before);
    drop(first);
    assert_eq!(device.allocated(), empty);
    memory(&*device).allocate(300 << 10).unwrap();
}

#[test]
fn a_lost_device_is_an_error_and_the_graph_goes_on_on_the_cpu() {
    let device = gpu();
    let machine = Machine::new([Arc::clone(&device) as Arc<dyn Device>, cpu()]).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64]);
    let y = b.sqr(x);
    b.output(y);
    let graph = b.build().unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    let run = |session: &mut Session| {
        session.set(plan, x, &f32_bytes(&[3.0; 64]))?;
        session.run(plan, &RunOptions::default())?;
        let mut bytes = [0; 256];
        session.get(plan, y, &mut bytes)?;
        Ok::<_, Error>(f32s(&bytes))
    };
    assert_eq!(run(&mut session).unwrap(), [9.0; 64]);

    session.set(plan, x, &f32_bytes(&[3.0; 64])).unwrap();
    device.destroy();
    let lost = session.run(plan, &RunOptions::default());
    assert!(matches!(&lost, Err(Error::DeviceLost { device, .. }) if device == "wgpu"), "{lost:?}");
    assert!(device.facts().lost);
    let refused = memory(&*device).allocate(64);
    assert!(matches!(refused, Err(DeviceError::Lost { .. })), "{refused:?}");
    assert_eq!(session.recover().unwrap(), ["wgpu"]);
    assert_eq!(run(&mut session).unwrap(), [9.0; 64]);
}

#[test]
fn an_index_out_of_range_is_an_error_and_nothing_is_written() {
    let device: Arc<dyn Device> = gpu();
    let mut b = GraphBuilder::new();
    let cache = b.persistent("cache", DType::F32, &[4, 3]);
    let rows = b.input("rows", DType::F32, &[4, 2]);
    let at = b.input("at", DType::I32, &[2]);
    let written = b.set_rows(cache, rows, at);
    let sum = b.sum(written);
    b.output(sum);
    let graph = b.build().unwrap();
    let mut session = Session::new(Machine::new([device]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    session.set(plan, cache, &f32_bytes(&[0.0; 12])).unwrap();
    let mut run = |indices: [i32; 2]| {
        session.set(plan, rows, &f32_bytes(&[1.0; 8])).unwrap();
        session.set(plan, at, &i32_bytes(&indices)).unwrap();
        let outcome = session.run(plan, &RunOptions::default());
        let mut bytes = [0; 48];
        session.get(plan, cache, &mut bytes).unwrap();
        (outcome, f32s(&bytes))
    };
    let (outcome, cache) = run([0, 3]);
    let Err(Error::Device { source, .. }) = outcome else { panic!("{outcome:?}") };
    assert!(
        matches!(&*source, DeviceError::BadIndex { op, index: 3, rows: 3, .. } if op == "set_rows"),
        "{source:?}"
    );
    assert_eq!(cache, [0.0; 12]);
    let (outcome, cache) = run([2, -1]);
    outcome.unwrap();
    assert_eq!(cache[8..], [1.0; 4]);
    assert_eq!(cache[..8], [0.0; 8]);
    // Of two rows with equal indices the last one is written; both are equal here, so this only checks that it succeeds.
    run([1, 1]).0.unwrap();
}

#[test]
fn memory_is_touched_only_with_a_claim_and_within_its_bounds() {
    let device = gpu();
    let [a, b] = [64, 64].map(|bytes| memory(&*device).allocate(bytes).unwrap());
    let claim = Claim::take(&*a, AccessKind::Read).unwrap();
    let refused = a.write(&claim, 0, &[1; 4]);
    assert!(matches!(refused, Err(DeviceError::NotClaimed { .. })));
    let mut bytes = [0; 8];
    assert!(matches!(a.read(&claim, 60, &mut bytes), Err(DeviceError::OutOfBounds { .. })));
    assert!(matches!(b.read(&claim, 0, &mut bytes), Err(DeviceError::NotClaimed { .. })));
}

#[test]
fn lengths_sequences_and_pages_out_of_range_are_errors_where_they_are_looked_at() {
    let device: Arc<dyn Device> = gpu();
    let mut b = GraphBuilder::new();
    let [q, k, v] =
        [("q", 3), ("k", 256), ("v", 256)].map(|(name, rows)| b.input(name, DType::F32, &[16, rows, 1]));
    let [kv_len, sequences] = ["kv_len", "sequences"].map(|name| b.input(name, DType::I32, &[3]));
    let pages = b.input("pages", DType::I32, &[2, 2]);
    let rows = PagedRows { kv_len, pages, sequences, page_rows: 64 };
    let flash = FlashAttention { window: 10, ..FlashAttention::scaled(1.0) };
    let y = b.paged_attention([q, k, v], rows, None, flash);
    b.output(y);
    let graph = b.build().unwrap();
    let mut session = Session::new(Machine::new([device]).unwrap(), SessionOptions::default()).unwrap();
    let plan = session.prepare(&graph, &Externals::new()).unwrap();
    let mut run = |seen: [i32; 3], own: [i32; 3], table: [i32; 4]| {
        for (id, elements) in [(q, 48), (k, 4096), (v, 4096)] {
            session.set(plan, id, &f32_bytes(&vec![1.0; elements])).unwrap();
        }
        session.set(plan, kv_len, &i32_bytes(&seen)).unwrap();
        session.set(plan, sequences, &i32_bytes(&own)).unwrap();
        session.set(plan, pages, &i32_bytes(&table)).unwrap();
        match session.run(plan, &RunOptions::default()) {
            Ok(()) => None,
            Err(Error::Device { source, .. }) => match *source {
                DeviceError::BadIndex { index, rows, .. } => Some((index, rows)),
                other => panic!("{other:?}"),
            },
            Err(other) => panic!("{other:?}"),
        }
    };
    // The first page of both is before the windows; a query that sees nothing may be of any sequence.
    assert_eq!(run([80, 128, 0], [0, 1, 77], [-1, 2, 99, 3]), None);
    assert_eq!(run([80, 129, 0], [0, 1, 0], [0, 2, 1, 3]), Some((129, 128)));
    assert_eq!(run([80, -2, 0], [0, 1, 0], [0, 2, 1, 3]), Some((-2, 128)));
    assert_eq!(run([80, 128, 1], [0, 1, 2], [0, 2, 1, 3]), Some((2, 2)));
    assert_eq!(run([80, 128, 1], [0, 1, -1], [0, 2, 1, 3]), Some((-1, 2)));
    assert_eq!(run([80, 128, 0], [0, 1, 0], [0, 2, 1, 4]), Some((4, 4)));
    assert_eq!(run([70, 128, 0], [0, 1, 0], [-5, 2, 1, 3]), Some((-5, 4)));
    assert_eq!(run([80, 128, 1], [0, 1, 1], [-1, 2, 1, 3]), None);
}
