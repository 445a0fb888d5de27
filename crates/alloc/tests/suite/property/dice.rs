//! Choices from a list of numbers, so that a failing case shrinks to small numbers.

#[derive(Clone, Debug)]
pub(crate) struct Dice {
    numbers: Vec<u64>,
    next: usize,
}

impl Dice {
    pub(crate) fn new(numbers: Vec<u64>) -> Dice {
        Dice { numbers, next: 0 }
    }

    /// A third of the numbers that are left, for a choice of its own.
    pub(crate) fn split(&mut self) -> Vec<u64> {
        let left = self.numbers.len().saturating_sub(self.next);
        self.numbers.split_off(self.numbers.len() - left / 3)
    }

    pub(crate) fn next(&mut self) -> u64 {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        number
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next >= self.numbers.len()
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True once in `of` times.
    pub(crate) fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
