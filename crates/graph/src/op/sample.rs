//! Sample ops for tests that go over every op, with parameters drawn from a source.

use crate::{DIMS, DType};

/// Where the parameters of a sample op come from, such as a random generator.
pub trait SampleSource {
    /// A number below a limit, which is not 0.
    fn below(&mut self, limit: usize) -> usize;
    /// The extent of a dimension, or a number of elements or bytes.
    fn extent(&mut self) -> u64;
    /// A small number, such as a stride or a window's size.
    fn small(&mut self) -> u32;
    /// A factor or a limit.
    fn float(&mut self) -> f32;
    /// An element type.
    fn dtype(&mut self) -> DType;

    /// Whether an option is on.
    fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// An extent for each dimension.
    fn extents(&mut self) -> [u64; DIMS] {
        std::array::from_fn(|_| self.extent())
    }

    /// Small numbers for two dimensions.
    fn pair(&mut self) -> [u32; 2] {
        std::array::from_fn(|_| self.small())
    }
}

pub(super) fn one_of<T: Copy>(source: &mut dyn SampleSource, values: &[T]) -> T {
    values[source.below(values.len())]
}

/// The first of every choice, and 1 for every number.
pub(super) struct Simplest;

impl SampleSource for Simplest {
    fn below(&mut self, _: usize) -> usize {
        0
    }

    fn extent(&mut self) -> u64 {
        1
    }

    fn small(&mut self) -> u32 {
        1
    }

    fn float(&mut self) -> f32 {
        1.0
    }

    fn dtype(&mut self) -> DType {
        DType::F32
    }
}
