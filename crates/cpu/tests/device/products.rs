//! Products: activations that several share, and weights in the device's own layout.

use std::sync::Arc;

use orlop_backend::{
    BufferType, Device, LowerOptions, MemoryLayout, NodeQuery, Operand, Precision, Role, Segment, Steps,
    Support,
};
use orlop_cpu::{CpuDevice, CpuOptions, Isa, ThreadPool};
use orlop_graph::{DType, Graph, GraphBuilder, NodeId, Op, TensorDesc};
use orlop_sched::SessionOptions;
use orlop_testkit::{Feeds, PlannedOptions, encode_elements, f32_bytes, run_planned};

use crate::{device, isas, lower, noise, run};

fn lowered(graph: &Graph, precision: Precision) -> Steps {
    let cpu = device(Isa::detect());
    let nodes: Vec<NodeId> = graph.node_ids().collect();
    let (types, escapes) = (vec![None; graph.tensors().len()], vec![false; graph.tensors().len()]);
    let segment = Segment { graph, nodes: &nodes, buffer_types: &types, escapes: &escapes };
    cpu.lower(&segment, &LowerOptions { precision, ..lower(1) }).unwrap()
}

fn rounding(steps: &Steps) -> usize {
    steps.steps.iter().filter(|step| step.kernel == "round in 16 bits").count()
}

#[test]
fn products_of_one_tensor_share_its_rounded_form() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64, 3]);
    let y = b.scale(x, 0.5);
    for (name, dtype) in [("a", DType::Q4_0), ("b", DType::Q8_0), ("c", DType::Q4_1), ("d", DType::F16)] {
        let w = b.weight(name, dtype, &[64, 8]);
        let product = b.mul_mat(w, y);
        b.output(product);
    }
    let graph = b.build().unwrap();
    let steps = lowered(&graph, Precision::Int16);
    assert_eq!(rounding(&steps), 1);
    let shared = steps.temporaries.iter().find(|temporary| temporary.name.ends_with("in 16 bits")).unwrap();
    assert_eq!((shared.first, shared.last), (1, 2));
    assert_eq!(rounding(&lowered(&graph, Precision::F32)), 0);
}

#[test]
fn what_is_written_in_between_is_rounded_again() {
    let mut b = GraphBuilder::new();
    let x = b.state("x", DType::F32, &[64, 3]);
    let rows = b.input("rows", DType::F32, &[64, 1]);
    let indices = b.input("indices", DType::I32, &[1]);
    let w = b.weight("w", DType::Q4_0, &[64, 8]);
    let (first, again) = (b.mul_mat(w, x), b.mul_mat(w, x));
    let written = b.set_rows(x, rows, indices);
    let after = b.mul_mat(w, x);
    for tensor in [first, again, written, after] {
        b.output(tensor);
    }
    assert_eq!(rounding(&lowered(&b.build().unwrap(), Precision::Int16)), 2);
}

/// The device's own memory for weights.
fn packed(device: &CpuDevice) -> Arc<dyn BufferType> {
    Arc::clone(&device.buffer_types(Role::Weight)[0])
}

#[test]
fn repacked_weights_come_first_unless_they_are_not_wanted() {
    let cpu = device(Isa::detect());
    let layouts = |device: &CpuDevice| -> Vec<MemoryLayout> {
        device.buffer_types(Role::Weight).iter().map(|memory| memory.layout()).collect()
    };
    assert_eq!(layouts(&cpu), [MemoryLayout::Private, MemoryLayout::Plain, MemoryLayout::Plain]);
    let options = CpuOptions { repack: false, ..CpuOptions::default() };
    let plain = CpuDevice::with_options(ThreadPool::new(1).unwrap(), &options);
    assert_eq!(layouts(&plain), [MemoryLayout::Plain, MemoryLayout::Plain]);
}

#[test]
fn repacked_weights_are_for_products_and_rows_alone() {
    let cpu = device(Isa::detect());
    let (own, foreign) = (packed(&cpu), packed(&device(Isa::detect())));
    let desc = |dtype, extents: &[u64]| TensorDesc::contiguous(dtype, extents).unwrap();
    let (x, y) = (desc(DType::F32, &[256, 3]), desc(DType::F32, &[8, 3]));
    let (rows, indices) = (desc(DType::F32, &[256, 3]), desc(DType::I32, &[3]));
    let ask = |op: &Op, memory: &Arc<dyn BufferType>, dtype, other: &TensorDesc, result: &TensorDesc| {
        let weights = desc(dtype, &[256, 8]);
        let inputs = [
            Operand { desc: &weights, buffer_type: Some(memory) },
            Operand { desc: other, buffer_type: None },
        ];
        let output = Operand { desc: result, buffer_type: None };
        cpu.supports(&NodeQuery { op, inputs: &inputs, output })
    };
    for dtype in [DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::MXFP4] {
        assert_eq!(ask(&Op::MulMat, &own, dtype, &x, &y), Support::YES);
        assert_eq!(ask(&Op::GetRows, &own, dtype, &indices, &rows), Support::YES);
        assert!(!ask(&Op::MulMat, &foreign, dtype, &x, &y).is_yes());
        assert!(!ask(&Op::OutProd, &own, dtype, &x, &y).is_yes());
    }
    for dtype in [DType::F16, DType::F32, DType::BF16, DType::Q8_K] {
        assert!(!ask(&Op::MulMat, &own, dtype, &x, &y).is_yes(), "{dtype}");
    }
}

/// A product, and rows of the same weights.
fn tied(dtype: DType, tokens: u64) -> (Graph, Feeds) {
    let mut b = GraphBuilder::new();
    let w = b.weight("w", dtype, &[256, 37]);
    let x = b.input("x", DType::F32, &[256, tokens]);
    let ids = b.input("ids", DType::I32, &[3]);
    let (rows, y) = (b.get_rows(w, ids), b.mul_mat(w, x));
    b.output(rows);
    b.output(y);
    let feeds = vec![
        (w, encode_elements(dtype, &noise(256 * 37, 1)).unwrap()),
        (x, f32_bytes(&noise(256 * tokens, 2).iter().map(|x| *x as f32).collect::<Vec<f32>>())),
        (ids, [36i32, 0, 17].iter().flat_map(|id| id.to_le_bytes()).collect()),
    ];
    (b.build().unwrap(), feeds)
}

#[test]
fn repacked_weights_give_the_bytes_that_plain_ones_give() {
    let repacked = DType::all().filter(|dtype| dtype.is_quantized() && orlop_quant::supports_encode(*dtype));
    for dtype in repacked.filter(|dtype| !matches!(dtype, DType::Q8_1 | DType::Q8_K)) {
        for isa in isas() {
            let cpu = device(isa);
            let own = packed(&cpu);
            let cpu: Arc<dyn Device> = cpu;
            for (tokens, threads, precision) in [
                (1, 1, Precision::Int16),
                (4, 2, Precision::Int16),
                (9, 5, Precision::Int16),
                (2, 2, Precision::F32),
            ] {
                let (graph, feeds) = tied(dtype, tokens);
                let lower = LowerOptions { precision, ..lower(threads) };
                let session = SessionOptions { lower, ..SessionOptions::default() };
                let plain = PlannedOptions { session, run: run(threads), weights: None };
                let own = PlannedOptions { weights: Some(Arc::clone(&own)), ..plain.clone() };
                let expected = run_planned(&cpu, &graph, &feeds, &plain).unwrap();
                let got = run_planned(&cpu, &graph, &feeds, &own).unwrap();
                assert!(got == expected, "{dtype} {isa} {tokens} tokens");
            }
        }
    }
}
