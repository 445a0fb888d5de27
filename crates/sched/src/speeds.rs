//! What devices do in a second, and the seconds of nodes that follow from it.

use std::collections::HashMap;

use orlop_backend::DeviceFacts;
use orlop_graph::{DType, Graph, NodeId, Op, TensorId};

/// What a device does in a second. Placement, schedules and predictions are estimated by it: either as the device states it
/// ([`DeviceSpeeds::stated`]) or as it was measured ([`calibrate`](crate::calibrate())).
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceSpeeds {
    /// Floating-point operations a second in a large product of floats.
    pub flops: f64,
    /// Operations a second in a large product with quantized weights.
    pub quantized_flops: f64,
    /// Bytes a second from its own memory.
    pub bytes_per_second: f64,
    /// Seconds to start one step.
    pub launch_seconds: f64,
    /// Bytes a second from host memory.
    pub host_bytes_per_second: f64,
    /// Bytes a second to host memory.
    pub to_host_bytes_per_second: f64,
    /// Seconds before the first of them.
    pub host_latency_seconds: f64,
    /// Products as they were measured. Types that are not among them take what the numbers above say.
    pub products: Vec<ProductSpeed>,
    /// Attention as it was measured, by the tokens of a run.
    pub attention: Vec<AttentionSpeed>,
    /// Steps that pass over activations, as they were measured. Without them, activations are read as weights are.
    pub passes: Vec<PassSpeed>,
}

/// A measured step that passes over activations once.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PassSpeed {
    /// Bytes that it reads and writes.
    pub bytes: u64,
    /// Seconds of it, its start included.
    pub seconds: f64,
}

/// A measured product of a large matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProductSpeed {
    /// Type of the weights.
    pub dtype: DType,
    /// Rows that are multiplied with the matrix.
    pub rows: u64,
    /// Seconds for each weight of the matrix.
    pub seconds_per_weight: f64,
}

/// Measured attention.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AttentionSpeed {
    /// Tokens whose queries attend together.
    pub tokens: u64,
    /// Seconds for each element of K and V that a query head meets.
    pub seconds_per_element: f64,
}

/// What the data of a run is expected to be, as far as time depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpectedData {
    /// Rows that attention sees; `None`: all there are.
    pub seen: Option<u64>,
    /// What the ids of products with chosen matrices choose, where that is known; elsewhere they choose at random.
    pub chosen: HashMap<TensorId, ChosenMatrices>,
}

/// What ids choose among matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChosenMatrices {
    /// Ids that choose one.
    pub choices: f64,
    /// Matrices that one or more of them choose.
    pub matrices: f64,
}

impl ExpectedData {
    /// Attention that sees this many rows.
    pub fn seeing(rows: u64) -> ExpectedData {
        ExpectedData { seen: Some(rows), ..ExpectedData::default() }
    }
}

/// What a node's time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Bottleneck {
    Memory,
    Arithmetic,
}

/// A node's work, without its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeWork {
    pub(crate) seconds: f64,
    pub(crate) bottleneck: Bottleneck,
}

/// What a node reads and computes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Rows times matrices: weights, and rows for each of them.
    Product {
        dtype: DType,
        weights: f64,
        rows: f64,
    },
    /// Elements of K and V that query heads meet, for each token; and bytes of K and V.
    Attention {
        tokens: f64,
        elements: f64,
        bytes: f64,
    },
    Other,
}

impl DeviceSpeeds {
    /// What a device says of itself.
    pub fn stated(facts: &DeviceFacts) -> DeviceSpeeds {
        DeviceSpeeds {
            flops: facts.flops,
            quantized_flops: facts.flops,
            bytes_per_second: facts.bytes_per_second,
            launch_seconds: facts.launch_seconds,
            host_bytes_per_second: facts.host_link.bytes_per_second,
            to_host_bytes_per_second: facts.host_link.bytes_per_second,
            host_latency_seconds: facts.host_link.latency_seconds,
            products: Vec::new(),
            attention: Vec::new(),
            passes: Vec::new(),
        }
    }

    /// Seconds of one node: its start, and the slower of arithmetic and memory. Attention sees all rows of its cache.
    pub fn node_seconds(&self, graph: &Graph, node: NodeId) -> f64 {
        self.launch_seconds + self.work(graph, node, &ExpectedData::default()).seconds
    }

    /// Seconds to bring bytes from host memory.
    pub fn transfer_seconds(&self, bytes: u64) -> f64 {
        self.host_latency_seconds + bytes as f64 / self.host_bytes_per_second.max(1.0)
    }

    /// Seconds to bring bytes to host memory.
    pub fn return_seconds(&self, bytes: u64) -> f64 {
        self.host_latency_seconds + bytes as f64 / self.to_host_bytes_per_second.max(1.0)
    }

    /// A node's work with such data.
    pub(crate) fn work(&self, graph: &Graph, node: NodeId, expected: &ExpectedData) -> NodeWork {
        match kind(graph, node, expected) {
            Kind::Product { dtype, weights, rows } => {
                let bytes = weights * dtype.block_bytes() as f64 / dtype.block_elements() as f64;
                let points = self.products.iter().filter(|point| point.dtype == dtype);
                let points = points.map(|point| (point.rows as f64, point.seconds_per_weight));
                let flops = if dtype.is_quantized() { self.quantized_flops } else { self.flops };
                self.measured(points, rows, weights, bytes, 2.0 * weights * rows / flops.max(1.0))
            }
            Kind::Attention { tokens, elements, bytes } => {
                let points =
                    self.attention.iter().map(|point| (point.tokens as f64, point.seconds_per_element));
                let arithmetic = 2.0 * tokens * elements / self.flops.max(1.0);
                self.measured(points, tokens, tokens * elements, bytes, arithmetic)
            }
            // A view is no step.
            Kind::Other if graph.node(node).op.is_view() => roofline(0.0, 0.0),
            Kind::Other => roofline(
                self.pass_seconds(moved_bytes(graph, node)),
                graph.operations(node) / self.flops.max(1.0),
            ),
        }
    }

    /// Seconds of a pass over activations, without its start.
    pub(crate) fn pass_seconds(&self, bytes: u64) -> f64 {
        let points = self.passes.iter().map(|pass| (pass.bytes as f64, pass.seconds));
        let measured = between(points, bytes as f64).map(|seconds| (seconds - self.launch_seconds).max(0.0));
        measured.unwrap_or(bytes as f64 / self.bytes_per_second.max(1.0))
    }

    /// Seconds to pass over activations that are in caches, without a start.
    pub(crate) fn reread_seconds(&self, bytes: u64) -> f64 {
        let rates = self.passes.iter().map(|pass| pass.bytes as f64 / pass.seconds);
        bytes as f64 / rates.fold(self.bytes_per_second, f64::max).max(1.0)
    }

    /// `count` times what the points say of `at`, or else what the bytes and the arithmetic take.
    fn measured(
        &self,
        points: impl Iterator<Item = (f64, f64)>,
        at: f64,
        count: f64,
        bytes: f64,
        arithmetic: f64,
    ) -> NodeWork {
        let traffic = bytes / self.bytes_per_second.max(1.0);
        match between(points, at) {
            None => roofline(traffic, arithmetic),
            Some(each) => {
                let seconds = each * count;
                let by_memory = 2.0 * traffic >= seconds;
                let bottleneck = if by_memory { Bottleneck::Memory } else { Bottleneck::Arithmetic };
                NodeWork { seconds, bottleneck }
            }
        }
    }
}

/// Whether a node's work is more than passing over its operands: its step's time is the node's.
pub(crate) fn is_heavy(graph: &Graph, node: NodeId) -> bool {
    !matches!(kind(graph, node, &ExpectedData::default()), Kind::Other)
}

fn roofline(traffic: f64, arithmetic: f64) -> NodeWork {
    match traffic >= arithmetic {
        true => NodeWork { seconds: traffic, bottleneck: Bottleneck::Memory },
        false => NodeWork { seconds: arithmetic, bottleneck: Bottleneck::Arithmetic },
    }
}

/// The value at a place between measured points: straight lines between them, the first before all, and beyond the last in
/// proportion to the place. `None` without points.
fn between(points: impl Iterator<Item = (f64, f64)>, at: f64) -> Option<f64> {
    let (mut below, mut above) = (None::<(f64, f64)>, None::<(f64, f64)>);
    for (place, value) in points {
        if place <= at && below.is_none_or(|(best, _)| place > best) {
            below = Some((place, value));
        }
        if place >= at && above.is_none_or(|(best, _)| place < best) {
            above = Some((place, value));
        }
    }
    match (below, above) {
        (None, None) => None,
        (None, Some((_, value))) => Some(value),
        (Some((place, value)), None) => Some(value * at / place.max(1.0)),
        (Some((start, low)), Some((end, high))) => {
            let share = if end > start { (at - start) / (end - start) } else { 0.0 };
            Some(low + share * (high - low))
        }
    }
}

fn kind(graph: &Graph, node: NodeId, expected: &ExpectedData) -> Kind {
    let data = graph.node(node);
    let operand = |index: usize| &graph.tensor(data.inputs[index]).desc;
    match &data.op {
        Op::MulMat => {
            let (weights, rows) = (operand(0), operand(1));
            let outer = weights.extents[2] * weights.extents[3];
            let all: u64 = rows.extents[1..].iter().product();
            let rows = all as f64 / outer.max(1) as f64;
            Kind::Product { dtype: weights.dtype, weights: weights.elements() as f64, rows }
        }
        Op::MulMatId | Op::MulMatSome => {
            let matrices = operand(0);
            let count = matrices.extents[2].max(1) as f64;
            let ids = operand(2).elements() as f64;
            let at_random = || ChosenMatrices {
                choices: ids,
                matrices: (count * (1.0 - (1.0 - 1.0 / count).powf(ids))).clamp(1.0f64.min(ids), count),
            };
            let known = expected.chosen.get(&data.inputs[2]).copied();
            let ChosenMatrices { choices, matrices: chosen } = known.unwrap_or_else(at_random);
            let weights = matrices.elements() as f64 / count * chosen;
            Kind::Product { dtype: matrices.dtype, weights, rows: choices / chosen.max(f64::MIN_POSITIVE) }
        }
        Op::FlashAttention(params) => {
            let (q, k, v) = (operand(0), operand(1), operand(2));
            let rows = expected.seen.map_or(k.extents[1], |seen| seen.min(k.extents[1]));
            let rows = if params.window == 0 { rows } else { rows.min(params.window.into()) } as f64;
            let [row, heads] = [k.extents[0] + v.extents[0], q.extents[2]].map(|extent| extent as f64);
            let stored = [k, v].map(|desc| desc.bytes() as f64 / desc.extents[1].max(1) as f64);
            let (sequences, tokens) = (q.extents[3] as f64, q.extents[1] as f64);
            Kind::Attention {
                tokens,
                elements: sequences * heads * row * rows,
                bytes: rows * stored.iter().sum::<f64>(),
            }
        }
        _ => Kind::Other,
    }
}

/// Bytes that a node reads and writes.
fn moved_bytes(graph: &Graph, node: NodeId) -> u64 {
    let data = graph.node(node);
    let bytes = |id| graph.tensor(id).desc.bytes();
    match &data.op {
        op if op.is_view() => 0,
        // Of a table, the rows that are looked up; of a destination, those that are written.
        Op::GetRows => 2 * bytes(data.output),
        Op::SetRows => 2 * bytes(data.inputs[1]),
        _ => data.inputs.iter().chain([&data.output]).map(|id| bytes(*id)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use orlop_graph::GraphBuilder;

    use super::*;

    fn speeds() -> DeviceSpeeds {
        DeviceSpeeds {
            flops: 1e9,
            quantized_flops: 4e9,
            bytes_per_second: 1e9,
            launch_seconds: 0.0,
            host_bytes_per_second: 1e8,
            to_host_bytes_per_second: 5e7,
            host_latency_seconds: 1e-3,
            products: Vec::new(),
            attention: Vec::new(),
            passes: Vec::new(),
        }
    }

    fn product(dtype: DType, rows: u64) -> Graph {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", dtype, &[256, 64]);
        let x = b.input("x", DType::F32, &[256, rows]);
        let y = b.mul_mat(w, x);
        b.output(y);
        b.build().unwrap()
    }

    fn seconds(speeds: &DeviceSpeeds, graph: &Graph) -> f64 {
        speeds.node_seconds(graph, graph.node_ids().last().unwrap())
    }

    #[test]
    fn values_between_points_lie_on_straight_lines_and_grow_beyond_the_last() {
        let points = [(8.0, 4.0), (1.0, 1.0), (4.0, 2.0)];
        let at = |place| between(points.into_iter(), place).unwrap();
        assert_eq!([0.5, 1.0, 2.5, 4.0, 6.0, 8.0, 16.0].map(at), [1.0, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0]);
        assert_eq!(between(std::iter::empty(), 1.0), None);
    }

    #[test]
    fn a_product_that_was_measured_takes_what_was_measured() {
        let point = |rows, seconds_per_weight| ProductSpeed { dtype: DType::Q8_0, rows, seconds_per_weight };
        let measured = DeviceSpeeds { products: vec![point(1, 1e-9), point(3, 2e-9)], ..speeds() };
        let weights = 256.0 * 64.0;
        for (rows, each) in [(1, 1e-9), (2, 1.5e-9), (6, 4e-9)] {
            let found = seconds(&measured, &product(DType::Q8_0, rows));
            assert!((found - weights * each).abs() < 1e-12, "{rows}: {found}");
        }
        // Without points: 8.5 bits a weight at 1 GB/s, or two operations a weight and row at 4 G a second.
        let by_bytes = seconds(&measured, &product(DType::F16, 1));
        assert!((by_bytes - weights * 2e-9).abs() < 1e-12, "{by_bytes}");
        let by_flops = seconds(&speeds(), &product(DType::Q8_0, 64));
        assert!((by_flops - weights * 128.0 / 4e9).abs() < 1e-12, "{by_flops}");
    }

    #[test]
    fn passes_take_what_was_measured_and_never_less_than_the_smallest() {
        let pass = |bytes, seconds| PassSpeed { bytes, seconds };
        let passes = vec![pass(1 << 10, 3e-6), pass(1 << 20, 1e-4)];
        let measured = DeviceSpeeds { launch_seconds: 1e-6, passes, ..speeds() };
        let seconds = [8, 1 << 10, 1 << 20, 1 << 21].map(|bytes| 1e6 * measured.pass_seconds(bytes));
        for (found, expected) in seconds.into_iter().zip([2.0, 2.0, 99.0, 199.0]) {
            assert!((found - expected).abs() < 1e-6, "{seconds:?}");
        }
        assert_eq!(speeds().pass_seconds(1000), 1e-6);
    }

    #[test]
    fn experts_are_read_as_far_as_tokens_choose_them() {
        let graph = |tokens| {
            let mut b = GraphBuilder::new();
            let w = b.weight("w", DType::F32, &[32, 16, 64]);
            let x = b.input("x", DType::F32, &[32, 1, tokens]);
            let ids = b.input("ids", DType::I32, &[4, tokens]);
            let y = b.mul_mat_id(w, x, ids);
            b.output(y);
            b.build().unwrap()
        };
        let one_expert = 32.0 * 16.0 * 4.0 / 1e9;
        let one_token = seconds(&speeds(), &graph(1)) / one_expert;
        assert!(3.5 < one_token && one_token <= 4.0, "{one_token} experts");
        let many = seconds(&speeds(), &graph(60)) / one_expert;
        assert!(60.0 < many && many <= 240.0, "{many}");
        // What is known of the choices counts instead.
        let graph = graph(1);
        let node = graph.node_ids().last().unwrap();
        let chosen = ChosenMatrices { choices: 3.0, matrices: 1.5 };
        let expected =
            ExpectedData { chosen: [(graph.node(node).inputs[2], chosen)].into(), ..Default::default() };
        let known = speeds().work(&graph, node, &expected).seconds / one_expert;
        assert!((known - 1.5).abs() < 1e-9, "{known}");
    }

    #[test]
    fn attention_takes_time_for_the_rows_that_are_seen() {
        let graph = |window| {
            let mut b = GraphBuilder::new();
            let q = b.input("q", DType::F32, &[64, 1, 4]);
            let [k, v] = ["k", "v"].map(|name| b.state(name, DType::F16, &[64, 1000, 2]));
            let params = orlop_graph::FlashAttention { window, ..orlop_graph::FlashAttention::scaled(1.0) };
            let y = b.flash_attention([q, k, v], None, None, None, params);
            b.output(y);
            b.build().unwrap()
        };
        let work = |window, seen| {
            let graph = graph(window);
            let node = graph.node_ids().last().unwrap();
            speeds().work(&graph, node, &ExpectedData { seen, ..ExpectedData::default() }).seconds
        };
        let row = 2.0 * (2.0 * 4.0 * 64.0 * 2.0) / 1e9 / 2.0;
        for (window, seen, rows) in
            [(0, None, 1000.0), (0, Some(100), 100.0), (0, Some(5000), 1000.0), (10, None, 10.0)]
        {
            let found = work(window, seen) / rows;
            assert!((found - row).abs() < 0.01 * row, "{window} {seen:?}: {found} {row}");
        }
    }
}
