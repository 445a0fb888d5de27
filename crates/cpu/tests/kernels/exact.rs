//! One graph on the CPU device, with several numbers of threads, and on the reference device: the same bytes in
//! every tensor.

use std::sync::{Arc, LazyLock};

use orlop_backend::{Device, DeviceError, LowerOptions, RunOptions};
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_graph::{DType, Graph, GraphBuilder, Leaf, TensorDesc, TensorId};
use orlop_testkit::{
    Random, ReferenceDevice, RunOutputs, UnplannedOptions, encode_elements, run_unplanned, run_unplanned_with,
};

static POOL: LazyLock<Arc<ThreadPool>> = LazyLock::new(|| ThreadPool::new(5).expect("five threads"));

/// A graph under construction, and contents of its leaves.
#[derive(Default)]
pub(crate) struct Exact {
    pub(crate) b: GraphBuilder,
    feeds: Vec<(TensorId, Vec<u8>)>,
    random: Random,
}

impl Exact {
    pub(crate) fn new() -> Exact {
        Exact::default()
    }

    /// A leaf of any bytes.
    pub(crate) fn bytes(&mut self, dtype: DType, extents: &[u64]) -> TensorId {
        self.strided(TensorDesc::contiguous(dtype, extents).expect("a description"))
    }

    /// A leaf of any bytes, with gaps between rows, matrices and so on.
    pub(crate) fn gaps(&mut self, dtype: DType, extents: [u64; 4]) -> TensorId {
        let mut desc = TensorDesc::contiguous(dtype, &extents).expect("a description");
        for dim in 1..4 {
            let inner = if dim == 1 { desc.row_bytes() } else { desc.strides[dim - 1] * extents[dim - 1] };
            desc.strides[dim] = inner + 2 * dtype.block_bytes();
        }
        self.strided(desc)
    }

    /// A leaf of any bytes and strides.
    pub(crate) fn strided(&mut self, desc: TensorDesc) -> TensorId {
        let bytes = (0..desc.bytes()).map(|_| self.byte()).collect();
        self.fed(desc, bytes)
    }

    pub(crate) fn values(&mut self, dtype: DType, extents: &[u64], values: &[f64]) -> TensorId {
        let desc = TensorDesc::contiguous(dtype, extents).expect("a description");
        self.fed(desc, encode_elements(dtype, values).expect("values that can be stored"))
    }

    /// A leaf of numbers that every type holds more or less.
    pub(crate) fn numbers(&mut self, dtype: DType, extents: &[u64]) -> TensorId {
        let values: Vec<f64> = (0..extents.iter().product())
            .map(|_| f64::from(self.byte()) / 16.0 + f64::from(self.byte()) - 128.0)
            .collect();
        self.values(dtype, extents, &values)
    }

    fn fed(&mut self, desc: TensorDesc, bytes: Vec<u8>) -> TensorId {
        let id = self.b.leaf(Leaf::State, &format!("x{}", self.feeds.len()), Ok(desc));
        self.feeds.push((id, bytes));
        id
    }

    fn byte(&mut self) -> u8 {
        self.random.byte()
    }

    #[track_caller]
    pub(crate) fn check(self) {
        let graph = self.b.build().expect("the test's graph is right");
        let reference: Arc<dyn Device> = ReferenceDevice::new();
        let expected = run_unplanned(&reference, &graph, &self.feeds).expect("the reference runs it");
        for threads in [1, 2, 5] {
            let found = run(threads, &graph, &self.feeds).expect("the device runs it");
            for id in graph.tensor_ids() {
                let (found, expected) = (found.bytes(id), expected.bytes(id));
                let tensor = graph.tensor(id);
                assert!(found == expected, "{threads} threads: {id} {}: {found:?} {expected:?}", tensor.desc);
            }
        }
    }

    /// What the device says to data that the reference refuses in the same words.
    #[track_caller]
    pub(crate) fn error(self) -> DeviceError {
        let graph = self.b.build().expect("the test's graph is right");
        let reference: Arc<dyn Device> = ReferenceDevice::new();
        let expected = run_unplanned(&reference, &graph, &self.feeds).expect_err("an error of the reference");
        for threads in [1, 2, 5] {
            assert_eq!(run(threads, &graph, &self.feeds).expect_err("an error"), expected);
        }
        expected
    }

    /// What the device says to a graph that it refuses.
    #[track_caller]
    pub(crate) fn refusal(self) -> DeviceError {
        let graph = self.b.build().expect("the test's graph is right");
        run(1, &graph, &self.feeds).expect_err("a refusal")
    }
}

fn run(threads: usize, graph: &Graph, feeds: &[(TensorId, Vec<u8>)]) -> Result<RunOutputs, DeviceError> {
    let device: Arc<dyn Device> = CpuDevice::new(Arc::clone(&POOL));
    let options = UnplannedOptions {
        lower: LowerOptions { max_threads: threads, ..LowerOptions::default() },
        run: RunOptions { threads: Some(threads), ..RunOptions::default() },
        ..UnplannedOptions::default()
    };
    run_unplanned_with(&device, graph, feeds, &options)
}
