//! A lower bound of the memory that any order of a block needs.

use super::block::{Block, Root};

/// Blocks up to this many steps get the better bound; the table it needs grows with their square.
const MAX_STEPS: usize = 1 << 14;

/// Bytes that some step of a block needs in every order: what it touches, and what is made before it and used after
/// it whatever the order.
pub(super) fn lower_bound(block: &Block) -> u64 {
    let per_step = if block.len() <= MAX_STEPS { needed_anyway(block) } else { touched(block) };
    let needs =
        per_step.into_iter().enumerate().map(|(step, bytes)| bytes.saturating_sub(in_place(block, step)));
    needs.max().unwrap_or(0)
}

/// Most bytes that a step could save by working in place.
fn in_place(block: &Block, step: usize) -> u64 {
    let mut results: Vec<u32> = block.pairs[step].iter().map(|pair| pair.result).collect();
    results.sort_unstable();
    results.dedup();
    results.iter().map(|result| block.roots[*result as usize].bytes).fold(0, u64::saturating_add)
}

fn touched(block: &Block) -> Vec<u64> {
    let through = block.roots.iter().filter(|root| root.begins && root.stays);
    let base = through.fold(block.base, |sum, root| sum.saturating_add(root.bytes));
    let own = |number: &&u32| {
        let root = &block.roots[**number as usize];
        !(root.begins && root.stays)
    };
    let bytes = |number: &u32| block.roots[*number as usize].bytes;
    let step = |touches: &Vec<u32>| touches.iter().filter(own).map(bytes).fold(base, u64::saturating_add);
    block.touches.iter().map(step).collect()
}

/// Sets of steps, one bit each.
struct Sets {
    words: usize,
    bits: Vec<u64>,
}

impl Sets {
    fn new(count: usize, steps: usize) -> Sets {
        let words = steps.div_ceil(64);
        Sets { words, bits: vec![0; words * count] }
    }

    fn insert(&mut self, set: usize, step: usize) {
        self.bits[set * self.words + step / 64] |= 1 << (step % 64);
    }

    fn get(&self, set: usize) -> &[u64] {
        &self.bits[set * self.words..][..self.words]
    }

    /// Adds the members of one set to another.
    fn join(&mut self, into: usize, from: usize) {
        for word in 0..self.words {
            self.bits[into * self.words + word] |= self.bits[from * self.words + word];
        }
    }
}

fn needed_anyway(block: &Block) -> Vec<u64> {
    let steps = block.len();
    let (mut ancestors, mut descendants) = (Sets::new(steps, steps), Sets::new(steps, steps));
    for step in 0..steps {
        ancestors.insert(step, step);
        block.before[step].iter().for_each(|earlier| ancestors.join(step, *earlier as usize));
    }
    for step in (0..steps).rev() {
        descendants.insert(step, step);
        block.after[step].iter().for_each(|later| descendants.join(step, *later as usize));
    }
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); block.roots.len()];
    for (step, touches) in block.touches.iter().enumerate() {
        touches.iter().for_each(|root| users[*root as usize].push(step));
    }
    let mut needs = vec![block.base; steps];
    let words = steps.div_ceil(64);
    for (root, users) in block.roots.iter().zip(&users) {
        let union = |sets: &Sets, whole: bool| {
            let mut union = vec![if whole { u64::MAX } else { 0 }; words];
            for user in users.iter().filter(|_| !whole) {
                union.iter_mut().zip(sets.get(*user)).for_each(|(word, more)| *word |= more);
            }
            union
        };
        // After one of its users, and before one.
        let Root { bytes, begins, stays, .. } = *root;
        let (made, used) = (union(&descendants, begins), union(&ancestors, stays));
        for (word, mut bits) in made.iter().zip(used).map(|(made, used)| made & used).enumerate() {
            while bits != 0 {
                let step = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Some(need) = needs.get_mut(step) {
                    *need = need.saturating_add(bytes);
                }
            }
        }
    }
    needs
}
