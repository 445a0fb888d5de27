//! A graph, its feeds, and a run of both on the reference device and in the interpreter.

use std::sync::Arc;

use orlop_backend::{Device, DeviceError};
use orlop_graph::{DType, Graph, GraphBuilder, Op, TensorId};
use orlop_testkit::{Interpreter, ReferenceDevice, RunOutputs, encode_elements, run_unplanned};

/// A graph under construction and the contents of its leaves.
#[derive(Default)]
pub(crate) struct Bench {
    pub(crate) b: GraphBuilder,
    feeds: Vec<(TensorId, Vec<u8>)>,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::default()
    }

    pub(crate) fn leaf(&mut self, dtype: DType, extents: &[u64], values: &[f64]) -> TensorId {
        let bytes = encode_elements(dtype, values).expect("test values have a codec");
        self.raw(dtype, extents, bytes)
    }

    pub(crate) fn raw(&mut self, dtype: DType, extents: &[u64], bytes: Vec<u8>) -> TensorId {
        let name = format!("x{}", self.feeds.len());
        let id = self.b.state(&name, dtype, extents);
        self.feeds.push((id, bytes));
        id
    }

    pub(crate) fn f32(&mut self, extents: &[u64], values: &[f64]) -> TensorId {
        self.leaf(DType::F32, extents, values)
    }

    pub(crate) fn i32(&mut self, extents: &[u64], values: &[f64]) -> TensorId {
        self.leaf(DType::I32, extents, values)
    }

    pub(crate) fn finish(self) -> (Graph, Vec<(TensorId, Vec<u8>)>) {
        (self.b.build().expect("the test's graph is right"), self.feeds)
    }

    /// Runs the graph both ways, which must agree in every tensor.
    pub(crate) fn run(self) -> Result<RunOutputs, DeviceError> {
        let (graph, feeds) = self.finish();
        let device: Arc<dyn Device> = ReferenceDevice::new();
        let outputs = run_unplanned(&device, &graph, &feeds)?;
        let mut interpreter = Interpreter::new(&graph)?;
        for (leaf, bytes) in &feeds {
            interpreter.set(*leaf, bytes)?;
        }
        interpreter.run()?;
        for id in graph.tensor_ids() {
            assert_eq!(outputs.bytes(id)?, interpreter.bytes(id)?, "{}", graph.tensor(id).name);
        }
        Ok(outputs)
    }

    /// Runs the graph and reads one tensor.
    pub(crate) fn read(self, tensor: TensorId) -> Vec<f64> {
        self.run().and_then(|outputs| outputs.f64s(tensor)).expect("the test's graph runs")
    }
}

/// An operand: element type, extents, elements.
pub(crate) type Given<'a> = (DType, &'a [u64], &'a [f64]);

pub(crate) fn f32<'a>(extents: &'a [u64], values: &'a [f64]) -> Given<'a> {
    (DType::F32, extents, values)
}

pub(crate) fn i32<'a>(extents: &'a [u64], values: &'a [f64]) -> Given<'a> {
    (DType::I32, extents, values)
}

pub(crate) fn try_result(op: Op, operands: &[Given<'_>]) -> Result<Vec<f64>, DeviceError> {
    let mut bench = Bench::new();
    let ids: Vec<TensorId> =
        operands.iter().map(|(dtype, extents, values)| bench.leaf(*dtype, extents, values)).collect();
    let result = bench.b.node(op, &ids);
    bench.b.name(result, "y");
    bench.run()?.f64s(result)
}

/// The elements of an op's result.
pub(crate) fn result(op: Op, operands: &[Given<'_>]) -> Vec<f64> {
    try_result(op, operands).expect("the test's graph runs")
}

/// Equal within what storing as F32 may round away.
#[track_caller]
pub(crate) fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found_one, expected_one) in found.iter().zip(expected) {
        let near = (found_one - expected_one).abs() <= 1e-6 * expected_one.abs().max(1.0);
        assert!(near, "{found:?}, expected {expected:?}");
    }
}
