//! One graph on the CPU device, with several numbers of threads, and on the reference device.

use std::sync::{Arc, LazyLock};

use orlop_backend::{
    Bindings, Claim, Claims, Device, DeviceError, LowerOptions, Precision, Role, RunOptions, Segment, Slot,
};
use orlop_cpu::{CpuDevice, Isa, ThreadPool};
use orlop_graph::{
    AccessKind, DType, Graph, GraphBuilder, Leaf, NodeId, Op, Origin, TensorDesc, TensorId, may_overwrite,
};
use orlop_testkit::{
    Random, ReferenceDevice, UnplannedOptions, encode_elements, run_unplanned, run_unplanned_with,
};

static POOL: LazyLock<Arc<ThreadPool>> = LazyLock::new(|| ThreadPool::new(5).expect("five threads"));

/// A graph under construction, and contents of its leaves.
#[derive(Default)]
pub(crate) struct Case {
    pub(crate) b: GraphBuilder,
    feeds: Vec<(TensorId, Vec<u8>)>,
    random: Random,
}

impl Case {
    pub(crate) fn new() -> Case {
        Case::default()
    }

    /// A leaf with these elements.
    pub(crate) fn values(&mut self, dtype: DType, extents: &[u64], values: &[f64]) -> TensorId {
        self.leaf(TensorDesc::contiguous(dtype, extents).expect("a description"), values)
    }

    /// A leaf with elements between -1 and 1.
    pub(crate) fn noise(&mut self, dtype: DType, extents: &[u64]) -> TensorId {
        let values = self.numbers(extents.iter().product());
        self.values(dtype, extents, &values)
    }

    /// As `noise`, with gaps between rows, matrices and so on; NaN lies in them.
    pub(crate) fn gaps(&mut self, dtype: DType, extents: [u64; 4]) -> TensorId {
        let mut desc = TensorDesc::contiguous(dtype, &extents).expect("a description");
        for dim in 1..4 {
            desc.strides[dim] = desc.strides[dim - 1] * extents[dim - 1] + 2 * dtype.block_bytes();
        }
        let values = self.numbers(desc.elements());
        self.leaf(desc, &values)
    }

    /// As `noise`, the innermost stride `gap` elements, rows and so on `pad` elements further apart.
    pub(crate) fn gapped(&mut self, dtype: DType, extents: [u64; 4], gap: u64, pad: u64) -> TensorId {
        let mut desc = TensorDesc::contiguous(dtype, &extents).expect("a description");
        desc.strides[0] = dtype.block_bytes() * gap;
        for dim in 1..4 {
            desc.strides[dim] = desc.strides[dim - 1] * extents[dim - 1] + pad * dtype.block_bytes();
        }
        let values = self.numbers(desc.elements());
        self.leaf(desc, &values)
    }

    /// A node of the graph.
    pub(crate) fn node(&mut self, op: Op, inputs: &[TensorId]) -> TensorId {
        let node = self.b.node(op, inputs);
        self.b.name(node, "result")
    }

    /// As `noise`, elements of a row apart: the transpose of a leaf.
    pub(crate) fn transposed(&mut self, dtype: DType, [a, b, c, d]: [u64; 4]) -> TensorId {
        let x = self.noise(dtype, &[b, a, c, d]);
        self.b.transpose(x)
    }

    pub(crate) fn leaf(&mut self, desc: TensorDesc, values: &[f64]) -> TensorId {
        let packed = encode_elements(desc.dtype, values).expect("values that can be stored");
        let mut bytes = vec![0xff; desc.bytes() as usize];
        let runs = desc.runs();
        for (from, at) in packed.chunks(runs.run_bytes().max(1) as usize).zip(runs) {
            bytes[at as usize..][..from.len()].copy_from_slice(from);
        }
        let id = self.b.leaf(Leaf::State, &format!("x{}", self.feeds.len()), Ok(desc));
        self.feeds.push((id, bytes));
        id
    }

    pub(crate) fn numbers(&mut self, count: u64) -> Vec<f64> {
        (0..count).map(|_| f64::from(self.random.signed())).collect()
    }

    /// Runs the graph everywhere. Results are the same bytes for every number of threads, and within `limit` of the
    /// reference (normalised mean squared error), also in place where that is allowed.
    pub(crate) fn check(self, result: TensorId, limit: f64) {
        self.check_with(Precision::Int16, result, limit);
    }

    /// As `check`, with a precision.
    pub(crate) fn check_with(self, precision: Precision, result: TensorId, limit: f64) {
        let graph = self.b.build().expect("the test's graph is right");
        let expected = reference(&graph, &self.feeds).and_then(|run| run.f64s(result)).expect("reference");
        let options = |threads| UnplannedOptions {
            lower: LowerOptions { max_threads: threads, precision, ..LowerOptions::default() },
            run: RunOptions { threads: Some(threads), ..RunOptions::default() },
            ..UnplannedOptions::default()
        };
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let device: Arc<dyn Device> = CpuDevice::with_isa("cpu", Arc::clone(&POOL), isa);
            let mut first = None;
            for threads in [1, 2, 5] {
                let run = run_unplanned_with(&device, &graph, &self.feeds, &options(threads));
                let run = run.expect("the device runs it");
                close(&run.f64s(result).expect("a result"), &expected, limit, &graph, result);
                let bytes = run.bytes(result).expect("a result");
                assert!(
                    *first.get_or_insert(bytes.clone()) == bytes,
                    "{threads} threads give something else"
                );
            }
            for operand in 0..2 {
                if let Some(bytes) = in_place(&device, &graph, &self.feeds, result, operand) {
                    let op = op(&graph, result).name();
                    assert!(first == Some(bytes), "over operand {operand}, {op} gives something else");
                }
            }
        }
    }

    /// What every instruction set computes on some threads.
    pub(crate) fn results(self, result: TensorId, threads: usize) -> Vec<Vec<f64>> {
        let graph = self.b.build().expect("the test's graph is right");
        let options = UnplannedOptions {
            lower: LowerOptions { max_threads: threads, ..LowerOptions::default() },
            run: RunOptions { threads: Some(threads), ..RunOptions::default() },
            ..UnplannedOptions::default()
        };
        let run = |isa| {
            let device: Arc<dyn Device> = CpuDevice::with_isa("cpu", Arc::clone(&POOL), isa);
            run_unplanned_with(&device, &graph, &self.feeds, &options).and_then(|run| run.f64s(result))
        };
        let isas = Isa::ALL.into_iter().filter(|isa| isa.is_available());
        isas.map(|isa| run(isa).expect("the device runs it")).collect()
    }

    /// As `check`, with the limit that the result's type allows.
    pub(crate) fn check_named(self, name: &str, result: TensorId) {
        let limit = if self.b.desc(result).dtype == DType::F32 { 1e-12 } else { 1e-5 };
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.check(result, limit)));
        assert!(checked.is_ok(), "{name}");
    }

    /// What the device says to a graph that it does not take.
    pub(crate) fn refusal(self) -> DeviceError {
        let graph = self.b.build().expect("the test's graph is right");
        let device: Arc<dyn Device> = CpuDevice::new(Arc::clone(&POOL));
        run_unplanned(&device, &graph, &self.feeds).expect_err("a refusal")
    }

    /// What the device says to data that the reference refuses as well.
    pub(crate) fn error(self) -> DeviceError {
        let graph = self.b.build().expect("the test's graph is right");
        let expected = reference(&graph, &self.feeds).expect_err("an error of the reference");
        let device: Arc<dyn Device> = CpuDevice::new(Arc::clone(&POOL));
        let error = run_unplanned(&device, &graph, &self.feeds).expect_err("an error");
        assert_eq!(error, expected);
        error
    }
}

fn reference(graph: &Graph, feeds: &[(TensorId, Vec<u8>)]) -> Result<orlop_testkit::RunOutputs, DeviceError> {
    let device: Arc<dyn Device> = ReferenceDevice::new();
    run_unplanned(&device, graph, feeds)
}

fn op(graph: &Graph, tensor: TensorId) -> &Op {
    let Origin::Node(node) = graph.tensor(tensor).origin else { panic!("a leaf as a result") };
    &graph.node(node).op
}

fn close(got: &[f64], expected: &[f64], limit: f64, graph: &Graph, result: TensorId) {
    let what = format!("{} {}", op(graph, result).name(), graph.tensor(result).desc);
    assert_eq!(got.len(), expected.len());
    let (mut error, mut norm) = (0.0, 0.0);
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        if expected.is_finite() {
            error += (got - expected) * (got - expected);
            norm += expected * expected;
        } else {
            let same = got == expected || (got.is_nan() && expected.is_nan());
            assert!(same, "{what}: {got} instead of {expected} at {index}");
        }
    }
    assert!(error <= limit * norm, "{what}: error {error:e} of {norm:e}");
}

/// The result's bytes if it is written over an operand, a leaf, on three threads.
fn in_place(
    device: &Arc<dyn Device>,
    graph: &Graph,
    feeds: &[(TensorId, Vec<u8>)],
    result: TensorId,
    operand: usize,
) -> Option<Vec<u8>> {
    let Origin::Node(node) = graph.tensor(result).origin else { return None };
    let node = graph.node(node);
    let over = *node.inputs.get(operand)?;
    let same_layout = graph.tensor(over).desc == graph.tensor(result).desc;
    let one_node = graph.node_ids().count() == 1;
    if !may_overwrite(&node.op, operand) || !same_layout || !one_node || graph.tensor(result).desc.is_empty()
    {
        return None;
    }
    let host = &device.buffer_types(Role::Arena)[0];
    let place = |bytes: u64| Slot { buffer: Arc::clone(host).allocate(bytes).expect("memory"), offset: 0 };
    let mut slots: Vec<Slot> = Vec::new();
    for id in graph.tensor_ids() {
        let slot = match id == result {
            true => slots[over.index()].clone(),
            false => place(graph.tensor(id).desc.bytes()),
        };
        if let Some((_, bytes)) = feeds.iter().find(|(fed, _)| *fed == id) {
            let claim = Claim::take(&*slot.buffer, AccessKind::Write).expect("a claim");
            slot.buffer.write(&claim, 0, bytes).expect("written");
        }
        slots.push(slot);
    }
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let types = vec![Some(Arc::clone(host)); slots.len()];
    let escapes = vec![true; slots.len()];
    let segment = Segment { graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    let options = LowerOptions { max_threads: 3, ..LowerOptions::default() };
    let steps = device.lower(&segment, &options).expect("lowered");
    let temporaries = steps.temporaries.iter().map(|temporary| place(temporary.bytes)).collect();
    let tensors = graph.tensor_ids().zip(slots.iter().cloned()).collect();
    let bindings = Bindings { graph: graph.clone(), tensors, temporaries };
    let program = device.compile(&steps, &bindings).expect("compiled");
    let claims =
        Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind))).expect("claims");
    let mut queue = device.queue().expect("a queue");
    // SAFETY: `submit` asks that other queues do not interfere under the same claims: there are none.
    unsafe { queue.submit(&program, &claims, &RunOptions::default()) }.expect("run");
    drop(claims);
    let slot = &slots[result.index()];
    let claim = Claim::take(&*slot.buffer, AccessKind::Read).expect("a claim");
    let mut bytes = vec![0; graph.tensor(result).desc.bytes() as usize];
    slot.buffer.read(&claim, 0, &mut bytes).expect("read");
    Some(bytes)
}
