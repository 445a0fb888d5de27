//! Pseudo-random numbers for tests: one generator, whose streams are part of several fixtures.

/// A small deterministic generator ([SplitMix64](https://doi.org/10.1145/2660193.2660195)): equal seeds give equal
/// numbers on every machine.
///
/// ```
/// use orlop_testkit::Random;
///
/// let mut random = Random::new(7);
/// let (a, b) = (random.next(), random.next());
/// assert_eq!([a, b], [Random::nth(7, 0), Random::nth(7, 1)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Random(u64);

/// The generator's state grows by this in each step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The stream of a name: its seed is the name's FNV-1a hash.
    pub fn named(name: &str) -> Random {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Random(name.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    /// The number at a position of a seed's stream.
    pub fn nth(seed: u64, position: u64) -> u64 {
        Random(seed.wrapping_add(position.wrapping_mul(STEP))).next()
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)] // the stream has no end, so `Option` would be noise
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next 8 bits.
    pub fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// At least 0 and less than 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// At least -1 and less than 1, a multiple of 2⁻²³.
    pub fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// At least `low` and less than `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Less than `limit`; 0 if the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// The position of an element in a list of `length` elements; 0 for an empty list.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// True with a probability of one in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One element of a list.
    ///
    /// # Panics
    /// If the list is empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// The numbers below `count` in random order.
    pub fn shuffled(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        for end in (1..numbers.len()).rev() {
            numbers.swap(end, self.index(end + 1));
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn equal_names_give_equal_numbers() {
        let numbers = |name| (0..4).map(|_| Random::named(name).next()).collect::<Vec<_>>();
        assert_eq!(numbers("add"), numbers("add"));
        assert_ne!(numbers("add"), numbers("sub"));
    }

    #[test]
    fn shuffling_keeps_every_number() {
        let mut shuffled = Random::new(7).shuffled(50);
        assert_ne!(shuffled, (0..50).collect::<Vec<_>>());
        shuffled.sort_unstable();
        assert_eq!(shuffled, (0..50).collect::<Vec<_>>());
    }
}
