use super::*;

fn at(offset: u64) -> ChunkOffset {
    ChunkOffset { chunk: 0, offset }
}

fn offsets(list: &mut FreeList, sizes: &[u64]) -> Vec<u64> {
    sizes.iter().map(|size| list.allocate(*size).unwrap().offset).collect()
}

/// Free blocks of one chunk as `(start, size)`, and the start of the tail.
fn blocks(list: &FreeList) -> (Vec<(u64, u64)>, Option<u64>) {
    let (tails, holes): (Vec<_>, Vec<_>) = list.free_blocks().partition(|block| block.tail);
    let holes = holes.into_iter().map(|block| (block.place.offset, block.size)).collect();
    (holes, tails.first().map(|tail| tail.place.offset))
}

/// The complete state of a list.
fn state(list: &FreeList) -> (Vec<FreeBlock>, Vec<u64>, String) {
    (list.free_blocks().collect(), list.high_waters().collect(), format!("{list:?}"))
}

#[test]
fn golden_trace_1_best_fit_with_holes_and_an_empty_request() {
    let mut list = FreeList::unbounded(32).unwrap();
    let first = offsets(&mut list, &[100, 64, 200, 64, 32, 64, 10]);
    assert_eq!(first, [0, 128, 192, 416, 480, 512, 576]);
    for offset in [128, 416, 512] {
        list.release(at(offset), 64).unwrap();
    }
    assert_eq!(blocks(&list), (vec![(128, 64), (416, 64), (512, 64)], Some(608)));
    assert_eq!(offsets(&mut list, &[40, 32, 64, 0]), [512, 416, 128, 448]);
    assert_eq!(blocks(&list), (vec![(448, 32)], Some(608)));
    list.release(at(192), 200).unwrap();
    assert_eq!(blocks(&list), (vec![(192, 224), (448, 32)], Some(608)));
    assert_eq!(list.high_water(), 608);
}

#[test]
fn golden_trace_2_a_region_of_the_measured_size_repeats_the_measured_run() {
    for mut list in [FreeList::unbounded(32).unwrap(), FreeList::bounded(32, 256).unwrap()] {
        assert_eq!(offsets(&mut list, &[128, 32, 64, 32]), [0, 128, 160, 224]);
        list.release(at(0), 128).unwrap();
        list.release(at(160), 64).unwrap();
        assert_eq!(offsets(&mut list, &[64, 128]), [160, 0]);
        assert_eq!(list.high_water(), 256);
    }
}

#[test]
fn golden_trace_2_under_ggmls_rule_cannot_use_the_highest_hole_of_a_full_chunk() {
    let mut list = FreeList::chunked(32, 256, ChunkRule::Ggml).unwrap();
    assert_eq!(offsets(&mut list, &[128, 32, 64, 32]), [0, 128, 160, 224]);
    list.release(at(0), 128).unwrap();
    list.release(at(160), 64).unwrap();
    assert_eq!(list.allocate(64), Ok(at(0)));
    assert_eq!(list.allocate(128), Ok(ChunkOffset { chunk: 1, offset: 0 }));
}

#[test]
fn alignments_are_powers_of_two() {
    for align in [0, 24] {
        assert_eq!(FreeList::unbounded(align).unwrap_err(), FreeListError::BadAlign { align });
    }
    assert_eq!(FreeList::bounded(64, 10).unwrap().align(), 64);
}

#[test]
fn reset_forgets_everything() {
    for mut list in [
        FreeList::unbounded(8).unwrap(),
        FreeList::bounded(8, 100).unwrap(),
        FreeList::chunked(8, 100, ChunkRule::Ggml).unwrap(),
    ] {
        let fresh = state(&list);
        offsets(&mut list, &[50, 30]);
        list.release(at(0), 50).unwrap();
        list.reset();
        assert_eq!(state(&list), fresh);
        assert_eq!(list.high_water(), 0);
    }
}

#[test]
fn the_highest_of_equally_tight_holes_is_taken() {
    let mut list = FreeList::unbounded(1).unwrap();
    offsets(&mut list, &[8, 1, 8, 1, 9, 1]);
    for (offset, size) in [(0, 8), (9, 8), (18, 9)] {
        list.release(at(offset), size).unwrap();
    }
    assert_eq!(offsets(&mut list, &[8, 8, 8]), [9, 0, 18]);
}

#[test]
fn any_hole_that_fits_beats_the_tail() {
    let mut list = FreeList::unbounded(1).unwrap();
    offsets(&mut list, &[1000, 1]);
    list.release(at(0), 1000).unwrap();
    assert_eq!(offsets(&mut list, &[1, 1000]), [0, 1001]);
}

#[test]
fn too_large_a_request_reports_the_largest_block_and_changes_nothing() {
    let mut list = FreeList::bounded(32, 256).unwrap();
    offsets(&mut list, &[96, 32, 64]);
    list.release(at(0), 96).unwrap();
    let before = state(&list);
    assert_eq!(list.allocate(100), Err(FreeListError::OutOfSpace { needed: 128, largest: 96 }));
    assert_eq!(list.allocate(u64::MAX), Err(FreeListError::OutOfSpace { needed: u64::MAX, largest: 96 }));
    assert_eq!(state(&list), before);
}

#[test]
fn requests_at_the_end_of_64_bits_fail_without_wrapping() {
    let mut list = FreeList::unbounded(1).unwrap();
    assert_eq!(offsets(&mut list, &[u64::MAX - 1, 1]), [0, u64::MAX - 1]);
    assert_eq!(list.allocate(1), Err(FreeListError::OutOfSpace { needed: 1, largest: 0 }));
    let mut list = FreeList::chunked(32, 100, ChunkRule::Tightest).unwrap();
    assert!(list.allocate(u64::MAX).is_err());
    assert_eq!(list.chunk_count(), 0);
}

#[test]
fn requests_take_the_low_end_of_a_hole() {
    let mut list = FreeList::unbounded(32).unwrap();
    offsets(&mut list, &[96, 32]);
    list.release(at(0), 96).unwrap();
    assert_eq!(offsets(&mut list, &[33]), [0]);
    assert_eq!(blocks(&list).0, [(64, 32)]);
    assert_eq!(offsets(&mut list, &[1]), [64]);
    assert_eq!(blocks(&list), (vec![], Some(128)));
}

#[test]
fn the_high_water_mark_never_falls() {
    let mut list = FreeList::unbounded(32).unwrap();
    offsets(&mut list, &[100, 100]);
    list.release(at(128), 100).unwrap();
    list.release(at(0), 100).unwrap();
    assert_eq!((list.high_water(), blocks(&list)), (256, (vec![], Some(0))));
}

#[test]
fn released_ranges_merge_with_what_is_free_below_and_above() {
    let mut list = FreeList::unbounded(1).unwrap();
    offsets(&mut list, &[10, 10, 10, 10, 10, 10]);
    list.release(at(10), 10).unwrap();
    list.release(at(20), 10).unwrap(); // joins the one below
    assert_eq!(blocks(&list).0, [(10, 20)]);
    list.release(at(0), 10).unwrap(); // joins the one above
    assert_eq!(blocks(&list).0, [(0, 30)]);
    list.release(at(40), 10).unwrap(); // touches nothing
    assert_eq!(blocks(&list).0, [(0, 30), (40, 10)]);
    list.release(at(30), 10).unwrap(); // closes the gap
    assert_eq!(blocks(&list).0, [(0, 50)]);
    list.release(at(50), 10).unwrap(); // and the rest joins the tail
    assert_eq!(blocks(&list), (vec![], Some(0)));
}

#[test]
fn there_is_no_limit_on_free_blocks() {
    let mut list = FreeList::unbounded(1).unwrap();
    offsets(&mut list, &[1; 4096]);
    for offset in (0..4096).step_by(2) {
        list.release(at(offset), 1).unwrap();
    }
    assert_eq!(blocks(&list).0.len(), 2048);
}

#[test]
fn empty_requests_take_nothing_and_their_release_does_nothing() {
    let mut list = FreeList::bounded(32, 64).unwrap();
    offsets(&mut list, &[64]);
    let before = state(&list);
    assert_eq!(list.allocate(0), Ok(at(64)));
    list.release(at(64), 0).unwrap();
    list.release(ChunkOffset { chunk: 9, offset: 7 }, 0).unwrap();
    assert_eq!(state(&list), before);
    let mut list = FreeList::chunked(32, 64, ChunkRule::Ggml).unwrap();
    assert_eq!((list.allocate(0), list.chunk_count()), (Ok(at(0)), 0));
}

#[test]
fn releases_that_match_no_allocation_are_refused_and_change_nothing() {
    let mut list = FreeList::unbounded(32).unwrap();
    offsets(&mut list, &[100, 64]);
    list.release(at(128), 64).unwrap();
    let before = state(&list);
    let refused = |place, size, found| Err(FreeListError::NotAllocated { place, size, found });
    assert_eq!(list.release(at(128), 64), refused(at(128), 64, None)); // twice
    assert_eq!(list.release(at(32), 32), refused(at(32), 32, None)); // inside another
    assert_eq!(list.release(at(0), 160), refused(at(0), 160, Some(128))); // too long
    let foreign = ChunkOffset { chunk: 3, offset: 0 };
    assert_eq!(list.release(foreign, 32), refused(foreign, 32, None));
    assert_eq!(list.release(at(0), u64::MAX), refused(at(0), u64::MAX, Some(128)));
    assert_eq!(state(&list), before);
    list.release(at(0), 97).unwrap(); // the same after rounding
}

#[test]
fn a_full_region_refuses_and_recovers() {
    let mut list = FreeList::bounded(32, 64).unwrap();
    offsets(&mut list, &[64]);
    assert_eq!(list.free_blocks().count(), 0);
    assert_eq!(list.allocate(1), Err(FreeListError::OutOfSpace { needed: 32, largest: 0 }));
    list.release(at(0), 64).unwrap();
    assert_eq!(list.allocate(1), Ok(at(0)));
}

#[test]
fn shrinking_frees_the_end() {
    let mut list = FreeList::unbounded(32).unwrap();
    offsets(&mut list, &[200, 32]);
    list.shrink(at(0), 200, 60).unwrap();
    assert_eq!(blocks(&list).0, [(64, 160)]);
    list.shrink(at(0), 60, 33).unwrap(); // nothing is left over after rounding
    assert_eq!(blocks(&list).0, [(64, 160)]);
    let grows = FreeListError::Grows { place: at(0), old: 60, new: 61 };
    assert_eq!(list.shrink(at(0), 60, 61), Err(grows));
    let stale = FreeListError::NotAllocated { place: at(0), size: 224, found: Some(64) };
    assert_eq!(list.shrink(at(0), 200, 60), Err(stale));
    list.release(at(0), 60).unwrap();
    assert_eq!(blocks(&list).0, [(0, 224)]);
}

#[test]
fn a_request_above_the_chunk_limit_opens_a_chunk_of_its_size() {
    for rule in [ChunkRule::Tightest, ChunkRule::Ggml] {
        let mut list = FreeList::chunked(32, 100, rule).unwrap();
        let places = [64, 200, 32].map(|size| list.allocate(size).unwrap());
        assert_eq!(places, [at(0), ChunkOffset { chunk: 1, offset: 0 }, at(64)]);
        assert_eq!(list.high_waters().collect::<Vec<_>>(), [96, 224]);
        assert_eq!(list.high_water(), 320);
    }
}

#[test]
fn ggml_takes_the_last_chunks_hole_and_tightest_the_tightest() {
    for (rule, chunk) in [(ChunkRule::Tightest, 0), (ChunkRule::Ggml, 1)] {
        let mut list = FreeList::chunked(1, 100, rule).unwrap();
        let places = [40, 60, 50, 50].map(|size| list.allocate(size).unwrap());
        assert_eq!(places.map(|place| place.chunk), [0, 0, 1, 1]);
        list.release(places[0], 40).unwrap();
        list.release(places[2], 50).unwrap();
        list.shrink(places[1], 60, 59).unwrap();
        list.shrink(places[3], 50, 49).unwrap();
        assert_eq!(list.allocate(40), Ok(ChunkOffset { chunk, offset: 0 }));
    }
}

#[test]
fn the_tail_that_grows_least_is_taken_then_the_one_that_leaves_least() {
    for rule in [ChunkRule::Tightest, ChunkRule::Ggml] {
        let mut list = FreeList::chunked(1, 100, rule).unwrap();
        let [low, mid] = [60, 70].map(|size| list.allocate(size).unwrap());
        list.shrink(low, 60, 10).unwrap(); // 50 bytes paid for above 10
        list.shrink(mid, 70, 50).unwrap(); // 20 above 50
        assert_eq!(list.allocate(15), Ok(ChunkOffset { chunk: 1, offset: 50 }));
        assert_eq!(list.allocate(60), Ok(ChunkOffset { chunk: 0, offset: 10 }));
        assert_eq!(list.high_waters().collect::<Vec<_>>(), [70, 70]);
    }
}

#[test]
fn ggmls_sixteenth_chunk_is_unlimited() {
    let mut list = FreeList::chunked(1, 10, ChunkRule::Ggml).unwrap();
    offsets(&mut list, &[10; 15]);
    let places = [10, 10, 1000].map(|size| list.allocate(size).unwrap());
    assert_eq!(places.map(|place| (place.chunk, place.offset)), [(15, 0), (15, 10), (15, 20)]);
    let mut ours = FreeList::chunked(1, 10, ChunkRule::Tightest).unwrap();
    offsets(&mut ours, &[10; 100]);
    assert_eq!(ours.chunk_count(), 100);
}
