//! Measuring what a device does.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_alloc::{Error as AllocError, Externals, SetTensor, TensorSet};
use orlop_backend::{BufferType, Device, LowerOptions, NodeQuery, Operand, Role, RunOptions};
use orlop_graph::{
    DType, FlashAttention, Glu, Graph, GraphBuilder, GraphError, Leaf, PagedRows, TensorDesc, TensorId,
};

use crate::{AttentionSpeed, DeviceSpeeds, Error, Machine, PassSpeed, ProductSpeed, Session, SessionOptions};

/// What is measured, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrateOptions {
    /// How graphs are lowered; threads and precision count.
    pub lower: LowerOptions,
    /// Types of weights whose products are measured. Default: those of most files.
    pub types: Vec<DType>,
    /// About as much time as it may take. Default: two seconds.
    pub time: Duration,
    /// Bytes of weights that a product of few rows passes over; at least one and a half times what the device's caches hold. Default:
    /// 128 MiB.
    pub bytes: u64,
    /// Rows and columns of a matrix, more where a device multiplies larger ones at once; attention sees half as many
    /// rows. Default: 2048.
    pub side: u64,
}

impl Default for CalibrateOptions {
    fn default() -> CalibrateOptions {
        CalibrateOptions {
            lower: LowerOptions::default(),
            types: vec![DType::Q4_0, DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::F16],
            time: Duration::from_secs(2),
            bytes: 128 << 20,
            side: 2048,
        }
    }
}

/// Nodes of the graph that measures the start of steps.
const CHAIN: usize = 64;
/// Most bytes of one tensor.
const LARGEST: u64 = 1 << 26;
/// Rows that products are measured with, in the order of how much they say.
const ROWS: [u64; 5] = [1, 64, 512, 4, 16];
/// Up to this many rows, a product's time is mostly that of reading the matrix.
const FEW_ROWS: u64 = 8;
/// Rounds of streams, which together are more than caches hold, and bytes that each of them reads.
const STREAMS: f64 = 16.0;
const STREAM_BYTES: u64 = 4 << 20;
/// Norms of a round, and the width of a token there.
const NORMS: usize = 8;
const NORM_WIDTH: u64 = 2048;
/// The width of a token in gates of many tokens.
const GATE_WIDTH: u64 = 1024;
/// Steps of a kind are repeated until a run takes this many seconds: a run has a start of its own.
const LONG_RUN: f64 = 1e-3;
/// Most repetitions in a run.
const MOST_REPEATED: usize = 64;
/// Rows of a page of a cache.
const PAGE_ROWS: u64 = 64;
/// What may take this many times the time that is left for it is not measured.
const PATIENCE: f64 = 4.0;
/// A byte that makes small positive numbers of all types of weights.
const FILL: u8 = 0x2c;

/// Measures a device with small graphs, in about as much time as is given: products by type and rows, attention, passes over
/// large and small vectors, a chain of tiny steps, and transfers. What the device cannot run is left as it says of itself.
///
/// # Errors
/// What the device meets while it runs, and memory that it does not have.
pub fn calibrate(device: &Arc<dyn Device>, options: &CalibrateOptions) -> Result<DeviceSpeeds, Error> {
    let begin = Instant::now();
    calibrate_by(device, options, &|| begin.elapsed())
}

/// As [`calibrate`], by a clock of the caller's: it tells the time since a moment of its own, and advances whenever it is
/// asked.
///
/// # Errors
/// As [`calibrate`].
pub fn calibrate_by(
    device: &Arc<dyn Device>,
    options: &CalibrateOptions,
    clock: Clock<'_>,
) -> Result<DeviceSpeeds, Error> {
    let stated = DeviceSpeeds::stated(&device.facts());
    let mut probe = Probe { device, options, clock, launch: 0.0, preparing: Cell::default() };
    // Half of the time is for products of weights.
    let share = options.time / 12;
    let chain = probe.largest(share, |_| tiny_steps())?;
    let launch_seconds =
        chain.map_or(stated.launch_seconds, |Measured { steps, seconds, .. }| seconds / steps.max(1) as f64);
    probe.launch = launch_seconds;
    let product = probe.largest(share, product)?;
    let traffic = probe.largest(share, |n| sum(n * n))?;
    let passes = probe.passes(share)?;
    let attention = probe.attention(share)?;
    let (latency, [to, from]) = probe.transfers(share)?;
    let side = product.as_ref().map_or(0, |product| product.n).max(options.side);
    let mut products = Vec::new();
    let each = options.time / 2 / options.types.len().max(1) as u32;
    for dtype in &options.types {
        products.extend(probe.products(*dtype, side, each)?);
    }
    let flops =
        product.map_or(stated.flops, |Measured { n, seconds, .. }| 2.0 * (n as f64).powi(3) / seconds);
    let quantized = products.iter().filter(|point| point.dtype.is_quantized());
    let quantized = quantized.map(|point| 2.0 * point.rows as f64 / point.seconds_per_weight);
    // Two vectors are read, one is written.
    let bytes_per_second = traffic
        .map_or(stated.bytes_per_second, |Measured { n, seconds, .. }| 12.0 * (n * n) as f64 / seconds);
    Ok(DeviceSpeeds {
        flops,
        quantized_flops: quantized.reduce(f64::max).unwrap_or(flops),
        bytes_per_second,
        launch_seconds,
        host_bytes_per_second: to,
        to_host_bytes_per_second: from,
        host_latency_seconds: latency,
        products,
        attention,
        passes,
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

/// A graph to be timed.
struct Trial {
    graph: Graph,
    /// Leaves that get numbers.
    leaves: Vec<TensorId>,
    /// Leaves of integers.
    integers: Vec<(TensorId, Vec<i32>)>,
    externals: Externals,
}

impl Trial {
    fn new(b: GraphBuilder, leaves: Vec<TensorId>) -> Result<Trial, GraphError> {
        Ok(Trial { graph: b.build()?, leaves, integers: Vec::new(), externals: Externals::new() })
    }
}

/// A device that is measured.
struct Probe<'a> {
    device: &'a Arc<dyn Device>,
    options: &'a CalibrateOptions,
    clock: Clock<'a>,
    /// Seconds to start a step.
    launch: f64,
    /// What has gone by until trials had run once: a GPU compiles kernels then. It is not measured.
    preparing: Cell<Duration>,
}

impl Probe<'_> {
    /// The time that measuring has taken.
    fn now(&self) -> Duration {
        (self.clock)().saturating_sub(self.preparing.get())
    }

    fn machine(&self) -> Result<Machine, Error> {
        Machine::new([Arc::clone(self.device)])
    }

    /// Whether the device runs all nodes of a graph.
    fn runs(&self, graph: &Graph) -> Result<bool, Error> {
        let machine = self.machine()?;
        let runs = |node| machine.indices().all(|ix| machine.can_run(ix, graph, node));
        Ok(graph.node_ids().all(runs))
    }

    /// Doubles the size until one run takes a good part of the time, and measures the largest. `None` if the device does not
    /// run the graph.
    fn largest(
        &self,
        time: Duration,
        trial: impl Fn(u64) -> Result<Trial, GraphError>,
    ) -> Result<Option<Measured>, Error> {
        let end = self.now() + time;
        let mut best = None;
        for n in (6..=12).map(|power| 1u64 << power) {
            let trial = trial(n).map_err(AllocError::Graph)?;
            if !self.runs(&trial.graph)? {
                return Ok(None);
            }
            let (steps, seconds) = self.measure(&trial, time / 8)?;
            let left = end.saturating_sub(self.now()).as_secs_f64();
            best = Some(Measured { n, steps, seconds });
            let next_bytes = 16 * n * n;
            // The next is up to eight times the work, done at least twice.
            if 16.0 * seconds > left || next_bytes > LARGEST {
                break;
            }
        }
        Ok(best)
    }

    /// Steps of a graph, and seconds of the fastest run. A run is done when its result can be read: a device of another
    /// machine is only told to begin by then. What a read takes by itself does not count.
    fn measure(&self, trial: &Trial, time: Duration) -> Result<(usize, f64), Error> {
        let options = SessionOptions { lower: self.options.lower.clone(), ..SessionOptions::default() };
        let begin = (self.clock)();
        let mut session = Session::new(self.machine()?, options)?;
        let plan = session.prepare(&trial.graph, &trial.externals)?;
        for leaf in &trial.leaves {
            // Halves, in any width of float: no zeros that could be skipped, nothing that grows.
            let bytes = trial.graph.tensor(*leaf).desc.bytes();
            session.set(plan, *leaf, &0.5f32.to_le_bytes().repeat((bytes / 4) as usize))?;
        }
        for (leaf, integers) in &trial.integers {
            let bytes: Vec<u8> = integers.iter().flat_map(|integer| integer.to_le_bytes()).collect();
            session.set(plan, *leaf, &bytes)?;
        }
        let steps = session.get_prepared(plan)?.planned.steps.iter().map(|steps| steps.steps.len()).sum();
        let options = RunOptions::default();
        let Some(result) = trial.graph.outputs().first() else { return Ok((steps, time.as_secs_f64())) };
        let read = |session: &Session| session.get_part(plan, *result, 0, &mut [0; 4]);
        let mut run = || session.run(plan, &options).and_then(|()| read(&session));
        run()?;
        self.preparing.set(self.preparing.get() + (self.clock)().saturating_sub(begin));
        let seconds = fastest(self.clock, time, run)?;
        let reading = fastest(self.clock, Duration::ZERO, || read(&session))?;
        Ok((steps, beyond(seconds, reading)))
    }

    /// Seconds of one of several equal parts of a graph, without the start of its steps; `None` if the device does not run
    /// it. There are as many parts as make a long run.
    fn one_of(
        &self,
        most: usize,
        time: Duration,
        trial: impl Fn(usize) -> Result<Trial, GraphError>,
    ) -> Result<Option<f64>, Error> {
        let mut count = 1;
        loop {
            let trial = trial(count).map_err(AllocError::Graph)?;
            if !self.runs(&trial.graph)? {
                return Ok(None);
            }
            let (steps, seconds) = self.measure(&trial, time)?;
            let longer = (LONG_RUN / seconds).ceil().min(most as f64) as usize;
            if count > 1 || longer <= 1 {
                return Ok(Some(beyond(seconds, steps as f64 * self.launch) / count as f64));
            }
            count = longer;
        }
    }

    /// Products of matrices of a type in the memory that its kernels read fastest, by rows; none where the device has none.
    fn products(&self, dtype: DType, side: u64, time: Duration) -> Result<Vec<ProductSpeed>, Error> {
        let facts = self.device.facts();
        let bytes = self.options.bytes.max(facts.cache_bytes + facts.cache_bytes / 2);
        let Some(each) = dtype.row_bytes(side * side) else { return Ok(Vec::new()) };
        // They have to get there, and a connection to another machine may be slow.
        let sendable = facts.host_link.bytes_per_second * time.as_secs_f64();
        let bytes = bytes.min(sendable as u64);
        let stored = bytes.div_ceil(each).clamp(1, 256) as usize;
        let build = |rows: u64, count: usize| -> Result<(Trial, Vec<TensorId>), GraphError> {
            let mut b = GraphBuilder::new();
            let desc = TensorDesc::contiguous(DType::F32, &[side, rows]);
            let x = b.leaf(Leaf::Persistent, "x", desc);
            let weights: Vec<TensorId> =
                (0..count).map(|index| b.weight(&format!("w{index}"), dtype, &[side, side])).collect();
            for w in &weights {
                let y = b.mul_mat(*w, x);
                b.output(y);
            }
            Ok((Trial::new(b, vec![x])?, weights))
        };
        let (largest, _) = build(ROWS[2], 1).map_err(AllocError::Graph)?;
        let Some(memory) = self.weight_memory(&largest.graph) else { return Ok(Vec::new()) };
        let desc = TensorDesc::contiguous(dtype, &[side, side]).map_err(bad_desc)?;
        let set: Vec<SetTensor> =
            (0..stored).map(|index| SetTensor::new(format!("w{index}"), desc)).collect();
        let set = TensorSet::allocate(&memory, &set)?;
        let filled = vec![FILL; each as usize];
        set.tensors().iter().try_for_each(|stored| stored.set(0, &filled)).map_err(AllocError::from)?;
        let bound = |rows: u64, count: usize| {
            let (mut trial, weights) = build(rows, count)?;
            for (leaf, stored) in weights.iter().zip(set.tensors()) {
                trial.externals.insert(*leaf, stored.clone());
            }
            Ok(trial)
        };
        let end = self.now() + time;
        let mut points = Vec::new();
        for rows in ROWS {
            // Products of few rows pass over all weights, as no cache holds those of a model.
            let least = if rows <= FEW_ROWS { stored } else { 1 };
            // At most as long as all rows one by one.
            let one = points.first().map_or(0.0, |one: &ProductSpeed| one.seconds_per_weight);
            if one * (least as u64 * side * side * rows) as f64 > PATIENCE * time.as_secs_f64() {
                continue;
            }
            let seconds = self.one_of(stored / least, time / 16, |count| bound(rows, least * count))?;
            let Some(seconds) = seconds else { continue };
            let seconds_per_weight = seconds / (least as u64 * side * side) as f64;
            points.push(ProductSpeed { dtype, rows, seconds_per_weight });
            if self.now() > end {
                break;
            }
        }
        points.sort_by_key(|point| point.rows);
        Ok(points)
    }

    /// The first kind of memory from which the device can do all that a graph does with its weights.
    fn weight_memory(&self, graph: &Graph) -> Option<Arc<dyn BufferType>> {
        let kinds =
            self.device.buffer_types(Role::Weight).iter().chain(self.device.buffer_types(Role::Arena));
        let reads = |memory: &&Arc<dyn BufferType>| {
            graph.nodes().iter().all(|node| {
                let operand = |id: &TensorId| Operand {
                    desc: &graph.tensor(*id).desc,
                    buffer_type: (graph.root_leaf(*id) == Some(Leaf::Weight)).then_some(memory),
                };
                let inputs: Vec<Operand<'_>> = node.inputs.iter().map(operand).collect();
                let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(&node.output) };
                self.device.supports(&query).is_yes()
            })
        };
        kinds.filter(|memory| !memory.is_borrowed()).find(reads).cloned()
    }

    /// Attention of one token and of many to caches of F16.
    fn attention(&self, time: Duration) -> Result<Vec<AttentionSpeed>, Error> {
        let [head, rows, heads, kv_heads] = [64, self.options.side / 2, 16, 4];
        let mut points = Vec::new();
        for tokens in [1, 64, 512] {
            let sizes = AttentionSizes { tokens, head, rows, heads, kv_heads };
            let one = points.last().map_or(0.0, |last: &AttentionSpeed| last.seconds_per_element);
            let elements = tokens * heads * 2 * head * rows;
            if one * elements as f64 > PATIENCE * time.as_secs_f64() {
                continue;
            }
            // Models attend over pages where a device can: its kernels for other caches may be far slower.
            let paged = self.one_of(MOST_REPEATED, time / 4, |count| sizes.trial(true, count))?;
            let plain = || self.one_of(MOST_REPEATED, time / 4, |count| sizes.trial(false, count));
            let Some(seconds) = paged.map_or_else(plain, |paged| Ok(Some(paged)))? else { break };
            points.push(AttentionSpeed { tokens, seconds_per_element: seconds / elements as f64 });
        }
        Ok(points)
    }

    /// Passes over activations: of one token, behind steps that fill caches with other data, and of many.
    fn passes(&self, time: Duration) -> Result<Vec<PassSpeed>, Error> {
        let mut passes = Vec::new();
        let mut rounds = 1;
        let one = loop {
            let with = self.steps_of(|| norms_between_streams(rounds, NORMS), time / 8)?;
            let without = self.steps_of(|| norms_between_streams(rounds, 0), time / 8)?;
            let (Some((steps, seconds)), Some((streams, alone))) = (with, without) else { break None };
            let each = (seconds - alone) / steps.saturating_sub(streams).max(1) as f64;
            // All rounds together are more than caches hold.
            let all = STREAMS * seconds / rounds as f64;
            if rounds as f64 >= STREAMS || PATIENCE * all > time.as_secs_f64() {
                break Some(each);
            }
            rounds = STREAMS as usize;
        };
        passes.extend(one.map(|seconds| PassSpeed { bytes: 3 * 4 * NORM_WIDTH, seconds: seconds.max(1e-9) }));
        for tokens in [128, 1024] {
            let all = passes.last().map_or(0.0, |last| last.seconds);
            if all > time.as_secs_f64() {
                break;
            }
            if let Some(seconds) = self.one_of(MOST_REPEATED, time / 4, |count| gates(tokens, count))? {
                let seconds = self.launch + seconds;
                passes.push(PassSpeed { bytes: 3 * 4 * GATE_WIDTH * tokens, seconds });
            }
        }
        Ok(passes)
    }

    /// Steps of a trial, and seconds of the fastest run; `None` if the device does not run it.
    fn steps_of(
        &self,
        trial: impl FnOnce() -> Result<Trial, GraphError>,
        time: Duration,
    ) -> Result<Option<(usize, f64)>, Error> {
        let trial = trial().map_err(AllocError::Graph)?;
        if !self.runs(&trial.graph)? {
            return Ok(None);
        }
        self.measure(&trial, time).map(Some)
    }

    /// Seconds of latency, and bytes a second of transfers to the device and from it.
    fn transfers(&self, time: Duration) -> Result<(f64, [f64; 2]), Error> {
        let machine = self.machine()?;
        let Some(ix) = machine.indices().next() else { return Err(Error::NoDevices) };
        let clock = self.clock;
        // Bytes that the host has written need not come from the device, and equal ones need not go there. What is written
        // has arrived when something else can be read.
        let both = |bytes: u64, time: Duration| -> Result<[f64; 2], Error> {
            let desc = TensorDesc::contiguous(DType::I8, &[bytes]).map_err(bad_desc)?;
            let tensors = ["written", "read"].map(|name| SetTensor::new(name, desc));
            let set = TensorSet::allocate(machine.arena(ix), &tensors)?;
            let [written, read] = [&set.tensors()[0], &set.tensors()[1]];
            let mut host = vec![1u8; bytes as usize];
            let to = fastest(clock, time, || {
                host[0] = host[0].wrapping_add(1);
                written.set(0, &host).and_then(|()| read.get(0, &mut [0; 4]))
            });
            let to = to.map_err(AllocError::from)?;
            let from = fastest(clock, time, || read.get(0, &mut host)).map_err(AllocError::from)?;
            Ok([to, from])
        };
        let small = both(4, time / 20)?;
        let latency = small[1];
        let end = clock() + time / 2;
        let mut rates = small.map(|seconds| 4.0 / seconds);
        for bytes in (16..=26).map(|power| 1u64 << power) {
            rates = both(bytes, time / 40)?.map(|seconds| bytes as f64 / beyond(seconds, latency));
            if clock() > end {
                break;
            }
        }
        Ok((latency, rates))
    }
}

/// What is left of a time without a part of it, which was measured apart and may vary.
fn beyond(seconds: f64, part: f64) -> f64 {
    (seconds - part).max(seconds / 20.0)
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

/// Attention of some tokens to all rows of a cache.
struct AttentionSizes {
    tokens: u64,
    head: u64,
    rows: u64,
    heads: u64,
    kv_heads: u64,
}

impl AttentionSizes {
    /// Several of them, each with a cache of its own.
    fn trial(&self, paged: bool, count: usize) -> Result<Trial, GraphError> {
        let AttentionSizes { tokens, head, rows, heads, kv_heads } = *self;
        let mut b = GraphBuilder::new();
        let leaf = |b: &mut GraphBuilder, name: &str, dtype, extents: &[u64]| {
            b.leaf(Leaf::Persistent, name, TensorDesc::contiguous(dtype, extents))
        };
        let page_rows = rows.min(PAGE_ROWS);
        let pages = rows / page_rows;
        let seen = paged.then(|| PagedRows {
            kv_len: leaf(&mut b, "kv_len", DType::I32, &[tokens]),
            pages: leaf(&mut b, "pages", DType::I32, &[pages, 1]),
            sequences: leaf(&mut b, "sequences", DType::I32, &[tokens]),
            page_rows: page_rows as u32,
        });
        let mut leaves = Vec::new();
        for index in 0..count {
            let q = leaf(&mut b, &format!("q{index}"), DType::F32, &[head, tokens, heads]);
            let [k, v] = ["k", "v"]
                .map(|name| leaf(&mut b, &format!("{name}{index}"), DType::F16, &[head, rows, kv_heads]));
            leaves.extend([q, k, v]);
            let scaled = FlashAttention::scaled(0.1);
            let y = match seen {
                Some(seen) => b.paged_attention([q, k, v], seen, None, scaled),
                None => b.flash_attention([q, k, v], None, None, None, scaled),
            };
            b.output(y);
        }
        let every = |number: u64| vec![number as i32; tokens as usize];
        let integers = seen.map(|PagedRows { kv_len, pages: table, sequences, .. }| {
            let tables = [every(pages * page_rows), (0..pages as i32).collect(), every(0)];
            [kv_len, table, sequences].into_iter().zip(tables).collect()
        });
        Ok(Trial { integers: integers.unwrap_or_default(), ..Trial::new(b, leaves)? })
    }
}

/// Rounds of a stream and norms of one token, each norm with a weight of its own: what a token's steps between products are.
fn norms_between_streams(rounds: usize, norms: usize) -> Result<Trial, GraphError> {
    let mut b = GraphBuilder::new();
    let mut leaves = Vec::new();
    let mut leaf = |b: &mut GraphBuilder, name: String, elements: u64| {
        let leaf = b.leaf(Leaf::Persistent, &name, TensorDesc::contiguous(DType::F32, &[elements]));
        leaves.push(leaf);
        leaf
    };
    let mut y = leaf(&mut b, "x".to_owned(), NORM_WIDTH);
    for round in 0..rounds {
        let [one, other] = ["a", "b"].map(|name| leaf(&mut b, format!("{name}{round}"), STREAM_BYTES / 8));
        let stream = b.mul(one, other);
        b.output(stream);
        for norm in 0..norms {
            let weight = leaf(&mut b, format!("w{round} {norm}"), NORM_WIDTH);
            y = b.rms_norm(y, 1e-5);
            y = b.mul(y, weight);
        }
    }
    b.output(y);
    Trial::new(b, leaves)
}

/// Gates of many tokens.
fn gates(tokens: u64, count: usize) -> Result<Trial, GraphError> {
    let mut b = GraphBuilder::new();
    let leaf = |b: &mut GraphBuilder, name: &str| {
        b.leaf(Leaf::Persistent, name, TensorDesc::contiguous(DType::F32, &[GATE_WIDTH, tokens]))
    };
    let [x, mut y] = ["x", "y"].map(|name| leaf(&mut b, name));
    let leaves = vec![x, y];
    for _ in 0..count {
        y = b.gated(Glu::Silu, x, y);
    }
    b.output(y);
    Trial::new(b, leaves)
}

fn product(n: u64) -> Result<Trial, GraphError> {
    let mut b = GraphBuilder::new();
    let [w, x] =
        ["w", "x"].map(|name| b.leaf(Leaf::Persistent, name, TensorDesc::contiguous(DType::F32, &[n, n])));
    let y = b.mul_mat(w, x);
    b.output(y);
    Trial::new(b, vec![w, x])
}

fn sum(elements: u64) -> Result<Trial, GraphError> {
    let mut b = GraphBuilder::new();
    let [w, x] = ["w", "x"]
        .map(|name| b.leaf(Leaf::Persistent, name, TensorDesc::contiguous(DType::F32, &[elements])));
    let y = b.add(w, x);
    b.output(y);
    Trial::new(b, vec![w, x])
}

fn tiny_steps() -> Result<Trial, GraphError> {
    let mut b = GraphBuilder::new();
    let x = b.leaf(Leaf::Persistent, "x", TensorDesc::contiguous(DType::F32, &[8]));
    let mut y = x;
    for _ in 0..CHAIN {
        y = b.soft_max(y, None, 1.0, 0.0);
    }
    b.output(y);
    Trial::new(b, vec![x])
}

fn bad_desc(source: orlop_graph::DescError) -> Error {
    let name = "a measured tensor".to_owned();
    AllocError::Graph(GraphError::Leaf { name, source: source.into() }).into()
}
