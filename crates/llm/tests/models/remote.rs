//! Models on devices of servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use orlop_backend::Device;
use orlop_graph::{Node, Op};
use orlop_llm::{CutType, LayerChoice, LayerPlacement, Settings};
use orlop_rpc::codec::RpcVersion;
use orlop_rpc::{RpcAccess, RpcDevice, RpcLimits, RpcOptions, RpcServer};
use orlop_sched::{DeviceId, Machine};
use orlop_testkit::{Disturbance, Relay};

use crate::made::{MODELS, exact, made};
use crate::support::{cpu, load, nmse, rows};

/// How far a model whose layers lie on two servers is from its logits, and bytes that come from the first server.
fn on_two_servers(cut: CutType) -> (f64, u64) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let serve = || {
        let limits = RpcLimits::default();
        RpcServer::bind(address, RpcAccess::Local, vec![cpu("cpu", 1)], RpcVersion::V5_1, limits).unwrap()
    };
    let servers = [serve(), serve()];
    std::thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| server.serve(&|_| ()));
        }
        let relay = Relay::start(servers[0].address().unwrap(), [Disturbance::default(); 2]).unwrap();
        let addresses = [relay.address(), servers[1].address().unwrap()];
        let addresses = addresses.map(|address| address.to_string().parse().unwrap());
        let devices = RpcDevice::connect(&addresses, &RpcOptions::default()).unwrap();
        let machine = Machine::new(devices.into_iter().map(|device| device as Arc<dyn Device>)).unwrap();
        let (model, tokens, expected) = made(MODELS[0]);
        let [first, second]: [DeviceId; 2] = machine.indices().collect::<Vec<_>>().try_into().unwrap();
        let layers = model.config().layers.len();
        let layout = LayerPlacement::all_on(second, layers).with_layers(0..1, 1, first);
        let layout = LayerPlacement { input: first, ..layout };
        let settings = Settings { cut, layout: LayerChoice::Exactly(layout), ..exact() };
        let mut engine = load(&model, &machine, &settings);
        let mut found = rows(&mut engine, &tokens[..1]);
        let before = relay.counts();
        found.extend(rows(&mut engine, &tokens[1..]));
        let bytes = relay.counts().since(&before).received;
        servers.iter().for_each(RpcServer::stop);
        (nmse(&found, &expected).sqrt(), bytes)
    })
}

#[test]
fn an_activation_passes_between_servers_as_halves_on_request() {
    let (exact, bytes) = on_two_servers(CutType::F32);
    let (rounded, fewer) = on_two_servers(CutType::F16);
    assert!(exact < 1e-5 && exact < rounded && rounded < 2e-3, "{exact} {rounded}");
    // Beside the length of the one answer.
    assert_eq!(bytes - 8, 2 * (fewer - 8));
}

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
