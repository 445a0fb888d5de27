//! Models on devices of servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use orlop_backend::Device;
use orlop_graph::{Node, Op};
use orlop_rpc::codec::RpcVersion;
use orlop_rpc::{RpcAccess, RpcDevice, RpcLimits, RpcOptions, RpcServer};
use orlop_sched::Machine;

use crate::made::{MODELS, exact, made};
use crate::support::{cpu, load, nmse, rows};

/// A whole model is one split there: nothing of a token is computed on this machine. Delta rules are, which the protocol lacks.
#[test]
fn architectures_give_the_same_logits_on_a_server() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let limits = RpcLimits::default();
    let server = RpcServer::bind(address, RpcAccess::Local, vec![cpu("cpu", 1)], RpcVersion::V5_1, limits);
    let server = server.unwrap();
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(&|_| ()));
        let address = server.address().unwrap().to_string();
        for name in MODELS.into_iter().step_by(3) {
            let (model, tokens, expected) = made(name);
            let remote = RpcDevice::connect(&[address.parse().unwrap()], &RpcOptions::default()).unwrap();
            let remote: Arc<dyn Device> = Arc::clone(&remote[0]) as _;
            let machine = Machine::new(vec![remote, cpu("cpu", 1)]).unwrap();
            let mut engine = load(&model, &machine, &exact());
            let error = nmse(&rows(&mut engine, &tokens), &expected).sqrt();
            let (graph, planned) = engine.blueprint().planned_token();
            let splits = planned.schedule().splits.len();
            let is_local = |node: &Node| matches!(node.op, Op::DeltaScan);
            let local = graph.nodes().iter().filter(|node| is_local(node)).count();
            let fits = error < 1e-5 && splits <= 1 + 2 * local;
            wrong.extend((!fits).then_some((name, error, splits, local)));
        }
        server.stop();
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
