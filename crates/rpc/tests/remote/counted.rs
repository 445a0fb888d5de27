//! What a run costs on the wire.

use std::sync::Arc;
use std::time::Duration;

use orlop_alloc::Externals;
use orlop_backend::{Device, RunOptions};
use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_graph::{DType, FlashAttention, Graph, GraphBuilder, TensorId};
use orlop_rpc::RpcLimits;
use orlop_rpc::codec::command;
use orlop_sched::{CalibrateOptions, Constraints, Machine, Session, SessionOptions, calibrate};
use orlop_testkit::{Disturbance, Random, Relay};

use crate::support::{Served, devices_at};

const WIDTH: u64 = 32;
const ROWS: u64 = 1024;

/// Layers of attention over a cache, one token at a time.
struct Model {
    graph: Graph,
    x: TensorId,
    row: TensorId,
    seen: TensorId,
    weights: Vec<TensorId>,
    /// Results of each layer, for the choice of their devices.
    layers: Vec<Vec<TensorId>>,
    best: TensorId,
    sum: TensorId,
}

fn model(layers: usize) -> Model {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[WIDTH, 1]);
    let row = b.input("row", DType::I32, &[1]);
    let seen = b.input("seen", DType::I32, &[1]);
    let (mut weights, mut results) = (Vec::new(), Vec::new());
    let mut h = x;
    for layer in 0..layers {
        let mut own = Vec::new();
        let mut weight = |b: &mut GraphBuilder, name: &str| {
            let leaf = b.persistent(&format!("{name}{layer}"), DType::F32, &[WIDTH, WIDTH]);
            weights.push(leaf);
            leaf
        };
        let [wq, wk, wv, wo] = ["q", "k", "v", "o"].map(|name| weight(&mut b, name));
        let caches =
            ["k", "v"].map(|name| b.persistent(&format!("cache {name}{layer}"), DType::F16, &[WIDTH, ROWS]));
        let normed = b.rms_norm(h, 1e-5);
        let [q, k, v] = [wq, wk, wv].map(|weight| b.mul_mat(weight, normed));
        let [k, v] = [(caches[0], k), (caches[1], v)].map(|(cache, rows)| b.set_rows(cache, rows, row));
        let attention = FlashAttention::scaled(0.2);
        let attended = b.flash_attention([q, k, v], Some(seen), None, None, attention);
        let flat = b.reshape(attended, &[WIDTH, 1]);
        let product = b.mul_mat(wo, flat);
        let sum = b.add(product, h);
        own.extend([normed, q, k, v, attended, product, sum]);
        results.push(own);
        h = sum;
    }
    b.output(h);
    let best = b.argmax(h);
    b.output(best);
    results.last_mut().unwrap().push(best);
    Model { graph: b.build().unwrap(), x, row, seen, weights, layers: results, best, sum: h }
}

/// A session, the layers divided among the devices in order.
fn session(model: &Model, devices: Vec<Arc<dyn Device>>) -> (Session, orlop_sched::PlanId) {
    let machine = Machine::new(devices).unwrap();
    let ids: Vec<_> = machine.indices().collect();
    let each = model.layers.len().div_ceil(ids.len());
    let assigned = model.layers.iter().enumerate().flat_map(|(layer, results)| {
        let device = ids[layer / each];
        results.iter().map(move |result| (*result, device))
    });
    let constraints = Constraints { assigned: assigned.collect(), ..Constraints::default() };
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_with(&model.graph, &Externals::default(), &constraints).unwrap();
    let mut random = Random::new(5);
    for weight in &model.weights {
        let values: Vec<f32> =
            (0..WIDTH * WIDTH).map(|_| (random.index(601) as f32 - 300.0) / 1000.0).collect();
        session.set_f32(plan, *weight, &values).unwrap();
    }
    (session, plan)
}

/// Feeds a token; its likeliest successor.
fn feed(session: &mut Session, plan: orlop_sched::PlanId, model: &Model, position: i32) -> i32 {
    let x: Vec<f32> = (0..WIDTH).map(|index| ((index as i32 * 7 + position * 3) % 11) as f32 - 5.0).collect();
    session.set_f32(plan, model.x, &x).unwrap();
    session.set_values(plan, model.row, &[position]).unwrap();
    session.set_values(plan, model.seen, &[position + 1]).unwrap();
    session.run(plan, &RunOptions::default()).unwrap();
    session.get_values::<i32>(plan, model.best).unwrap()[0]
}

fn relayed(served: &[Served]) -> Vec<Relay> {
    let relay = |served: &Served| Relay::start(served.address(), [Disturbance::default(); 2]).unwrap();
    served.iter().map(relay).collect()
}

fn remotes(relays: &[Relay]) -> Vec<Arc<dyn Device>> {
    let addresses: Vec<_> = relays.iter().map(Relay::address).collect();
    devices_at(&addresses).into_iter().map(|device| device as Arc<dyn Device>).collect()
}

#[test]
fn a_token_is_one_round_trip_on_one_remote_and_the_graph_is_repeated() {
    let model = model(3);
    let served = [Served::new(RpcLimits::default())];
    let relays = relayed(&served);
    let (mut session, plan) = session(&model, remotes(&relays));
    let mut before = relays[0].counts();
    for position in 0..6 {
        feed(&mut session, plan, &model, position);
        let counts = relays[0].counts().since(&before);
        before = relays[0].counts();
        let graph = if position == 0 { command::GRAPH_COMPUTE } else { command::GRAPH_RECOMPUTE };
        assert_eq!(counts.commands[usize::from(graph)], 1, "{position}: {counts:?}");
        // Small weights and the answers that memory is clear were waiting for the first token.
        if position > 0 {
            assert_eq!(counts.round_trips, 1, "{position}: {counts:?}");
            // The activation, the row, the length, and the bounds of the mask.
            assert_eq!(counts.commands[usize::from(command::SET_TENSOR)], 4);
            assert_eq!(counts.all_commands(), 6);
            // One number comes back, and its length.
            assert_eq!(counts.received, 12);
            assert!(counts.sent < 1800, "{counts:?}");
        }
    }
    // Beyond the first step of the mask's width the graph is sent once more.
    feed(&mut session, plan, &model, 299);
    let counts = relays[0].counts().since(&before);
    assert_eq!((counts.round_trips, counts.commands[usize::from(command::GRAPH_COMPUTE)]), (1, 1));
}

/// Runs that are only begun would pile up there, and take no time here.
#[test]
fn a_measured_run_is_waited_for() {
    let served = [Served::new(RpcLimits::default())];
    let relays = relayed(&served);
    let device = remotes(&relays).remove(0);
    let before = relays[0].counts();
    let options = CalibrateOptions {
        types: vec![DType::Q8_0],
        time: Duration::from_millis(300),
        bytes: 1 << 16,
        side: 64,
        ..CalibrateOptions::default()
    };
    calibrate(&device, &options).unwrap();
    let counts = relays[0].counts().since(&before);
    let runs =
        [command::GRAPH_COMPUTE, command::GRAPH_RECOMPUTE].map(|number| counts.commands[usize::from(number)]);
    assert!((20..=counts.round_trips).contains(&runs.iter().sum()), "{counts:?}");
    // Nor is it a transfer to write what is there, and to read what was written: 64 KiB pass twice each way at least.
    assert!(counts.received > 2 << 16 && counts.sent > 2 << 16, "{counts:?}");
}

#[test]
fn two_remotes_take_two_round_trips_and_one_activation_crosses() {
    let model = model(2);
    let served = [(); 2].map(|()| Served::new(RpcLimits::default()));
    let relays = relayed(&served);
    let (mut session, plan) = session(&model, remotes(&relays));
    feed(&mut session, plan, &model, 0);
    let before: Vec<_> = relays.iter().map(Relay::counts).collect();
    feed(&mut session, plan, &model, 1);
    let counts: Vec<_> =
        relays.iter().zip(&before).map(|(relay, before)| relay.counts().since(before)).collect();
    assert_eq!([counts[0].round_trips, counts[1].round_trips], [1, 1], "{counts:?}");
    // The residual of the first layer; positions and lengths were read from where the host wrote them.
    assert_eq!(counts[0].received, 8 + 4 * WIDTH);
    assert_eq!(counts[1].received, 12);
}

#[test]
fn remotes_compute_what_this_machine_does() {
    let model = model(2);
    let served = [(); 2].map(|()| Served::new(RpcLimits::default()));
    let relays = relayed(&served);
    let cpu: Arc<dyn Device> = CpuDevice::new(ThreadPool::new(1).unwrap());
    let (mut local, local_plan) = session(&model, vec![cpu]);
    let (mut remote, plan) = session(&model, remotes(&relays));
    for position in [0, 1, 2, 3, 300, 301, 4] {
        let best = feed(&mut local, local_plan, &model, position);
        assert_eq!(feed(&mut remote, plan, &model, position), best, "{position}");
        let expected = local.get_f32(local_plan, model.sum).unwrap();
        let found = remote.get_f32(plan, model.sum).unwrap();
        let error = expected.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error < 1e-3, "{position}: {error}");
    }
}
