use std::sync::Arc;

use orlop_backend::Device;
use orlop_graph::{DType, GraphBuilder};
use orlop_rpc::RpcLimits;
use orlop_rpc::codec::Dialect;
use orlop_testkit::{f32_bytes, run_unplanned};

use crate::support::{Served, device_at};

/// Greetings, numbers of ops, answers that are left out and the flag of SET_TENSOR: a client finds the version by itself.
#[test]
fn every_version_of_the_table_is_spoken_by_both_sides() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8]);
    let pads = b.node(orlop_graph::Op::Pad { before: [0; 4], after: [2, 0, 0, 0] }, &[x]);
    let silu = b.silu(pads);
    let y = b.scale(silu, 2.0);
    let graph = b.build().unwrap();
    let input = f32_bytes(&[1.0, -1.0, 2.0, 0.5, 3.0, 0.0, -2.0, 4.0]);
    let cpu: Arc<dyn Device> = orlop_testkit::ReferenceDevice::new();
    let expected = run_unplanned(&cpu, &graph, &[(x, input.clone())]).unwrap().f32s(y).unwrap();
    for dialect in Dialect::all() {
        let served = Served::speaking(dialect.version, RpcLimits::default());
        let device: Arc<dyn Device> = device_at(served.address());
        assert_eq!(device.facts().description, format!("ggml RPC {}", dialect.version));
        let found = run_unplanned(&device, &graph, &[(x, input.clone())]).unwrap().f32s(y).unwrap();
        let error = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-5, "{}: {found:?}", dialect.version);
        // Servers before 4.0 refuse the first greeting, and take the second.
        let refusals = served.refusals().len();
        assert_eq!(refusals, usize::from(!dialect.capabilities), "{}", dialect.version);
    }
}
