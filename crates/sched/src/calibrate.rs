//! Measuring what a device does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_alloc::{Error as AllocError, Externals, SetTensor, TensorSet};
use orlop_backend::{Device, DeviceFacts, RunOptions, StoredTensor};
use orlop_graph::{DType, Graph, GraphBuilder, GraphError, Leaf, TensorDesc, TensorId};

use crate::{Error, Machine, Session, SessionOptions};

/// What a device was measured to do; [`Machine::calibrated`] takes it in place of what the device says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Calibration {
    /// Floating-point operations a second in a large product.
    pub flops: f64,
    /// Bytes a second from its own memory.
    pub bytes_per_second: f64,
    /// Seconds to start one step.
    pub launch_seconds: f64,
    /// Bytes a second from and to host memory.
    pub host_bytes_per_second: f64,
    /// Seconds before the first of them.
    pub host_latency_seconds: f64,
}

/// Nodes of the graph that measures the start of steps.
const CHAIN: usize = 64;
/// Most bytes of one tensor.
const LARGEST: u64 = 1 << 26;

/// Measures a device with small graphs, in about as much time as is given: a product, a sum of large vectors, a chain of
/// tiny steps, and transfers. What the device cannot run is left as it says of itself.
///
/// # Errors
/// What the device meets while it runs, and memory that it does not have.
pub fn calibrate(device: &Arc<dyn Device>, time: Duration) -> Result<Calibration, Error> {
    let begin = Instant::now();
    calibrate_by(device, time, &|| begin.elapsed())
}

/// As [`calibrate`], by a clock of the caller's: it tells the time since a moment of its own, and advances whenever it is
/// asked.
///
/// # Errors
/// As [`calibrate`].
pub fn calibrate_by(
    device: &Arc<dyn Device>,
    time: Duration,
    clock: Clock<'_>,
) -> Result<Calibration, Error> {
    let facts = device.facts();
    let share = time / 5;
    let product = largest(clock, share, product, device)?;
    let traffic = largest(clock, share, |n| sum(n * n), device)?;
    let chain = largest(clock, share, |_| tiny_steps(), device)?;
    let (latency, bandwidth) = transfers(clock, device, 2 * share)?;
    let DeviceFacts { flops, bytes_per_second, launch_seconds, .. } = facts;
    Ok(Calibration {
        flops: product.map_or(flops, |Measured { n, seconds, .. }| 2.0 * (n as f64).powi(3) / seconds),
        // Two vectors are read, one is written.
        bytes_per_second: traffic
            .map_or(bytes_per_second, |Measured { n, seconds, .. }| 12.0 * (n * n) as f64 / seconds),
        launch_seconds: chain
            .map_or(launch_seconds, |Measured { steps, seconds, .. }| seconds / steps.max(1) as f64),
        host_bytes_per_second: bandwidth,
        host_latency_seconds: latency,
    })
}

/// Tells the time since a moment of its own.
type Clock<'a> = &'a dyn Fn() -> Duration;

struct Measured {
    n: u64,
    steps: usize,
    /// Of the fastest run.
    seconds: f64,
}

/// Doubles the size until one run takes a good part of the time, and measures the largest. `None` if the device does not
/// run the graph.
fn largest(
    clock: Clock<'_>,
    time: Duration,
    graph: impl Fn(u64) -> Result<(Graph, Vec<TensorId>), GraphError>,
    device: &Arc<dyn Device>,
) -> Result<Option<Measured>, Error> {
    let end = clock() + time;
    let mut best = None;
    for n in (6..=12).map(|power| 1u64 << power) {
        let (graph, leaves) = graph(n).map_err(AllocError::Graph)?;
        if !graph.node_ids().all(|node| {
            Machine::new([Arc::clone(device)])
                .is_ok_and(|m| m.indices().all(|ix| m.can_run(ix, &graph, node)))
        }) {
            return Ok(None);
        }
        let measured = measure(clock, n, graph, &leaves, device, time / 8)?;
        let (seconds, left) = (measured.seconds, end.saturating_sub(clock()).as_secs_f64());
        best = Some(measured);
        let next_bytes = 16 * n * n;
        // The next is up to eight times the work, done at least twice.
        if 16.0 * seconds > left || next_bytes > LARGEST {
            break;
        }
    }
    Ok(best)
}

fn measure(
    clock: Clock<'_>,
    n: u64,
    graph: Graph,
    leaves: &[TensorId],
    device: &Arc<dyn Device>,
    time: Duration,
) -> Result<Measured, Error> {
    let machine = Machine::new([Arc::clone(device)])?;
    let mut session = Session::new(machine, SessionOptions::default())?;
    let plan = session.prepare(&graph, &Externals::new())?;
    for leaf in leaves {
        // Halves, in any width of float: no zeros that could be skipped, nothing that grows.
        let bytes: Vec<u8> = 0.5f32.to_le_bytes().repeat((graph.tensor(*leaf).desc.bytes() / 4) as usize);
        session.set(plan, *leaf, &bytes)?;
    }
    let steps = session.get_prepared(plan)?.planned.steps.iter().map(|steps| steps.steps.len()).sum();
    let options = RunOptions::default();
    session.run(plan, &options)?;
    let seconds = fastest(clock, time, || session.run(plan, &options))?;
    Ok(Measured { n, steps, seconds })
}

/// Seconds of the fastest of several attempts, at least two.
fn fastest<E>(clock: Clock<'_>, time: Duration, mut work: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let end = clock() + time;
    let mut best = Duration::MAX;
    let mut count = 0;
    while count < 2 || clock() < end {
        let start = clock();
        work()?;
        best = best.min(clock().saturating_sub(start));
        count += 1;
    }
    // Clocks have steps.
    Ok(best.as_secs_f64().max(1e-9))
}

fn product(n: u64) -> Result<(Graph, Vec<TensorId>), GraphError> {
    let mut b = GraphBuilder::new();
    let [w, x] =
        ["w", "x"].map(|name| b.leaf(Leaf::Persistent, name, TensorDesc::contiguous(DType::F32, &[n, n])));
    let y = b.mul_mat(w, x);
    b.output(y);
    Ok((b.build()?, vec![w, x]))
}

fn sum(elements: u64) -> Result<(Graph, Vec<TensorId>), GraphError> {
    let mut b = GraphBuilder::new();
    let [w, x] = ["w", "x"]
        .map(|name| b.leaf(Leaf::Persistent, name, TensorDesc::contiguous(DType::F32, &[elements])));
    let y = b.add(w, x);
    b.output(y);
    Ok((b.build()?, vec![w, x]))
}

fn tiny_steps() -> Result<(Graph, Vec<TensorId>), GraphError> {
    let mut b = GraphBuilder::new();
    let x = b.leaf(Leaf::Persistent, "x", TensorDesc::contiguous(DType::F32, &[8]));
    let mut y = x;
    for _ in 0..CHAIN {
        y = b.soft_max(y, None, 1.0, 0.0);
    }
    b.output(y);
    Ok((b.build()?, vec![x]))
}

/// Seconds of latency, and bytes a second, of transfers to the device and back.
fn transfers(clock: Clock<'_>, device: &Arc<dyn Device>, time: Duration) -> Result<(f64, f64), Error> {
    let machine = Machine::new([Arc::clone(device)])?;
    let Some(ix) = machine.indices().next() else { return Err(Error::NoDevices) };
    let stored = |bytes: u64| -> Result<StoredTensor, Error> {
        let desc = TensorDesc::contiguous(DType::I8, &[bytes]).map_err(|source| {
            AllocError::Graph(GraphError::Leaf { name: "transfer".to_owned(), source: source.into() })
        })?;
        let set = TensorSet::allocate(machine.arena(ix), &[SetTensor::new("transfer", desc)])?;
        Ok(set.tensors()[0].clone())
    };
    let there_and_back = |bytes: u64, time: Duration| -> Result<f64, Error> {
        let tensor = stored(bytes)?;
        let mut host = vec![1u8; bytes as usize];
        let seconds = fastest(clock, time, || {
            tensor.set(0, &host)?;
            tensor.get(0, &mut host)
        });
        Ok(seconds.map_err(AllocError::from)? / 2.0)
    };
    let latency = there_and_back(4, time / 10)?;
    let end = clock() + time / 2;
    let mut bandwidth = 4.0 / latency;
    for bytes in (16..=26).map(|power| 1u64 << power) {
        let seconds = there_and_back(bytes, time / 20)?;
        bandwidth = bytes as f64 / (seconds - latency).max(1e-9);
        if clock() > end {
            break;
        }
    }
    Ok((latency, bandwidth))
}
