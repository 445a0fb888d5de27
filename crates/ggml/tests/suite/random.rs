//! Graphs that nobody would write, over several kinds of memory.

use std::collections::HashMap;
use std::ffi::c_int;

use orlop_ggml::{FLAG_OUTPUT, RawTensor};

use crate::host::{self, Kind, at, nbytes};
use crate::rig::{Allocator, Rig};

/// Numbers that look like chance and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

fn kind(dice: &mut Dice) -> Kind {
    let mut kind = Kind::new(dice.pick(&[usize::MAX, usize::MAX, 1024, 4096]), dice.pick(&[16, 32, 64]));
    kind.scratch = (host::op("FLASH_ATTN_EXT"), dice.pick(&[0, 200]));
    kind
}

/// A graph, and a buffer for some of its tensors.
fn graph(dice: &mut Dice, kinds: usize) -> (Rig, HashMap<*mut RawTensor, c_int>) {
    let rig = Rig::new();
    let sizes = [4, 64, 100, 256, 400];
    let mut all: Vec<*mut RawTensor> = (0..1 + dice.below(4)).map(|_| rig.input(dice.pick(&sizes))).collect();
    for _ in 0..4 + dice.below(50) {
        let recent = all.len().min(6);
        let a = all[all.len() - 1 - dice.below(recent)];
        let b = dice.pick(&all);
        let same = if nbytes(a) == nbytes(b) { b } else { a };
        let made = match dice.below(7) {
            0 => rig.map("SCALE", &[a]),
            1 => rig.map("ADD", &[a, same]),
            2 => rig.map("MUL", &[same, a]),
            3 => rig.op("MUL_MAT", &[a, b], dice.pick(&sizes)),
            4 => rig.map("FLASH_ATTN_EXT", &[a, b]),
            5 => rig.op("CONCAT", &[b, a], (nbytes(a) + nbytes(b)).min(1024)),
            _ => {
                let words = nbytes(a) / 4;
                let first = dice.below(words);
                rig.view(a, 4 * (1 + dice.below(words - first)), 4 * first)
            }
        };
        if dice.below(12) == 0 && at(made).view_src.is_null() {
            at(made).flags |= FLAG_OUTPUT;
        }
        all.push(made);
        if dice.below(3) == 0 {
            host::build_forward_expand(rig.graph, made);
        }
    }
    rig.output(all[all.len() - 1]);
    let ids = all.iter().map(|tensor| (*tensor, dice.below(kinds) as c_int)).collect();
    (rig, ids)
}

#[test]
fn nothing_is_overwritten_before_it_is_read_whatever_the_graph() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let kinds: Vec<Kind> = (0..1 + dice.below(3)).map(|_| kind(&mut dice)).collect();
        let allocator = Allocator::over(&kinds.iter().collect::<Vec<&Kind>>());
        for _ in 0..3 {
            let (rig, ids) = graph(&mut dice, kinds.len());
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
