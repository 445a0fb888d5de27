//! Tests of the prefix tree, with pages of four tokens.

use super::*;

fn tree() -> PrefixTree<u32> {
    PrefixTree::new(4, 0.01)
}

/// Runs a sequence over these tokens, and keeps it.
fn keep(tree: &mut PrefixTree<u32>, sequence: u32, tokens: &[u32]) -> Vec<Eviction<u32>> {
    let found = tree.find(0, tokens, tokens.len() - 1);
    let path = tree.run(0, sequence, &found, tokens);
    tree.keep(0, sequence, path, tokens)
}

#[test]
fn a_shared_prefix_exists_once() {
    let mut tree = tree();
    assert_eq!(keep(&mut tree, 1, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), []);
    assert_eq!(tree.pages(), 3);
    assert_eq!(keep(&mut tree, 2, &[1, 2, 3, 4, 5, 6, 7, 8, 10, 11]), []);
    assert_eq!((tree.pages(), tree.kept(), tree.evictable()), (4, 2, 4));
    let found = tree.find(0, &[1, 2, 3, 4, 5, 6, 0], 6);
    assert_eq!((found.len, found.path.len(), found.partial.map(|(_, len)| len)), (6, 1, Some(2)));
    assert_eq!(tree.find(7, &[1, 2, 3, 4, 5], 4), Match::default(), "another salt");
    assert_eq!(tree.find(0, &[1, 2, 3, 4], 3).len, 3, "the last token is always fed");
}

#[test]
fn a_longer_sequence_replaces_its_beginning() {
    let mut tree = tree();
    keep(&mut tree, 1, &[1, 2, 3, 4, 5, 6]);
    assert_eq!(keep(&mut tree, 2, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), [Eviction::RequestEnd(1)]);
    assert_eq!((tree.pages(), tree.kept()), (3, 1));
    // What is known already is not kept a second time.
    assert_eq!(keep(&mut tree, 3, &[1, 2, 3, 4, 5, 6, 7, 8]), [Eviction::RequestEnd(3)]);
    assert_eq!(tree.kept(), 1);
}

#[test]
fn pages_that_are_being_computed_are_waited_for() {
    let mut tree = tree();
    let tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9];
    let path = tree.run(0, 1, &Match::default(), &tokens);
    assert!(tree.find(0, &tokens, 8).pending);
    tree.computed(&path, 5);
    let found = tree.find(0, &tokens, 8);
    assert_eq!((found.len, found.pending), (4, true));
    tree.computed(&path, 9);
    let found = tree.find(0, &tokens, 8);
    assert_eq!((found.len, found.pending, tree.source(&found)), (8, false, Some(1)));
    assert_eq!((tree.evictable(), tree.evict_page()), (0, None), "what runs is never evicted");
    tree.forget(1, &path);
    assert_eq!((tree.pages(), tree.find(0, &tokens, 8)), (0, Match::default()));
}

#[test]
fn what_costs_least_to_compute_again_goes_first_and_deep_pages_before_their_parents() {
    let mut tree = tree();
    keep(&mut tree, 1, &[1, 2, 3, 4, 5, 6, 7, 8]);
    keep(&mut tree, 2, &[20, 21, 22, 23, 24]);
    keep(&mut tree, 3, &[20, 21, 22, 23, 25, 26]);
    // One token, two tokens, then the second page of 1, and the pages that were used twice last.
    let order = std::iter::from_fn(|| tree.evict_page()).collect::<Vec<_>>();
    assert_eq!(
        order,
        [
            Eviction::RequestEnd(2),
            Eviction::Truncate(3, 4),
            Eviction::Truncate(1, 4),
            Eviction::RequestEnd(1),
            Eviction::RequestEnd(3),
        ]
    );
    assert_eq!((tree.pages(), tree.kept(), tree.roots.len()), (0, 0, 0));
}

#[test]
fn frequent_pages_stay_longer_but_not_for_ever() {
    let mut tree = tree();
    for sequence in 0..3 {
        keep(&mut tree, sequence, &[1, 2, 3, 4, 5]);
    }
    let gone = (10..100).find(|sequence| {
        keep(&mut tree, *sequence, &[sequence * 10, 1, 2, 3]);
        if tree.pages() > 4 {
            tree.evict_page();
        }
        tree.find(0, &[1, 2, 3, 4, 5], 4).len == 0
    });
    assert!(gone.is_some_and(|sequence| sequence > 16), "{gone:?}");
}
