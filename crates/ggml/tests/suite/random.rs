//! Random graphs with several buffer types.

use std::collections::HashMap;
use std::ffi::c_int;

use orlop_ggml::{FLAG_OUTPUT, RawTensor};
use orlop_testkit::Random;

use crate::host::{self, Kind, at, nbytes};
use crate::rig::{Allocator, Rig};

fn kind(random: &mut Random) -> Kind {
    let mut kind = Kind::new(random.pick(&[usize::MAX, usize::MAX, 1024, 4096]), random.pick(&[16, 32, 64]));
    kind.scratch = (host::op("FLASH_ATTN_EXT"), random.pick(&[0, 200]));
    kind
}

/// A graph, and a buffer for some of its tensors.
fn graph(random: &mut Random, kinds: usize) -> (Rig, HashMap<*mut RawTensor, c_int>) {
    let rig = Rig::new();
    let sizes = [4, 64, 100, 256, 400];
    let mut all: Vec<*mut RawTensor> =
        (0..1 + random.index(4)).map(|_| rig.input(random.pick(&sizes))).collect();
    for _ in 0..4 + random.index(50) {
        let recent = all.len().min(6);
        let a = all[all.len() - 1 - random.index(recent)];
        let b = random.pick(&all);
        let same = if nbytes(a) == nbytes(b) { b } else { a };
        let made = match random.index(7) {
            0 => rig.map("SCALE", &[a]),
            1 => rig.map("ADD", &[a, same]),
            2 => rig.map("MUL", &[same, a]),
            3 => rig.op("MUL_MAT", &[a, b], random.pick(&sizes)),
            4 => rig.map("FLASH_ATTN_EXT", &[a, b]),
            5 => rig.op("CONCAT", &[b, a], (nbytes(a) + nbytes(b)).min(1024)),
            _ => {
                let words = nbytes(a) / 4;
                let first = random.index(words);
                rig.view(a, 4 * (1 + random.index(words - first)), 4 * first)
            }
        };
        if random.index(12) == 0 && at(made).view_src.is_null() {
            at(made).flags |= FLAG_OUTPUT;
        }
        all.push(made);
        if random.index(3) == 0 {
            host::build_forward_expand(rig.graph, made);
        }
    }
    rig.output(all[all.len() - 1]);
    let ids = all.iter().map(|tensor| (*tensor, random.index(kinds) as c_int)).collect();
    (rig, ids)
}

#[test]
fn nothing_is_overwritten_before_it_is_read_whatever_the_graph() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let kinds: Vec<Kind> = (0..1 + random.index(3)).map(|_| kind(&mut random)).collect();
        let allocator = Allocator::over(&kinds.iter().collect::<Vec<&Kind>>());
        for _ in 0..3 {
            let (rig, ids) = graph(&mut random, kinds.len());
            let sizes = allocator.measure(&rig, &ids, kinds.len());
            assert!(allocator.reserve_n(&rig, &ids) && allocator.allocate(&rig), "seed {seed}");
            rig.run();
            let has = |(id, bytes): (usize, &usize)| {
                allocator.bytes(id as c_int) >= *bytes || kinds[id].most < usize::MAX
            };
            assert!(sizes.iter().enumerate().all(has), "seed {seed}: {sizes:?}");
        }
        drop(allocator);
        assert!(kinds.iter().all(|kind| kind.live().is_empty()), "seed {seed}");
    }
}
