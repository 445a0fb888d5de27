use orlop_plan::{ChunkOffset, ChunkRule, FreeList, FreeListError};
use proptest::prelude::*;

use crate::model::Model;

#[derive(Clone, Debug)]
enum Op {
    Allocate(u64),
    /// Release the live range at this position, modulo their number.
    Release(usize),
    /// Shrink one to this percentage.
    Shrink(usize, u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        5 => (0u64..300).prop_map(Op::Allocate),
        4 => any::<usize>().prop_map(Op::Release),
        1 => (any::<usize>(), 0u64..=100).prop_map(|(which, percent)| Op::Shrink(which, percent)),
    ];
    prop::collection::vec(op, 1..150)
}

fn aligns() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![1u64, 8, 32])
}

/// Runs the same calls through both and compares their visible state.
fn compare(mut list: FreeList, mut model: Model, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut live: Vec<(ChunkOffset, u64)> = vec![];
    for op in ops {
        match *op {
            Op::Allocate(size) => {
                let expected = model.allocate(size);
                match list.allocate(size) {
                    Ok(place) => {
                        prop_assert_eq!(Some(place), expected);
                        live.push((place, size));
                    }
                    Err(FreeListError::OutOfSpace { needed, .. }) => {
                        prop_assert_eq!((expected, needed), (None, model.pad(size)));
                    }
                    Err(other) => prop_assert!(false, "{}", other),
                }
            }
            Op::Release(which) if !live.is_empty() => {
                let (place, size) = live.swap_remove(which % live.len());
                prop_assert_eq!(list.release(place, size), Ok(()));
                model.release(place, size);
                if size > 0 {
                    prop_assert!(list.release(place, size).is_err());
                }
            }
            Op::Shrink(which, percent) if !live.is_empty() => {
                let which = which % live.len();
                let (place, old) = live[which];
                let new = old * percent / 100;
                prop_assert_eq!(list.shrink(place, old, new), Ok(()));
                let (kept, held) = (model.pad(new), model.pad(old));
                model.release(ChunkOffset { offset: place.offset + kept, ..place }, held - kept);
                live[which].1 = new;
            }
            Op::Release(_) | Op::Shrink(..) => {}
        }
        let seen: Vec<(u32, u64, u64)> =
            list.free_blocks().map(|block| (block.place.chunk, block.place.offset, block.size)).collect();
        let expected: Vec<(u32, u64, u64)> = (0u32..)
            .zip(&model.chunks)
            .flat_map(|(c, chunk)| chunk.blocks.iter().map(move |(start, size)| (c, *start, *size)))
            .filter(|(.., size)| *size > 0)
            .collect();
        prop_assert_eq!(seen, expected);
        let high: Vec<u64> = model.chunks.iter().map(|chunk| chunk.high_water).collect();
        prop_assert_eq!(list.high_waters().collect::<Vec<_>>(), high);
    }
    Ok(())
}

proptest! {
    #[test]
    fn an_unlimited_chunk_agrees_with_the_model(align in aligns(), ops in ops()) {
        compare(FreeList::unbounded(align).unwrap(), Model::single(align, u64::MAX), &ops)?;
    }

    #[test]
    fn a_bounded_chunk_agrees_with_the_model(align in aligns(), bytes in 0u64..3000, ops in ops()) {
        compare(FreeList::bounded(align, bytes).unwrap(), Model::single(align, bytes), &ops)?;
    }

    #[test]
    fn the_tightest_rule_agrees_with_the_model(align in aligns(), max in 1u64..700, ops in ops()) {
        let rule = ChunkRule::Tightest;
        compare(FreeList::chunked(align, max, rule).unwrap(), Model::chunked(align, max, rule), &ops)?;
    }

    #[test]
    fn ggmls_rule_agrees_with_the_model(align in aligns(), max in 1u64..700, ops in ops()) {
        let rule = ChunkRule::Ggml;
        compare(FreeList::chunked(align, max, rule).unwrap(), Model::chunked(align, max, rule), &ops)?;
    }

    #[test]
    fn a_region_of_the_high_water_mark_repeats_the_run(align in aligns(), ops in ops()) {
        let mut free = FreeList::unbounded(align).unwrap();
        let run = |list: &mut FreeList| {
            let mut live: Vec<(ChunkOffset, u64)> = vec![];
            let mut places = vec![];
            for op in &ops {
                match *op {
                    Op::Allocate(size) => {
                        let place = list.allocate(size).unwrap();
                        places.push(place);
                        live.push((place, size));
                    }
                    Op::Release(which) | Op::Shrink(which, _) if !live.is_empty() => {
                        let (place, size) = live.swap_remove(which % live.len());
                        list.release(place, size).unwrap();
                    }
                    _ => {}
                }
            }
            places
        };
        let measured = run(&mut free);
        let mut exact = FreeList::bounded(align, free.high_water()).unwrap();
        prop_assert_eq!(run(&mut exact), measured);
    }
}
