//! What the crates above know about an op besides its parameters.

use super::sample::{SampleSource, Simplest};
use crate::{Op, OpError, TensorDesc};

/// The entry of one variant of [`Op`]: everything about it that is not a kernel.
///
/// Entries stand in `op/<family>.rs` beside the rule for the result's shape; [`OPS`](crate::OPS) lists them all.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// The variant's name, also in files: `mul_mat`, `unary`.
    pub name: &'static str,
    /// Where [`Op::name`] is not the variant's name: the names it may give. None for [`Op::Custom`], whose names
    /// are the caller's.
    pub functions: Option<&'static [&'static str]>,
    /// Ops with the same kind of kernel: the name of the file in `op/`.
    pub family: &'static str,
    /// How many operands it takes.
    pub operands: Arity,
    /// Whether it only reads its operand's storage in another way and computes nothing.
    pub view: bool,
    /// The operand whose storage the result is: the source of a view, the destination of a write.
    pub storage: Option<usize>,
    /// Operands that the result may overwrite; see [`may_overwrite`](crate::may_overwrite).
    pub overwrites: &'static [usize],
    /// Arithmetic that it takes for each element.
    pub cost: Cost,
    /// Of which tensor these are the elements.
    pub cost_of: CostOf,
    /// An op of this variant, for tests that go over every op.
    pub sample: fn(&mut dyn SampleSource) -> Op,
}

impl OpInfo {
    /// Names that [`Op::name`] gives to ops of this variant.
    pub fn names(&'static self) -> &'static [&'static str] {
        self.functions.unwrap_or(std::slice::from_ref(&self.name))
    }

    /// An op of this variant with the simplest parameters.
    pub fn example(&self) -> Op {
        (self.sample)(&mut Simplest)
    }

    /// What an entry says unless it says otherwise: one operand, a result in memory of its own, one operation for
    /// each of the result's elements.
    pub(super) const fn of_family(family: &'static str) -> OpInfo {
        OpInfo {
            name: "",
            functions: None,
            family,
            operands: Arity::exactly(1),
            view: false,
            storage: None,
            overwrites: &[],
            cost: Cost::PER_ELEMENT,
            cost_of: CostOf::Result,
            sample: |_| Op::Cont,
        }
    }
}

/// How many operands an op takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arity {
    /// The smallest number.
    pub min: usize,
    /// The largest number.
    pub max: usize,
    /// Both in words, such as `1 or 2`.
    pub text: &'static str,
}

impl Arity {
    pub(super) const fn exactly(count: usize) -> Arity {
        const TEXTS: [&str; 9] = ["no", "1", "2", "3", "4", "5", "6", "7", "8"];
        Arity { min: count, max: count, text: TEXTS[count] }
    }

    /// The exact number follows from the parameters.
    pub(super) const fn by_parameters(min: usize, max: usize) -> Arity {
        Arity { min, max, text: "as many as its parameters say" }
    }

    pub(super) fn check(self, operands: &[TensorDesc]) -> Result<(), OpError> {
        let given = operands.len();
        if (self.min..=self.max).contains(&given) {
            Ok(())
        } else {
            Err(OpError::Operands { expected: self.text, given })
        }
    }
}

/// The tensor whose elements an op's [`Cost`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostOf {
    /// The result.
    Result,
    /// An operand, for ops that spread it over the result.
    Operand(usize),
}

/// Arithmetic operations of an op: a number for each element ([`CostOf`]), times some of its operands' extents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Operations for each element.
    pub per_element: f64,
    /// Operands and their dimensions whose extents multiply it.
    pub times: &'static [(usize, usize)],
}

impl Cost {
    const PER_ELEMENT: Cost = Cost { per_element: 1.0, times: &[] };

    /// A multiplication and an addition for each element along these dimensions of operands.
    pub(super) const fn multiply_add(times: &'static [(usize, usize)]) -> Cost {
        Cost { per_element: 2.0, times }
    }

    /// Operations for this many elements; `extent` tells the extent of an operand in a dimension.
    pub fn operations(&self, elements: u64, extent: impl Fn(usize, usize) -> u64) -> f64 {
        let extents = self.times.iter().map(|(operand, dim)| extent(*operand, *dim) as f64);
        extents.fold(self.per_element * elements as f64, |product, extent| product * extent)
    }
}
