use std::collections::HashMap;
use std::sync::Arc;

use orlop_backend::{Buffer, BufferType, Device, DeviceError};
use orlop_graph::{DType, Graph, GraphBuilder, TensorDesc, TensorId};
use orlop_sched::{
    Command, Constraints, DeviceId, Machine, Point, Schedule, SplitId, TransferId, place_by_rules, split,
};
use orlop_testkit::{Forward, ReferenceDevice};

use crate::support::{Twin, memory_of, private, two};

/// The schedule with nodes on the devices of these names, by result.
fn schedule(graph: &Graph, machine: &Machine, constraints: Constraints, on: &[(TensorId, &str)]) -> Schedule {
    let assigned: HashMap<TensorId, DeviceId> =
        on.iter().map(|(id, name)| (*id, machine.find(name).unwrap())).collect();
    let constraints = Constraints { assigned, ..constraints };
    let placement = place_by_rules(graph, machine, &constraints).unwrap();
    split(graph, machine, &constraints, &placement)
}

/// The names of what each split copies.
fn inputs(schedule: &Schedule) -> Vec<Vec<&str>> {
    let name = |copy: &TransferId| schedule[*copy].name.as_str();
    schedule.splits.iter().map(|split| split.transfers.iter().map(name).collect()).collect()
}

fn devices(schedule: &Schedule) -> Vec<usize> {
    schedule.splits.iter().map(|split| split.device.index()).collect()
}

#[test]
fn a_value_is_copied_once_however_often_it_is_read() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    b.name(y, "y");
    let one = b.add(y, y);
    let two = b.mul(one, y);
    let back = b.relu(two);
    let three = b.add(back, y);
    b.output(three);
    let graph = b.build().unwrap();
    let on = [(y, "g"), (one, "c"), (two, "c"), (back, "g"), (three, "c")];
    let schedule = schedule(&graph, &machine, Constraints::default(), &on);
    assert_eq!(devices(&schedule), [0, 1, 0, 1]);
    assert_eq!(inputs(&schedule), [vec![], vec!["c#y"], vec!["g#t3"], vec!["c#t4"]]);
    // The second split of `c` reads the copy that the first made.
    assert_eq!(schedule.splits[3].reads_transfer[&y], schedule.splits[1].transfers[0]);
    assert_eq!(schedule.copied_bytes(), 3 * 16);
}

#[test]
fn bytes_that_were_written_since_are_copied_again() {
    let (_, machine) = two();
    for kind in ["input", "persistent", "node"] {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4, 2]);
        let rows = b.input("rows", DType::F32, &[4, 1]);
        let at = b.input("at", DType::I32, &[1]);
        let kept = match kind {
            "input" => b.input("kept", DType::F32, &[4, 2]),
            "persistent" => b.persistent("kept", DType::F32, &[4, 2]),
            _ => b.dup(x),
        };
        b.name(kept, "kept");
        let before = b.sqr(kept);
        let again = b.relu(kept);
        let written = b.set_rows(kept, rows, at);
        b.name(written, "written");
        let after = b.sqr(written);
        for output in [before, again, after] {
            b.output(output);
        }
        let graph = b.build().unwrap();
        let mut on = vec![(before, "c"), (again, "c"), (written, "g"), (after, "c")];
        if kind == "node" {
            on.push((kept, "g"));
        }
        let schedule = schedule(&graph, &machine, Constraints::default(), &on);
        let copies: Vec<_> = schedule.transfers.iter().filter(|copy| copy.root == kept).collect();
        let names: Vec<_> = copies.iter().map(|copy| copy.name.as_str()).collect();
        assert_eq!(names, ["c#kept", "c#written"], "{kind}");
        // Who writes waits for who copied, and the next copy for the write.
        let writer = schedule.splits.iter().position(|split| {
            split.device.index() == 0 && split.nodes.iter().any(|node| graph.node(*node).output == written)
        });
        let writer = writer.unwrap();
        assert!(schedule.splits[writer].waits.contains(&copies[0].split), "{kind}");
        assert!(schedule[copies[1].split].waits.contains(&SplitId::new(writer)), "{kind}");
    }
}

#[test]
fn a_write_elsewhere_in_the_storage_spares_the_copy() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let kept = b.input("kept", DType::F32, &[4, 2]);
    let patch = b.input("patch", DType::F32, &[4]);
    let low = b.view(kept, [4, 1, 1, 1], [4, 16, 16, 16], 0);
    let high = b.view(kept, [4, 1, 1, 1], [4, 16, 16, 16], 16);
    let before = b.sqr(low);
    let written = b.copy(patch, high);
    let after = b.relu(low);
    for output in [before, written, after] {
        b.output(output);
    }
    let graph = b.build().unwrap();
    let on = [(before, "c"), (written, "g"), (after, "c")];
    let schedule = schedule(&graph, &machine, Constraints::default(), &on);
    let of_low = schedule.transfers.iter().filter(|copy| copy.root == kept && copy.range == (0..16));
    assert_eq!(of_low.count(), 1);
}

#[test]
fn views_never_open_a_split() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let z = b.relu(x);
    let flat = b.reshape(z, &[2, 2]);
    let turned = b.transpose(flat);
    let end = b.sum(turned);
    b.output(end);
    let graph = b.build().unwrap();
    let schedule = schedule(&graph, &machine, Constraints::default(), &[(y, "g"), (z, "c"), (end, "c")]);
    assert_eq!(devices(&schedule), [0, 1]);
    let nodes: usize = schedule.splits.iter().map(|split| split.nodes.len()).sum();
    assert_eq!(nodes, 3);
    assert_eq!(inputs(&schedule)[1], ["c#x"]);
}

#[test]
fn an_empty_graph_has_no_splits() {
    let (_, machine) = two();
    let graph = GraphBuilder::new().build().unwrap();
    let empty = schedule(&graph, &machine, Constraints::default(), &[]);
    assert!(empty.splits.is_empty() && empty.transfers.is_empty());
    assert_eq!(empty.table(&graph, &machine).to_string(), "");
    assert_eq!(empty.split_to_dot(SplitId::new(0), &graph), None);
}

#[test]
fn a_graph_of_views_alone_has_no_splits() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let square = b.reshape(x, &[2, 2]);
    let turned = b.transpose(square);
    b.output(turned);
    let graph = b.build().unwrap();
    let schedule = schedule(&graph, &machine, Constraints::default(), &[]);
    assert!(schedule.splits.is_empty() && schedule.transfers.is_empty());
}

#[test]
fn names_of_copies_are_never_cut() {
    let (_, machine) = two();
    let long = "y".repeat(300);
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    b.name(y, &long);
    let z = b.relu(y);
    b.output(z);
    let graph = b.build().unwrap();
    let schedule = schedule(&graph, &machine, Constraints::default(), &[(y, "g"), (z, "c")]);
    assert_eq!(inputs(&schedule)[1], [format!("c#{long}")]);
}

#[test]
fn no_split_is_empty_when_the_graph_begins_with_a_write() {
    let (devices_of, machine) = two();
    let mut b = GraphBuilder::new();
    let cache = b.state("cache", DType::F32, &[4]);
    let x = b.input("x", DType::F32, &[4]);
    let written = b.copy(x, cache);
    let y = b.sqr(x);
    let z = b.add(y, written);
    b.output(z);
    let graph = b.build().unwrap();
    let constraints =
        Constraints { pinned: [(cache, memory_of(&*devices_of[1]))].into(), ..Constraints::default() };
    let schedule = schedule(&graph, &machine, constraints, &[(y, "g"), (z, "g")]);
    assert_eq!(devices(&schedule), [1, 0]);
    assert!(schedule.splits.iter().all(|split| !split.nodes.is_empty()));
}

#[test]
fn copies_of_weights_are_constant_and_those_of_states_are_not() {
    let (devices_of, machine) = two();
    let mut b = GraphBuilder::new();
    let w = b.weight("w", DType::F32, &[4]);
    let s = b.state("s", DType::F32, &[4]);
    let y = b.add(w, s);
    b.output(y);
    let graph = b.build().unwrap();
    let there = memory_of(&*devices_of[1]);
    let pinned = [(w, there.clone()), (s, there)].into();
    let schedule = schedule(&graph, &machine, Constraints { pinned, ..Constraints::default() }, &[(y, "g")]);
    let copies: Vec<_> = schedule.transfers.iter().map(|copy| (copy.name.as_str(), copy.constant)).collect();
    assert_eq!(copies, [("g#w", true), ("g#s", false)]);
    assert_eq!(schedule.copied_bytes(), 16);
}

#[test]
fn a_split_waits_for_everybody_it_needs() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let first = b.sqr(x);
    let other = b.relu(x);
    let second = b.scale(x, 2.0);
    let more = b.add(other, other);
    let end = b.add(first, second);
    let end = b.add(end, more);
    b.output(end);
    let graph = b.build().unwrap();
    let on = [(first, "g"), (other, "c"), (second, "g"), (more, "c")];
    let ids: Vec<TensorId> = graph.nodes().iter().map(|node| node.output).collect();
    let on = [&on[..], &[(ids[4], "c"), (ids[5], "c")]].concat();
    let schedule = schedule(&graph, &machine, Constraints::default(), &on);
    assert_eq!(devices(&schedule), [0, 1, 0, 1]);
    assert_eq!(schedule.splits[3].waits, [0, 2].map(SplitId::new));
    assert!(schedule.splits[2].waits.is_empty());
}

#[test]
fn one_split_takes_hundreds_of_inputs() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let parts: Vec<TensorId> = (0..300).map(|index| b.scale(x, index as f32)).collect();
    let mut sum = parts[0];
    let mut on: Vec<(TensorId, &str)> = parts.iter().map(|split| (*split, "g")).collect();
    for split in &parts {
        sum = b.add(sum, *split);
        on.push((sum, "c"));
    }
    b.output(sum);
    let graph = b.build().unwrap();
    let schedule = schedule(&graph, &machine, Constraints::default(), &on);
    assert_eq!(schedule.splits.len(), 2);
    assert_eq!(schedule.splits[1].transfers.len(), 300);
}

#[test]
fn schedules_print_as_tables_and_graphs() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    b.name(y, "a \"quoted\" name");
    let z = b.relu(y);
    b.name(z, "z");
    b.output(z);
    let graph = b.build().unwrap();
    let schedule = schedule(&graph, &machine, Constraints::default(), &[(y, "g"), (z, "c")]);
    let table = schedule.table(&graph, &machine).to_string();
    let expected = "split 0 on g: 1 nodes, waits for []\nsplit 1 on c: 1 nodes, waits for [0]\n    \
                    c#a \"quoted\" name <- a \"quoted\" name (16 bytes)\n";
    assert_eq!(table, expected);
    let dot = schedule.split_to_dot(SplitId::new(1), &graph).unwrap();
    assert!(dot.starts_with("digraph split_1 {") && dot.ends_with("}\n"), "{dot}");
    assert!(dot.contains("c#a \\\"quoted\\\" name"), "{dot}");
}

/// Memory that wants a tail behind every tensor.
#[derive(Debug)]
struct Padded;

impl BufferType for Padded {
    fn name(&self) -> &str {
        "padded"
    }

    fn alignment(&self) -> u64 {
        32
    }

    fn alloc_bytes(&self, tensor: &TensorDesc) -> u64 {
        tensor.bytes() + 100
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        Err(DeviceError::OutOfMemory { buffer_type: "padded".to_owned(), bytes })
    }
}

#[test]
fn copies_take_the_room_that_the_memory_asks_for() {
    let twin = Twin { memory: Some([Arc::new(Padded)]), ..Twin::new("padded") };
    let padded = Forward::new(ReferenceDevice::new(), twin);
    let machine = Machine::new([private("g").build() as Arc<dyn Device>, padded]).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let y = b.sqr(x);
    let z = b.relu(y);
    b.output(z);
    let graph = b.build().unwrap();
    let on = [(y, "g"), (z, "padded")];
    let schedule = schedule(&graph, &machine, Constraints::default(), &on);
    assert_eq!((schedule.transfers[0].range.clone(), schedule.transfers[0].room), (0..16, 116));
    assert_eq!(schedule.copied_bytes(), 16);
}

#[test]
fn commands_are_waits_copies_and_splits_in_the_order_of_submission() {
    let (_, machine) = two();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let early = b.sqr(x);
    let far = b.scale(early, 2.0);
    let late = b.scale(far, 3.0);
    let end = b.add(late, early);
    b.output(end);
    let graph = b.build().unwrap();
    let on = [(early, "g"), (far, "c"), (late, "g"), (end, "c")];
    let schedule = schedule(&graph, &machine, Constraints::default(), &on);
    let written: Vec<String> = schedule
        .commands()
        .filter_map(|command| match command {
            Command::Wait { split, on } => Some(format!("{split} waits for {on}")),
            Command::Transfer { split, transfer } => {
                Some(format!("{split} copies {}", schedule[transfer].name))
            }
            Command::Compute { split } => Some(format!("{split} computes")),
            Command::Record { point: Point::Transferred, .. } => None,
            Command::Record { split, point: Point::Ended } => Some(format!("{split} ended")),
        })
        .collect();
    let name = |id: TensorId| graph.tensor(id).name.clone();
    let expected = [
        "0 computes".to_owned(),
        "0 ended".to_owned(),
        "1 waits for 0".to_owned(),
        format!("1 copies c#{}", name(early)),
        "1 computes".to_owned(),
        "1 ended".to_owned(),
        "2 waits for 1".to_owned(),
        format!("2 copies g#{}", name(far)),
        "2 computes".to_owned(),
        "2 ended".to_owned(),
        // It waits for all whose results it reads, though one of them is there already.
        "3 waits for 0".to_owned(),
        "3 waits for 2".to_owned(),
        format!("3 copies c#{}", name(late)),
        "3 computes".to_owned(),
        "3 ended".to_owned(),
    ];
    assert_eq!(written, expected);
}

#[test]
fn products_that_the_next_device_does_not_wait_for_are_a_split_of_their_own() {
    let (_, machine) = two();
    let build = |first_is_needed: bool| {
        let mut b = GraphBuilder::new();
        let x = b.input("x", DType::F32, &[4]);
        let w = b.input("w", DType::F32, &[4, 4]);
        let y = b.sqr(x);
        let own = b.mul_mat(w, y);
        let there = b.relu(if first_is_needed { own } else { y });
        let sum = b.add(own, there);
        b.output(sum);
        let graph = b.build().unwrap();
        let on = [(y, "g"), (own, "g"), (there, "c"), (sum, "g")];
        schedule(&graph, &machine, Constraints::default(), &on)
    };
    let apart = build(false);
    assert_eq!(devices(&apart), [0, 0, 1, 0]);
    // The other device waits for the first split alone, and the sum for the other device.
    let waits =
        |split: usize| apart.splits[split].waits.iter().map(|split| split.index()).collect::<Vec<_>>();
    assert_eq!([waits(1), waits(2), waits(3)], [vec![], vec![0], vec![2]]);
    assert_eq!(devices(&build(true)), [0, 1, 0]);
}
