//! Random graphs over random backends: the results are those of one backend.

use std::collections::HashMap;

use orlop_ggml::{RawTensor, STATUS_SUCCESS, USAGE_WEIGHTS};
use orlop_testkit::Random;

use crate::backends::{result, set_values, sources, values};
use crate::host::{self, at, nbytes};
use crate::rig::Rig;
use crate::schedules::Machine;

const OPS: [&str; 5] = ["ADD", "MUL", "MUL_MAT", "CONCAT", "ROPE"];

struct Case {
    rig: Rig,
    inputs: Vec<*mut RawTensor>,
    weights: Vec<*mut RawTensor>,
}

fn case(random: &mut Random) -> Case {
    let rig = Rig::new();
    let inputs: Vec<_> = (0..1 + random.index(3)).map(|_| rig.input(random.pick(&[4, 64, 100]))).collect();
    let weights: Vec<_> = (0..1 + random.index(5)).map(|_| rig.leaf(random.pick(&[64, 100]))).collect();
    let mut all = inputs.clone();
    for _ in 0..3 + random.index(30) {
        let recent = all.len().min(5);
        let a = all[all.len() - 1 - random.index(recent)];
        let b = random.pick(&all);
        let made = match random.index(8) {
            0 | 1 => rig.map("MUL_MAT", &[a, random.pick(&weights)]),
            2 => {
                let words = nbytes(a) / 4;
                let first = random.index(words);
                rig.view(a, 4 * (1 + random.index(words - first)), 4 * first)
            }
            _ => rig.map(random.pick(&OPS), &[a, b]),
        };
        all.push(made);
        if random.index(4) == 0 {
            host::build_forward_expand(rig.graph, made);
        }
    }
    let last = rig.map("ADD", &[all[all.len() - 1], all[0]]);
    rig.output(last);
    Case { rig, inputs, weights }
}

fn machine(random: &mut Random, weights: &[*mut RawTensor]) -> Machine {
    let names = &["A", "B", "C"][..random.index(4)];
    let mut machine = Machine::new(names, |backends| {
        let cpu = backends[backends.len() - 1].kind.as_ptr().addr();
        let devices = backends.len() - 1;
        for device in &mut backends[..devices] {
            device.lacks = OPS.into_iter().filter(|_| random.index(5) == 0).map(host::op).collect();
            device.takes = if random.index(3) == 0 { vec![host::op("MUL_MAT")] } else { Vec::new() };
            if random.index(4) == 0 {
                device.reads.push(cpu);
            }
        }
    });
    for weight in weights {
        let count = machine.backends.len();
        machine.hold(&[*weight], random.index(count), USAGE_WEIGHTS);
    }
    machine
}

/// The inputs and weights that the graph reads.
fn given(case: &Case) -> impl Iterator<Item = &*mut RawTensor> {
    case.inputs.iter().chain(&case.weights).filter(|tensor| !at(**tensor).data.is_null())
}

/// The values of all nodes, each in memory of its own.
fn expected(case: &Case) -> HashMap<*mut RawTensor, Vec<u32>> {
    let mut known: HashMap<_, _> = given(case).map(|tensor| (*tensor, values(*tensor))).collect();
    for node in host::nodes(case.rig.graph) {
        let read: Vec<Vec<u32>> = sources(node).iter().map(|source| known[source].clone()).collect();
        let computed = result(at(node).op, &read, nbytes(node) / 4).unwrap_or_else(|| {
            let first = at(node).view_offs / 4;
            known[&at(node).view_src][first..first + nbytes(node) / 4].to_vec()
        });
        known.insert(node, computed);
    }
    known
}

#[test]
fn results_are_those_of_one_backend_whatever_the_graph_and_the_backends() {
    let mut splits = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let case = case(&mut random);
        let machine = machine(&mut random, &case.weights);
        let rewritten: Vec<_> = host::nodes(case.rig.graph);
        let original: Vec<_> = rewritten.iter().map(|node| at(*node).src).collect();
        assert!(machine.allocate(&case.rig), "seed {seed}");
        for run in 0..2 {
            for (index, tensor) in given(&case).enumerate() {
                let value = |_| random.index(1 << 16) as u32 + index as u32;
                set_values(*tensor, &(0..nbytes(*tensor) / 4).map(value).collect::<Vec<_>>());
            }
            // The reference reads the graph as it was before copies.
            let with_copies: Vec<_> = rewritten.iter().map(|node| at(*node).src).collect();
            rewritten.iter().zip(&original).for_each(|(node, src)| at(*node).src = *src);
            let expected = expected(&case);
            rewritten.iter().zip(&with_copies).for_each(|(node, src)| at(*node).src = *src);
            assert_eq!(machine.compute(&case.rig), STATUS_SUCCESS, "seed {seed}");
            let last = rewritten[rewritten.len() - 1];
            assert_eq!(values(last), expected[&last], "seed {seed}, run {run}");
        }
        splits += machine.splits();
    }
    assert!(splits > 600, "random graphs have several splits: {splits} in 300");
}
