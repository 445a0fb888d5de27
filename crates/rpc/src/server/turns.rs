//! Whose turn it is: first come, first served.

use std::sync::{Condvar, Mutex, PoisonError};

/// A lock whose waiters get it in the order in which they asked.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The next number to be given, and the one whose turn it is.
    numbers: Mutex<(u64, u64)>,
    changed: Condvar,
}

/// A turn, which ends when this is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for a turn.
    pub(super) fn take(&self) -> Turn<'_> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let own = numbers.0;
        numbers.0 += 1;
        while numbers.1 != own {
            numbers = self.changed.wait(numbers).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.numbers.lock().unwrap_or_else(PoisonError::into_inner).1 += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_in_the_order_of_asking() {
        let turns = Turns::default();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = turns.take();
            for number in 0..4 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let _turn = turns.take();
                    order.lock().unwrap().push(number);
                });
                // Until it has asked.
                while turns.numbers.lock().unwrap().0 < number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }
}
