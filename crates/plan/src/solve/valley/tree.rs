//! Segment trees over sections: queries in logarithmic time.

use std::ops::Range;

/// Finds the first index at or after a start whose value is at most a limit. Values can change.
#[derive(Debug)]
pub(super) struct FirstAtMostTree {
    leaves: usize,
    /// Node 1 is the root; each inner node is the minimum of its two children.
    tree: Vec<u32>,
}

impl FirstAtMostTree {
    pub(super) fn new(numbers: Vec<u32>) -> Self {
        let leaves = numbers.len().next_power_of_two();
        let mut tree = vec![u32::MAX; leaves];
        tree.extend(numbers);
        tree.resize(2 * leaves, u32::MAX);
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node].min(tree[2 * node + 1]);
        }
        Self { leaves, tree }
    }

    pub(super) fn set(&mut self, place: usize, number: u32) {
        let mut node = place + self.leaves;
        self.tree[node] = number;
        while node > 1 {
            node /= 2;
            let smaller = self.tree[2 * node].min(self.tree[2 * node + 1]);
            if self.tree[node] == smaller {
                break;
            }
            self.tree[node] = smaller;
        }
    }

    /// The first index at or after `from` with a value of at most `most`.
    pub(super) fn first(&self, from: usize, most: u32) -> Option<usize> {
        let mut node = (from < self.leaves).then_some(from + self.leaves)?;
        while self.tree[node] > most {
            // Up from right children, then to the right sibling.
            while node % 2 == 1 {
                node /= 2;
            }
            if node == 0 {
                return None;
            }
            node += 1;
        }
        while node < self.leaves {
            node = if self.tree[2 * node] <= most { 2 * node } else { 2 * node + 1 };
        }
        Some(node - self.leaves)
    }
}

/// Finds the index of the maximum of a range, the first of equals.
#[derive(Debug, Default)]
pub(super) struct ArgMaxTree {
    leaves: usize,
    tree: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl ArgMaxTree {
    pub(super) fn new(numbers: &[u64]) -> Self {
        let leaves = numbers.len().next_power_of_two();
        let mut tree = vec![NONE; leaves];
        tree.extend(0..numbers.len() as u32);
        tree.resize(2 * leaves, NONE);
        for node in (1..leaves).rev() {
            tree[node] = larger(numbers, tree[2 * node], tree[2 * node + 1]);
        }
        Self { leaves, tree }
    }

    /// `numbers` are those given to [`Self::new`]; the range must not be empty.
    pub(super) fn of(&self, numbers: &[u64], range: Range<usize>) -> usize {
        let (mut low, mut high) = (range.start + self.leaves, range.end + self.leaves);
        let (mut left, mut right) = (NONE, NONE);
        while low < high {
            if low % 2 == 1 {
                left = larger(numbers, left, self.tree[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                right = larger(numbers, self.tree[high], right);
            }
            (low, high) = (low / 2, high / 2);
        }
        larger(numbers, left, right) as usize
    }
}

/// The index of the larger number, the first of equals.
fn larger(numbers: &[u64], first: u32, second: u32) -> u32 {
    match (first, second) {
        (NONE, other) | (other, NONE) => other,
        _ if numbers[second as usize] > numbers[first as usize] => second,
        _ => first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_small_number_is_found_from_everywhere() {
        let mut numbers = vec![5, 3, 8, 1, 9, 4, 7];
        let mut tree = FirstAtMostTree::new(numbers.clone());
        for change in [None, Some((3, 9)), Some((6, 0))] {
            if let Some((place, number)) = change {
                numbers[place] = number;
                tree.set(place, number);
            }
            for from in 0..9 {
                for most in 0..10 {
                    let scan = (from..7).find(|place| numbers[*place] <= most);
                    assert_eq!(tree.first(from, most), scan, "from {from}, at most {most}");
                }
            }
        }
    }

    #[test]
    fn the_largest_number_of_each_range_is_the_first_of_equals() {
        let numbers = [3, 1, 4, 1, 5, 9, 2, 6, 5, 9, 3];
        let tree = ArgMaxTree::new(&numbers);
        for low in 0..11 {
            for high in low + 1..=11 {
                let scan = (low..high).max_by_key(|place| (numbers[*place], std::cmp::Reverse(*place)));
                assert_eq!(Some(tree.of(&numbers, low..high)), scan);
            }
        }
    }
}
