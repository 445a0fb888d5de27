//! What every device's queue does with bytes of the host: [`orlop_backend::Queue::set`] and [`orlop_backend::Queue::get`].

use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Claim, Claims, Device, DeviceError, LowerOptions, NodeQuery, Operand, PendingRead,
    Program, Role, RunOptions, Segment, Slot, StoredTensor,
};
use orlop_graph::{AccessKind, DType, GraphBuilder, NodeId, TensorDesc};

use crate::{Random, f32_bytes};

/// Sets and gets bytes on a new queue of a device: more of them than staging memory holds, at odd places, taken late or never,
/// in front of and behind the queue's own work, of tensors in private layouts, and where others hold the buffer. Says what is
/// wrong, a line each.
pub fn check_queue(device: &Arc<dyn Device>) -> Vec<String> {
    type Check = fn(&Arc<dyn Device>, &mut Vec<String>) -> Result<(), DeviceError>;
    let checks: [(&str, Check); 4] = [
        ("many bytes", many_bytes),
        ("own work", own_work),
        ("refusals", refusals),
        ("private layouts", private_layouts),
    ];
    let mut failures = Vec::new();
    for (name, check) in checks {
        let mut found = Vec::new();
        if let Err(error) = check(device, &mut found) {
            found.push(error.to_string());
        }
        failures.extend(found.into_iter().map(|failure| format!("{name}: {failure}")));
    }
    failures
}

fn many_bytes(device: &Arc<dyn Device>, failures: &mut Vec<String>) -> Result<(), DeviceError> {
    let x = tensor(arena(device)?, DType::F32, &[5_000_001])?;
    let mut random = Random::new(7);
    let mut expected: Vec<u8> = (0..x.desc().bytes()).map(|_| random.byte()).collect();
    let mut queue = device.queue()?;
    let mut given = expected.clone();
    let arrived = queue.set(&x, 0, &given)?;
    // The queue has its own copy.
    given.fill(0);
    let mut reads: Vec<(PendingRead, Vec<u8>)> = Vec::new();
    for (offset, bytes) in
        [(0, 4), (1, 2), (5, 7), (4096, 300_000), (1_000_001, 600_002), (20_000_000, 4), (3, 1 << 20)]
    {
        let piece: Vec<u8> = (0..bytes).map(|_| random.byte()).collect();
        queue.set(&x, offset as u64, &piece)?;
        expected[offset..offset + bytes].copy_from_slice(&piece);
        for (from, length) in [(offset, bytes), (offset.saturating_sub(3), bytes + 2), (17, 900_001)] {
            let read = queue.get(&x, from as u64, length as u64)?;
            reads.push((read, expected[from..from + length].to_vec()));
        }
        // One that is never taken.
        queue.get(&x, 0, 500_000)?;
    }
    reads.push((queue.get(&x, 0, x.desc().bytes())?, expected.clone()));
    reads.push((queue.get(&x, 8, 0)?, Vec::new()));
    for (index, (read, wanted)) in reads.iter().enumerate().rev() {
        for time in ["first", "second"] {
            let mut found = vec![0; wanted.len()];
            read.wait(&mut found)?;
            if &found != wanted {
                failures.push(format!("read {index} has other bytes the {time} time"));
            }
        }
        if !read.is_done() {
            failures.push(format!("read {index} was waited for and is not done"));
        }
    }
    arrived.wait()?;
    if !arrived.is_done() {
        failures.push("bytes were waited for and have not arrived".to_owned());
    }
    drop(queue);
    let mut found = vec![0; expected.len()];
    x.get(0, &mut found)?;
    if found != expected {
        failures.push("the tensor holds other bytes".to_owned());
    }
    Ok(())
}

fn own_work(device: &Arc<dyn Device>, failures: &mut Vec<String>) -> Result<(), DeviceError> {
    const COUNT: u64 = 100_000;
    let (x, y) =
        (tensor(arena(device)?, DType::F32, &[COUNT])?, tensor(arena(device)?, DType::F32, &[COUNT])?);
    let program = doubling(device, &x, &y)?;
    let mut queue = device.queue()?;
    let mut reads = Vec::new();
    for round in 0..3 {
        let value = round as f32 + 1.0;
        queue.set(&x, 0, &f32_bytes(&[value; COUNT as usize]))?;
        let wanted = [(&x.slot().buffer, AccessKind::Read), (&y.slot().buffer, AccessKind::Write)];
        let claims = Claims::take(wanted)?;
        // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none; and that results lie
        // on nothing that is needed: `x` and `y` have a buffer each.
        unsafe { queue.submit(&program, &claims, &RunOptions::default()) }?;
        drop(claims);
        // The run may still be under way, and the queue holds `y` for it.
        let mut result = f32_bytes(&[2.0 * value; COUNT as usize]);
        reads.push((queue.get(&y, 0, 4 * COUNT)?, result.clone()));
        queue.set(&y, 400, &[round; 600])?;
        result[400..1000].fill(round);
        reads.push((queue.get(&y, 2, 4 * COUNT - 2)?, result[2..].to_vec()));
        // It reads `x` only.
        queue.set(&x, 0, &f32_bytes(&[9.0; 4]))?;
        queue.sync()?;
    }
    for (index, (read, wanted)) in reads.iter().enumerate() {
        let mut found = vec![0; wanted.len()];
        read.wait(&mut found)?;
        if &found != wanted {
            failures.push(format!("read {index} behind a run has other bytes"));
        }
    }
    let mut found = vec![0; 20];
    x.get(0, &mut found)?;
    if found != f32_bytes(&[9.0, 9.0, 9.0, 9.0, 3.0]) {
        failures.push("what was set behind a run that reads it is not there".to_owned());
    }
    Ok(())
}

fn refusals(device: &Arc<dyn Device>, failures: &mut Vec<String>) -> Result<(), DeviceError> {
    let x = tensor(arena(device)?, DType::F32, &[16])?;
    let mut queue = device.queue()?;
    queue.set(&x, 0, &[1; 64])?;
    let mut expect = |what: &str, met: Option<DeviceError>, wanted: fn(&DeviceError) -> bool| {
        if !met.as_ref().is_some_and(wanted) {
            failures.push(format!("{what} gave {met:?}"));
        }
    };
    let outside = |error: &DeviceError| matches!(error, DeviceError::OutOfBounds { .. });
    let busy = |error: &DeviceError| matches!(error, DeviceError::Busy { .. });
    expect("a set that ends outside", queue.set(&x, 60, &[0; 8]).err(), outside);
    expect("a get that ends outside", queue.get(&x, u64::MAX, 4).err(), outside);
    let claim = Claim::take(&*x.slot().buffer, AccessKind::Write)?;
    expect("a set of what is written", queue.set(&x, 0, &[0; 4]).err(), busy);
    expect("a get of what is written", queue.get(&x, 0, 4).err(), busy);
    drop(claim);
    let claim = Claim::take(&*x.slot().buffer, AccessKind::Read)?;
    expect("a set of what is read", queue.set(&x, 0, &[0; 4]).err(), busy);
    let read = queue.get(&x, 0, 64)?;
    drop(claim);
    let short =
        |error: &DeviceError| matches!(error, DeviceError::WrongLength { expected: 64, given: 4, .. });
    expect("a read into too little memory", read.wait(&mut [0; 4]).err(), short);
    let mut found = [0; 64];
    read.wait(&mut found)?;
    if found != [1; 64] {
        failures.push("a refused set has changed bytes".to_owned());
    }
    Ok(())
}

fn private_layouts(device: &Arc<dyn Device>, failures: &mut Vec<String>) -> Result<(), DeviceError> {
    let mut random = Random::new(8);
    for buffer_type in device.buffer_types(Role::Weight).iter().filter(|kind| !kind.is_borrowed()) {
        if !takes_weights(device, buffer_type, DType::Q4_0) {
            continue;
        }
        let x = tensor(buffer_type, DType::Q4_0, &[256, 32])?;
        let bytes: Vec<u8> = (0..x.desc().bytes()).map(|_| random.byte()).collect();
        let mut queue = device.queue()?;
        queue.set(&x, 0, &bytes)?;
        let mut found = vec![0; bytes.len()];
        queue.get(&x, 0, bytes.len() as u64)?.wait(&mut found)?;
        if found != bytes {
            failures.push(format!("rows in {} come back as others", buffer_type.name()));
        }
    }
    Ok(())
}

fn takes_weights(device: &Arc<dyn Device>, buffer_type: &Arc<dyn BufferType>, dtype: DType) -> bool {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", dtype, &[256, 32]);
    let x = b.input("x", DType::F32, &[256, 4]);
    let product = b.mul_mat(w, x);
    let Ok(graph) = b.build() else { return false };
    let Some(node) = graph.node_ids().next() else { return false };
    let operand = |id, buffer_type| Operand { desc: &graph.tensor(id).desc, buffer_type };
    let inputs = [operand(w, Some(buffer_type)), operand(x, None)];
    let query = NodeQuery { op: &graph.node(node).op, inputs: &inputs, output: operand(product, None) };
    device.supports(&query).is_yes()
}

fn arena(device: &Arc<dyn Device>) -> Result<&Arc<dyn BufferType>, DeviceError> {
    let missing = || DeviceError::Unbound { value: format!("the arena of {}", device.name()) };
    device.buffer_types(Role::Arena).first().ok_or_else(missing)
}

fn tensor(
    buffer_type: &Arc<dyn BufferType>,
    dtype: DType,
    extents: &[u64],
) -> Result<StoredTensor, DeviceError> {
    let outside = |error| DeviceError::Unbound { value: format!("{extents:?} of {dtype}: {error}") };
    let desc = TensorDesc::contiguous(dtype, extents).map_err(outside)?;
    let buffer = Arc::clone(buffer_type).allocate(buffer_type.alloc_bytes(&desc))?;
    StoredTensor::new("x", desc, Slot { buffer, offset: 0 })
}

/// `y = 2 x` at two places.
fn doubling(
    device: &Arc<dyn Device>,
    x: &StoredTensor,
    y: &StoredTensor,
) -> Result<Arc<dyn Program>, DeviceError> {
    let mut b = GraphBuilder::new();
    let input = b.input("x", DType::F32, &[x.desc().elements()]);
    b.scale(input, 2.0);
    let graph = b.build().map_err(|error| DeviceError::Unbound { value: error.to_string() })?;
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let buffer_types = [x, y].map(|stored| Some(Arc::clone(stored.slot().buffer.buffer_type())));
    let segment =
        Segment { graph: &graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &[true, true] };
    let steps = device.lower(&segment, &LowerOptions::default())?;
    let tensors = graph.tensor_ids().zip([x.slot().clone(), y.slot().clone()]).collect();
    device.compile(&steps, &Bindings { graph, tensors, temporaries: Vec::new() })
}
