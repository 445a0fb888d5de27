//! Choices that a property test can shrink.

/// Choices from a list of numbers. A property test that draws the list shrinks a failing case to a short list of small
/// numbers, which stand for the simplest choices.
#[derive(Clone, Debug)]
pub struct Choices {
    numbers: Vec<u64>,
    next: usize,
}

impl Choices {
    /// Choices by these numbers, and by zeros after them.
    pub fn new(numbers: Vec<u64>) -> Choices {
        Choices { numbers, next: 0 }
    }

    /// A third of the numbers that are left, for choices of another kind.
    pub fn split(&mut self) -> Vec<u64> {
        let left = self.numbers.len().saturating_sub(self.next);
        self.numbers.split_off(self.numbers.len() - left / 3)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // the list goes on with zeros, so `Option` would be noise
    pub fn next(&mut self) -> u64 {
        let number = self.numbers.get(self.next).copied().unwrap_or(0);
        self.next += 1;
        number
    }

    /// Whether only zeros are left.
    pub fn is_empty(&self) -> bool {
        self.next >= self.numbers.len()
    }

    /// Less than `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// True with a probability of one in `times`, and false once only zeros are left (unless `times` is 1).
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One element of a list.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}
