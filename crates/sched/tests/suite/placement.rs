use std::sync::Arc;

use orlop_backend::{Device, Reason, Support};
use orlop_graph::{DType, Graph, GraphBuilder, NodeId, TensorDesc, TensorId};
use orlop_sched::{
    Constraints, CostOptions, DeviceId, DeviceSpeeds, Machine, MachineFacts, Placement, PlacementReason,
    Propagation, estimate, place_by_cost, place_by_rules, split,
};
use orlop_testkit::Forward;

use crate::open_machine;
use crate::support::{Twin, memory_of, private, two};

/// The places of all nodes that compute something, in order.
fn places(graph: &Graph, placement: &Placement) -> Vec<(usize, PlacementReason)> {
    let computes = graph.node_ids().filter(|id| !graph.node(*id).op.is_view());
    computes.map(|id| (placement.node(id).device.index(), placement.node(id).why)).collect()
}

fn place(graph: &Graph, machine: &Machine, constraints: &Constraints) -> Vec<(usize, PlacementReason)> {
    places(graph, &place_by_rules(graph, machine, constraints).unwrap())
}

#[test]
fn a_graph_without_any_hint_runs_on_the_preferred_device() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let z = b.relu(y);
    b.output(z);
    let graph = b.build().unwrap();
    let machine = open_machine(3);
    let placement = place_by_rules(&graph, &machine, &Constraints::default()).unwrap();
    assert!(placement.nodes().iter().all(|placed| placed.device.index() == 0));
    assert_eq!(places(&graph, &placement)[0].1, PlacementReason::Preferred);
    assert_eq!(placement.leaf(x).map(DeviceId::index), Some(0));
}

#[test]
fn the_callers_choice_comes_first() {
    let (devices, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.add(x, w);
    b.output(y);
    let graph = b.build().unwrap();
    let mut constraints =
        Constraints { pinned: [(w, memory_of(&*devices[0]))].into(), ..Constraints::default() };
    assert_eq!(place(&graph, &machine, &constraints), [(0, PlacementReason::FollowsWeight(w))]);
    constraints.assigned.insert(y, machine.find("c").unwrap());
    assert_eq!(place(&graph, &machine, &constraints), [(1, PlacementReason::Assigned)]);
}

#[test]
fn what_writes_into_storage_runs_where_that_lies() {
    let (devices, machine) = two();
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4, 8]);
    let rows = b.input("rows", DType::F32, &[4, 1]);
    let at = b.input("at", DType::I32, &[1]);
    let written = b.set_rows(cache, rows, at);
    b.output(written);
    let graph = b.build().unwrap();
    for (index, device) in devices.iter().enumerate() {
        let constraints =
            Constraints { pinned: [(cache, memory_of(&**device))].into(), ..Constraints::default() };
        assert_eq!(place(&graph, &machine, &constraints), [(index, PlacementReason::OwnsStorage(cache))]);
    }
}

#[test]
fn what_shares_storage_with_an_assigned_node_goes_with_it() {
    let (devices, machine) = two();
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[4, 8]);
    let rows = b.input("rows", DType::F32, &[4, 1]);
    let at = b.input("at", DType::I32, &[1]);
    let base = b.sqr(w);
    let patched = b.set_rows(base, rows, at);
    b.output(patched);
    let graph = b.build().unwrap();
    let second = machine.find("c").unwrap();
    let constraints = Constraints {
        pinned: [(w, memory_of(&*devices[0]))].into(),
        assigned: [(patched, second)].into(),
        ..Constraints::default()
    };
    assert_eq!(
        place(&graph, &machine, &constraints),
        [(1, PlacementReason::OwnsStorage(base)), (1, PlacementReason::Assigned)]
    );
}

#[test]
fn a_device_that_wants_the_work_has_the_weight_brought_to_it() {
    let devices = [private("g").wants_offload(true).build(), private("c").build()];
    let machine = crate::support::machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.add(x, w);
    b.output(y);
    let graph = b.build().unwrap();
    let constraints = Constraints { pinned: [(w, memory_of(&*devices[1]))].into(), ..Constraints::default() };
    assert_eq!(place(&graph, &machine, &constraints), [(0, PlacementReason::Offloaded(w))]);
}

#[test]
fn of_several_weights_the_first_counts_unless_a_larger_one_lies_on_a_better_device() {
    let (devices, machine) = two();
    let (g, c) = (0, 1);
    let (big, small) = (8, 2);
    let cases = [
        ([(c, big), (g, small)], (c, 0)),
        ([(g, small), (c, big)], (g, 0)),
        ([(c, small), (g, big)], (g, 1)),
        ([(g, big), (c, small)], (g, 0)),
        ([(c, big), (g, big)], (g, 1)),
    ];
    for (weights, (device, by)) in cases {
        let mut b = GraphBuilder::new();
        let leaves = weights.map(|(_, rows)| b.weight("w", DType::F32, &[4, rows]));
        let y = b.mul_mat(leaves[0], leaves[1]);
        b.output(y);
        let graph = b.build().unwrap();
        let pinned = leaves.iter().zip(weights).map(|(leaf, (at, _))| (*leaf, memory_of(&*devices[at])));
        let constraints = Constraints { pinned: pinned.collect(), ..Constraints::default() };
        assert_eq!(
            place(&graph, &machine, &constraints),
            [(device, PlacementReason::FollowsWeight(leaves[by]))],
            "{weights:?}"
        );
    }
}

#[test]
fn nodes_follow_their_producers_and_then_their_readers() {
    let (devices, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let before = b.sqr(x);
    let middle = b.add(before, w);
    let view = b.reshape(middle, &[2, 2]);
    let after = b.relu(view);
    b.output(after);
    let graph = b.build().unwrap();
    let ids: Vec<_> = graph.node_ids().collect();
    for (index, device) in devices.iter().enumerate() {
        let constraints =
            Constraints { pinned: [(w, memory_of(&**device))].into(), ..Constraints::default() };
        let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
        let whys: Vec<PlacementReason> = placement.nodes().iter().map(|placed| placed.why).collect();
        assert!(placement.nodes().iter().all(|placed| placed.device.index() == index));
        assert_eq!(
            whys,
            [
                PlacementReason::FollowsConsumer(ids[1]),
                PlacementReason::FollowsWeight(w),
                PlacementReason::View,
                PlacementReason::FollowsProducer(ids[1])
            ]
        );
    }
}

#[test]
fn chains_of_any_length_follow_a_weight_at_either_end() {
    let (devices, machine) = two();
    for (index, device) in devices.iter().enumerate() {
        let mut b = GraphBuilder::new();
        let w = b.weight("w", DType::F32, &[4]);
        let mut y = b.input("x", DType::F32, &[4]);
        for step in 0..20 {
            y = if step == 10 { b.add(y, w) } else { b.sqr(y) };
        }
        b.output(y);
        let graph = b.build().unwrap();
        let constraints =
            Constraints { pinned: [(w, memory_of(&**device))].into(), ..Constraints::default() };
        let placed: Vec<usize> =
            place(&graph, &machine, &constraints).iter().map(|(device, _)| *device).collect();
        assert_eq!(placed, [index; 20]);
    }
}

#[test]
fn a_more_preferred_device_takes_over_what_lies_in_its_memory() {
    let base = private("base").build();
    let fast: Arc<dyn Device> = Forward::new(base.clone(), Twin { without: &["relu"], ..Twin::new("fast") });
    let machine = Machine::new([fast, base.clone() as Arc<dyn Device>]).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let z = b.scale(y, 2.0);
    b.output(z);
    let graph = b.build().unwrap();
    let assigned = [(y, machine.find("base").unwrap())].into();
    let constraints = Constraints { assigned, ..Constraints::default() };
    let slow = machine.find("base").unwrap();
    assert_eq!(
        place(&graph, &machine, &constraints),
        [(1, PlacementReason::Assigned), (0, PlacementReason::SharesMemory(slow))]
    );
}

#[test]
fn what_no_near_device_runs_goes_where_most_operands_are() {
    let base = private("base").build();
    let lacking: Arc<dyn Device> =
        Forward::new(base.clone(), Twin { without: &["sum"], ..Twin::new("lacking") });
    let other = private("other").build();
    let machine = Machine::new([other as Arc<dyn Device>, lacking, base as Arc<dyn Device>]).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let z = b.sum(y);
    b.output(z);
    let graph = b.build().unwrap();
    let assigned = [(y, machine.find("lacking").unwrap())].into();
    let constraints = Constraints { assigned, ..Constraints::default() };
    assert_eq!(
        place(&graph, &machine, &constraints),
        [(1, PlacementReason::Assigned), (2, PlacementReason::MostOperands)]
    );
}

#[test]
fn what_one_device_alone_runs_goes_there() {
    let devices = [private("g").without(["sum"]).build(), private("c").build()];
    let machine = crate::support::machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sum(x);
    b.output(y);
    let graph = b.build().unwrap();
    assert_eq!(place(&graph, &machine, &Constraints::default()), [(1, PlacementReason::OnlyChoice)]);
}

/// A graph with weights w and c, results b1 and b2 that follow c, and others that follow w or both.
fn braid() -> (Graph, [TensorId; 2], [TensorId; 2]) {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let c = b.weight("c", DType::F32, &[4]);
    let a = b.add(w, x);
    let b1 = b.sqr(c);
    let b2 = b.sqr(b1);
    b.add(w, b1);
    b.add(w, b1);
    b.add(b2, a);
    b.add(w, b1);
    (b.build().unwrap(), [w, c], [b1, b2])
}

#[test]
fn data_stays_where_it_was_computed_if_nodes_follow_their_producers() {
    let (devices, machine) = two();
    let (graph, [w, c], [b1, b2]) = braid();
    let pinned = [(w, memory_of(&*devices[0])), (c, memory_of(&*devices[1]))].into();
    let mut constraints = Constraints { pinned, spread: Propagation::Producers, ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let schedule = split(&graph, &machine, &constraints, &placement);
    let parts: Vec<_> =
        schedule.splits.iter().map(|split| (split.device.index(), split.nodes.len())).collect();
    assert_eq!(parts, [(0, 1), (1, 2), (0, 4)]);
    let inputs: Vec<_> = schedule.splits[2].transfers.iter().map(|copy| schedule[*copy].root).collect();
    assert_eq!(inputs, [b1, b2]);
    // Otherwise, the better device gathers what it can.
    constraints.spread = Propagation::Preferred;
    let devices: Vec<usize> =
        place(&graph, &machine, &constraints).iter().map(|(device, _)| *device).collect();
    assert_eq!(devices, [0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn equal_input_gives_equal_placements_and_leaves_the_graph_alone() {
    let (devices, machine) = two();
    let (graph, [w, c], _) = braid();
    let (rebuilt, ..) = braid();
    let pinned = [(w, memory_of(&*devices[0])), (c, memory_of(&*devices[1]))].into();
    let constraints = Constraints { pinned, ..Constraints::default() };
    let first = place_by_rules(&graph, &machine, &constraints).unwrap();
    for _ in 0..20 {
        assert_eq!(place_by_rules(&graph, &machine, &constraints.clone()).unwrap(), first);
        assert_eq!(place_by_rules(&rebuilt, &machine, &constraints.clone()).unwrap(), first);
    }
    assert_eq!(graph, rebuilt);
}

#[test]
fn the_table_names_every_node_that_computes_with_its_reason() {
    let (devices, machine) = two();
    let (graph, [w, c], _) = braid();
    let pinned = [(w, memory_of(&*devices[0])), (c, memory_of(&*devices[1]))].into();
    let constraints = Constraints { pinned, ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let table = placement.table(&graph, &machine).to_string();
    assert_eq!(table.lines().count(), graph.nodes().len());
    assert!(table.contains("follows weight w") && table.contains("follows weight c"), "{table}");
}

/// Layers of `x + w rms_norm(x) n`, half of their weights on each device: only the sum crosses, its norm does not.
#[test]
fn at_a_cut_through_a_residual_network_one_activation_crosses() {
    for host_last in [false, true] {
        let devices =
            [private("g").build(), private("c").host_visible(host_last).reads_host(host_last).build()];
        let machine = crate::support::machine(&devices);
        let mut b = GraphBuilder::new();
        let mut x = b.input("x", DType::F32, &[8, 2]);
        let mut weights = Vec::new();
        for layer in 0..4 {
            let scale = b.weight(&format!("{layer}.norm"), DType::F32, &[8]);
            let w = b.weight(&format!("{layer}.w"), DType::F32, &[8, 8]);
            weights.extend([(scale, layer / 2), (w, layer / 2)]);
            let norm = b.rms_norm(x, 1e-5);
            let norm = b.mul(norm, scale);
            let y = b.mul_mat(w, norm);
            x = b.add(x, y);
        }
        b.output(x);
        let graph = b.build().unwrap();
        let lies = |(w, at): &(TensorId, usize)| (*w, memory_of(&*devices[*at]));
        let all = Constraints { pinned: weights.iter().map(lies).collect(), ..Constraints::default() };
        let by_rules = place_by_rules(&graph, &machine, &all).unwrap();
        let by_cost = place_by_cost(&graph, &machine, &all, &CostOptions::default()).unwrap();
        for (how, placement) in [("rules", by_rules), ("cost", by_cost)] {
            let schedule = split(&graph, &machine, &all, &placement);
            let names: Vec<&str> = schedule.transfers.iter().map(|copy| copy.name.as_str()).collect();
            assert_eq!((schedule.splits.len(), names.len()), (2, 1), "{how}: {names:?}");
            assert_eq!(schedule.copied_bytes(), 64, "{how}");
        }
    }
}

/// Facts in a table: two devices with memory `0` and `1`, the first without sums.
struct Table {
    devices: [(&'static str, usize); 2],
    speeds: DeviceSpeeds,
}

impl MachineFacts for Table {
    type Memory = usize;

    fn device_count(&self) -> usize {
        self.devices.len()
    }

    fn name(&self, device: DeviceId) -> &str {
        self.devices[device.index()].0
    }

    fn speeds(&self, _: DeviceId) -> &DeviceSpeeds {
        &self.speeds
    }

    fn arena(&self, device: DeviceId) -> &usize {
        &self.devices[device.index()].1
    }

    fn is_same_memory(&self, one: &usize, other: &usize) -> bool {
        one == other
    }

    fn memory_name(&self, memory: &usize) -> String {
        format!("memory {memory}")
    }

    fn is_private(&self, _: &usize) -> bool {
        false
    }

    fn alloc_bytes(&self, _: &usize, desc: &TensorDesc) -> u64 {
        desc.bytes()
    }

    fn supports<'a>(
        &'a self,
        device: DeviceId,
        graph: &Graph,
        node: NodeId,
        lies: &dyn Fn(TensorId) -> Option<&'a usize>,
    ) -> Support {
        let node = graph.node(node);
        let elsewhere =
            |input: &TensorId| lies(*input).is_some_and(|memory| *memory != self.devices[device.index()].1);
        match node.inputs.iter().position(elsewhere) {
            Some(operand) => Support::No(Reason::BufferType { operand, buffer_type: "another".to_owned() }),
            None if device.index() == 0 && node.op.name() == "sum" => Support::No(Reason::Op),
            None => Support::YES,
        }
    }
}

#[test]
fn facts_in_a_table_place_split_and_estimate_a_graph_without_devices() {
    let speeds = DeviceSpeeds::stated(&private("any").build().facts());
    let table = Table { devices: [("fast", 0), ("slow", 1)], speeds };
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let scaled = b.mul(x, w);
    let total = b.sum(scaled);
    b.output(total);
    let graph = b.build().unwrap();
    let constraints = Constraints { pinned: [(w, 0)].into(), ..Constraints::default() };
    let placement = place_by_rules(&graph, &table, &constraints).unwrap();
    let devices: Vec<usize> = placement.nodes().iter().map(|placed| placed.device.index()).collect();
    assert_eq!(devices, [0, 1], "{}", placement.table(&graph, &table));
    let schedule = split(&graph, &table, &constraints, &placement);
    assert_eq!((schedule.splits.len(), schedule.copied_bytes()), (2, 16));
    assert!(estimate(&graph, &table, &schedule).unwrap() > 0.0);
}
