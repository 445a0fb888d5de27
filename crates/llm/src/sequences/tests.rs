//! Sequences in pages: growth, forks, truncation and the pages that they give back.

use super::*;

fn sequences(context: u64, count: u64, windows: &[Option<u32>]) -> Sequences {
    let sizes = CacheSizes { context, batch: 64, sequences: count };
    let group = |window: &Option<u32>| CacheGroup { window: *window, pages: pages_of(context).max(count) };
    Sequences::new(&sizes, &windows.iter().map(group).collect::<Vec<_>>())
}

fn push(sequences: &mut Sequences, id: SequenceId, tokens: usize) {
    let slot = sequences.slot(id).unwrap();
    for _ in 0..tokens {
        sequences.push(slot).unwrap();
    }
}

/// Every page is free, or used by a sequence.
fn check(sequences: &Sequences, pages: usize) {
    for (index, group) in sequences.groups.iter().enumerate() {
        let tables = sequences.slots.iter().flat_map(|slot| slot.tables[index].pages.iter());
        let used: std::collections::BTreeSet<&u32> = tables.collect();
        assert_eq!(group.pool.free() + used.len(), pages);
    }
}

#[test]
fn a_sequence_alone_has_its_rows_in_order() {
    let mut sequences = sequences(200, 1, &[None]);
    push(&mut sequences, SequenceId::FIRST, 200);
    let rows: Vec<u32> = (0..200).map(|position| sequences.row(0, 0, position)).collect();
    assert_eq!(rows, (0..200).collect::<Vec<u32>>());
    assert!(matches!(sequences.check_room(|_| 1), Err(Error::ContextFull { used: 200, .. })));
}

#[test]
fn a_fork_shares_pages_and_copies_at_most_one() {
    let mut sequences = sequences(1024, 2, &[None]);
    push(&mut sequences, SequenceId::FIRST, 100);
    let free = sequences.free_pages();
    let fork = sequences.fork(SequenceId::FIRST, 90).unwrap();
    assert_eq!(sequences.free_pages(), free, "a fork takes no page");
    push(&mut sequences, fork, 70);
    assert_eq!(sequences.next_copy(), Some(PageCopy { slot: 1, group: 0, from: 1, into: 2, rows: 26 }));
    assert_eq!(sequences.next_copy(), None);
    let slot = sequences.slot(fork).unwrap();
    assert_eq!(sequences.row(slot, 0, 63), 63, "a full page is shared");
    assert_eq!(sequences.row(slot, 0, 64), 128, "a page in part is not");
    push(&mut sequences, SequenceId::FIRST, 1);
    assert_eq!(sequences.next_copy(), None, "the page belongs to one sequence alone now");
    check(&sequences, 16);
}

#[test]
fn a_shared_page_is_copied_before_a_sequence_that_went_back_writes_it() {
    let mut sequences = sequences(1024, 2, &[None]);
    push(&mut sequences, SequenceId::FIRST, 128);
    let fork = sequences.fork(SequenceId::FIRST, 128).unwrap();
    assert_eq!(sequences.truncate(0, 70), 70);
    push(&mut sequences, SequenceId::FIRST, 1);
    assert_eq!(sequences.next_copy(), Some(PageCopy { slot: 0, group: 0, from: 1, into: 2, rows: 6 }));
    sequences.end(fork).unwrap();
    sequences.end(SequenceId::FIRST).unwrap();
    assert_eq!(sequences.free_pages(), Some(16));
}

#[test]
fn the_last_sequence_that_writes_a_shared_page_needs_no_copy() {
    let mut sequences = sequences(256, 3, &[None]);
    push(&mut sequences, SequenceId::FIRST, 65);
    let [a, b] = [(); 2].map(|()| sequences.fork(SequenceId::FIRST, 65).unwrap());
    for (writers, needed) in [(1, 1), (2, 2), (3, 2)] {
        assert_eq!(sequences.needed_pages(|slot| usize::from(slot < writers)).unwrap(), needed);
    }
    // There are two free pages, and all three sequences can write.
    let added = |slot| if slot < 3 { 63 } else { 0 };
    assert_eq!((sequences.free_pages(), sequences.needed_pages(added).unwrap()), (Some(2), 2));
    sequences.check_room(added).unwrap();
    for id in [b, SequenceId::FIRST, a] {
        push(&mut sequences, id, 63);
    }
    assert_eq!(sequences.free_pages(), Some(0));
    check(&sequences, 4);
}

#[test]
fn a_page_that_cannot_be_copied_stays_shared() {
    let mut sequences = sequences(1024, 2, &[None]);
    push(&mut sequences, SequenceId::FIRST, 100);
    let fork = sequences.fork(SequenceId::FIRST, 90).unwrap();
    let free = sequences.free_pages();
    push(&mut sequences, fork, 1);
    let copy = sequences.next_copy().unwrap();
    sequences.undo_copy(copy);
    let slot = sequences.slot(fork).unwrap();
    assert_eq!(sequences.truncate(slot, 90), 90);
    assert_eq!((sequences.row(slot, 0, 89), sequences.free_pages()), (89, free));
    push(&mut sequences, SequenceId::FIRST, 1);
    assert!(sequences.next_copy().is_some(), "the page is shared again");
    check(&sequences, 16);
}

#[test]
fn a_window_keeps_the_pages_that_later_tokens_see() {
    let mut sequences = sequences(4096, 2, &[None, Some(100)]);
    for _ in 0..1000 {
        sequences.trim();
        push(&mut sequences, SequenceId::FIRST, 1);
    }
    // Row 901 is the first that the next token sees, and row 896 the first of its page.
    assert_eq!(sequences.slots[0].tables[1].gone, 14);
    assert_eq!(sequences.slots[0].tables[1].pages.len(), 2);
    assert!(matches!(
        sequences.fork(SequenceId::FIRST, 500),
        Err(Error::NoWayBack { len: 500, tokens: 1000 })
    ));
    let fork = sequences.fork(SequenceId::FIRST, 997).unwrap();
    sequences.end(fork).unwrap();
    assert_eq!(sequences.truncate(0, 997), 997);
    assert_eq!(sequences.truncate(0, 500), 0, "rows before that are gone");
    assert_eq!(sequences.slots[0].tables[1].gone, 0);
    check(&sequences, 64);
}

#[test]
fn pages_that_are_not_there_are_an_error_with_numbers() {
    let mut sequences = sequences(128, 2, &[None]);
    push(&mut sequences, SequenceId::FIRST, 65);
    let id = sequences.start().unwrap();
    let slot = sequences.slot(id).unwrap();
    let error = sequences.check_room(|index| usize::from(index == slot)).unwrap_err();
    assert!(matches!(error, Error::NoPages { needed: 1, free: 0 }), "{error}");
    assert!(matches!(sequences.start(), Err(Error::TooManySequences { sequences: 2 })));
    sequences.end(id).unwrap();
    assert!(matches!(sequences.fork(id, 3), Err(Error::UnknownSequence(_))));
}
