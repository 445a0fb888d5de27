use orlop_backend::Device;
use orlop_graph::{DType, GraphBuilder};
use orlop_sched::{Constraints, Error, Machine, Planned, SessionOptions, place_by_rules};
use std::sync::Arc;

use crate::open_machine;
use crate::support::{machine, memory_of, private, two};

#[test]
fn machines_have_devices_of_different_names() {
    assert_eq!(Machine::new([]).unwrap_err(), Error::NoDevices);
    let twice = [private("g").build(), private("g").build()].map(|device| device as Arc<dyn Device>);
    assert_eq!(Machine::new(twice).unwrap_err(), Error::DuplicateDevice("g".to_owned()));
    let (_, machine) = two();
    let known = vec!["g".to_owned(), "c".to_owned()];
    assert_eq!(machine.find("x").unwrap_err(), Error::UnknownDevice { name: "x".to_owned(), known });
}

#[test]
fn an_op_that_no_device_runs_is_refused_with_every_devices_reason() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.custom("magic", &[x], DType::F32, &[4], &[]);
    b.name(y, "y");
    let graph = b.build().unwrap();
    let error = place_by_rules(&graph, &open_machine(2), &Constraints::default()).unwrap_err();
    let Error::Unplaceable { op, tensor, refusals } = error else { panic!("{error:?}") };
    assert_eq!((op.as_str(), tensor.as_str()), ("magic", "y"));
    assert_eq!(refusals, ["r0: no kernel for this op", "r1: no kernel for this op"]);
}

#[test]
fn an_assignment_to_a_device_that_lacks_the_op_is_refused() {
    let devices = [private("g").without(["sum"]).build(), private("c").build()];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sum(x);
    b.name(y, "y");
    let graph = b.build().unwrap();
    let constraints =
        Constraints { assigned: [(y, machine.find("g").unwrap())].into(), ..Constraints::default() };
    let error = place_by_rules(&graph, &machine, &constraints).unwrap_err();
    assert_eq!(error.to_string(), "`y` was assigned to g, which cannot run sum: no kernel for this op");
}

#[test]
fn an_assignment_brings_along_what_shares_the_storage_or_is_refused() {
    let devices = [private("g").without(["sqr"]).build(), private("c").build()];
    let machine = machine(&devices);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4, 8]);
    let rows = b.input("rows", DType::F32, &[4, 1]);
    let at = b.input("at", DType::I32, &[1]);
    let base = b.sqr(x);
    let patched = b.set_rows(base, rows, at);
    let graph = b.build().unwrap();
    let constraints =
        Constraints { assigned: [(patched, machine.find("g").unwrap())].into(), ..Constraints::default() };
    let error = place_by_rules(&graph, &machine, &constraints).unwrap_err();
    assert!(matches!(&error, Error::BadAssignment { op, .. } if op == "sqr"), "{error:?}");
}

#[test]
fn two_devices_cannot_write_into_one_storage_of_private_memory() {
    let (devices, machine) = two();
    let [g, c] = ["g", "c"].map(|name| machine.find(name).unwrap());
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4, 8]);
    let kept = b.persistent("kept", DType::F32, &[4, 8]);
    let rows = b.input("rows", DType::F32, &[4, 1]);
    let at = b.input("at", DType::I32, &[1]);
    let outside = b.set_rows(cache, rows, at);
    let first = b.set_rows(kept, rows, at);
    let second = b.set_rows(first, rows, at);
    b.name(outside, "outside");
    b.name(second, "second");
    let graph = b.build().unwrap();
    let pinned = || [(cache, memory_of(&*devices[0]))].into();
    let conflict = |tensor: &str, storage: &str| Error::ConflictingPin {
        tensor: tensor.to_owned(),
        storage: storage.to_owned(),
        owner: "g".to_owned(),
        device: "c".to_owned(),
    };
    let constraints =
        Constraints { pinned: pinned(), assigned: [(outside, c)].into(), ..Constraints::default() };
    assert_eq!(place_by_rules(&graph, &machine, &constraints).unwrap_err(), conflict("outside", "cache"));
    let constraints = Constraints {
        pinned: pinned(),
        assigned: [(first, g), (second, c)].into(),
        ..Constraints::default()
    };
    assert_eq!(place_by_rules(&graph, &machine, &constraints).unwrap_err(), conflict("second", "kept"));
}

#[test]
fn storage_that_no_device_can_write_is_named() {
    let (_, machine) = two();
    let stranger = private("stranger").build();
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4, 8]);
    let rows = b.input("rows", DType::F32, &[4, 1]);
    let at = b.input("at", DType::I32, &[1]);
    b.set_rows(cache, rows, at);
    let graph = b.build().unwrap();
    let constraints =
        Constraints { pinned: [(cache, memory_of(&*stranger))].into(), ..Constraints::default() };
    assert_eq!(
        place_by_rules(&graph, &machine, &constraints).unwrap_err(),
        Error::StorageOutOfReach {
            op: "set_rows".to_owned(),
            storage: "cache".to_owned(),
            buffer_type: "stranger".to_owned(),
        }
    );
}

#[test]
fn weights_in_memory_that_no_device_reaches_are_brought_over() {
    let (_, machine) = two();
    let stranger = private("stranger").build();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let w = b.weight("w", DType::F32, &[4]);
    let y = b.add(x, w);
    b.output(y);
    let graph = b.build().unwrap();
    let constraints = Constraints { pinned: [(w, memory_of(&*stranger))].into(), ..Constraints::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    assert_eq!(placement.nodes()[0].device.index(), 0);
}

#[test]
fn ids_of_other_graphs_and_machines_are_refused() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let flat = b.reshape(y, &[2, 2]);
    b.output(flat);
    let graph = b.build().unwrap();
    let mut b = GraphBuilder::new();
    let ids: Vec<_> = (0..9).map(|_| b.input("z", DType::F32, &[4])).collect();
    let ninth = open_machine(9).find("r8").unwrap();
    let refused = |constraints: Constraints| place_by_rules(&graph, &machine, &constraints).unwrap_err();
    let g = machine.find("g").unwrap();
    let foreign = Error::ForeignTensor { tensor: ids[8], tensors: 3 };
    assert_eq!(refused(Constraints { assigned: [(ids[8], g)].into(), ..Constraints::default() }), foreign);
    assert_eq!(refused(Constraints { observed: [ids[8]].into(), ..Constraints::default() }), foreign);
    let error = refused(Constraints { assigned: [(y, ninth)].into(), ..Constraints::default() });
    assert!(matches!(&error, Error::UnknownDevice { name, .. } if name == "d8"), "{error:?}");
    for nothing in [x, flat] {
        let error = refused(Constraints { observed: [nothing].into(), ..Constraints::default() });
        assert!(matches!(error, Error::NotComputed { .. }), "{error:?}");
    }
    let constraints = Constraints::default();
    let options = SessionOptions { budgets: [(ninth, 1)].into(), ..SessionOptions::default() };
    let placement = place_by_rules(&graph, &machine, &constraints).unwrap();
    let error = Planned::new(&graph, &machine, &constraints, placement.clone(), &options).unwrap_err();
    assert!(matches!(error, Error::UnknownDevice { .. }), "{error:?}");
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    b.sqr(x);
    let other = b.build().unwrap();
    let error =
        Planned::new(&other, &machine, &constraints, placement, &SessionOptions::default()).unwrap_err();
    assert!(matches!(error, Error::ForeignPlacement { nodes: 1, placed_nodes: 2, .. }), "{error:?}");
}

#[test]
fn a_placement_of_another_graph_never_writes_into_foreign_arenas() {
    let machine = open_machine(2);
    let [first, second] = ["r0", "r1"].map(|name| machine.find(name).unwrap());
    let build = |writes: bool| {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4, 8]);
        let rows = b.input("rows", DType::F32, &[4, 1]);
        let at = b.input("at", DType::I32, &[1]);
        let y = b.sqr(x);
        let z = if writes { b.set_rows(y, rows, at) } else { b.relu(y) };
        (b.build().unwrap(), y, z)
    };
    let (plain, y, z) = build(false);
    let constraints = Constraints { assigned: [(y, first), (z, second)].into(), ..Constraints::default() };
    let placement = place_by_rules(&plain, &machine, &constraints).unwrap();
    let (writing, ..) = build(true);
    let error =
        Planned::new(&writing, &machine, &Constraints::default(), placement, &SessionOptions::default());
    assert!(matches!(error.unwrap_err(), Error::ConflictingPin { .. }));
}
