//! Activations rounded to integers, as temporaries of a program.

use orlop_backend::{Precision, Step, StepValue};
use orlop_graph::{DType, Graph, TensorDesc};

use crate::access::{Dst, RowIndex};
use crate::simd::product::{self, BYTES_8, BYTES_16};
use crate::task::{FloatScratch, StepOperand, StepOperands, StepShape, Task, Thread, row_at};

/// What activations are rounded to: integers with a scale for each 32. Names of kernels that read or write them end in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Int8,
    Int16,
}

impl Rounding {
    /// What activations are rounded to with some precision, if they are.
    pub(crate) fn with(precision: Precision) -> Option<Rounding> {
        match precision {
            Precision::Int8 => Some(Rounding::Int8),
            Precision::Int16 => Some(Rounding::Int16),
            Precision::F32 => None,
        }
    }

    /// The end of names.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Rounding::Int8 => " in 8 bits",
            Rounding::Int16 => " in 16 bits",
        }
    }

    /// The name of a kernel with rounded activations.
    pub(crate) fn kernel(self, name: &str) -> String {
        format!("{name}{}", self.suffix())
    }

    /// A kernel's name without its end, and what that says.
    pub(crate) fn split(name: &str) -> (&str, Option<Rounding>) {
        [Rounding::Int8, Rounding::Int16]
            .into_iter()
            .find_map(|rounding| Some((name.strip_suffix(rounding.suffix())?, Some(rounding))))
            .unwrap_or((name, None))
    }

    /// What the kernel of this name reads or writes.
    pub(crate) fn of_kernel(name: &str) -> Option<Rounding> {
        Rounding::split(name).1
    }

    /// What a description made by [`Rounding::desc`] is of.
    pub(crate) fn of(desc: &TensorDesc) -> Option<Rounding> {
        match desc.dtype {
            DType::I8 => Some(Rounding::Int8),
            DType::I16 => Some(Rounding::Int16),
            _ => None,
        }
    }

    /// How a tensor lies in memory when it is rounded: a row of blocks for each of its rows.
    pub(crate) fn desc(self, desc: &TensorDesc) -> TensorDesc {
        let (dtype, elements) = match self {
            Rounding::Int8 => (DType::I8, BYTES_8),
            Rounding::Int16 => (DType::I16, BYTES_16 / 2),
        };
        let row = (desc.extents[0] / 32).saturating_mul(elements as u64);
        let extents = [row, desc.extents[1], desc.extents[2], desc.extents[3]];
        // Sizes that do not fit 64 bits are beyond all memory, and are refused where memory is asked for.
        TensorDesc::contiguous(dtype, &extents).unwrap_or(TensorDesc {
            dtype,
            extents,
            strides: [dtype.block_bytes(), u64::MAX, u64::MAX, u64::MAX],
        })
    }
}

/// Elements in a row of a tensor that is rounded.
pub(crate) fn elements(rounded: &TensorDesc) -> u64 {
    rounded.row_bytes() / block_bytes(rounded) as u64 * 32
}

fn block_bytes(rounded: &TensorDesc) -> usize {
    if rounded.dtype == DType::I8 { BYTES_8 } else { BYTES_16 }
}

pub(super) fn round_operands(graph: &Graph, step: &Step) -> Option<StepOperands> {
    let ([StepValue::Tensor(id)], []) = (&step.reads[..], &step.nodes[..]) else { return None };
    graph.get(*id)?;
    let rounded = StepOperand::Rounded(*id, Rounding::of_kernel(&step.kernel)?);
    Some(StepOperands { reads: vec![StepOperand::Tensor(*id)], writes: vec![rounded] })
}

/// A row as floats.
pub(super) fn round_needs(shape: &StepShape<'_>) -> FloatScratch {
    FloatScratch { scratch: shape.reads[0].extents[0], shared: (0, 0) }
}

pub(super) fn round(task: &Task, thread: Thread, scratch: &mut [f32]) {
    let desc = &task.src[0].desc;
    let values = &mut scratch[..desc.extents[0] as usize];
    for row in thread.part(desc.rows()) {
        let at = row_at(desc, row);
        task.src[0].read_row(at, values);
        round_row(task, &task.dst, at, values);
    }
}

/// Rounds a row of a result.
pub(crate) fn round_row(task: &Task, dst: &Dst, at: RowIndex, values: &[f32]) {
    dst.fill_row(at, |bytes| round_to(task, dst, values, bytes));
}

/// Rounds a part of a row of a result: whole blocks.
pub(crate) fn round_elements(task: &Task, dst: &Dst, column: u64, at: RowIndex, values: &[f32]) {
    let block = block_bytes(&dst.desc);
    dst.fill_part(column / 32 * block as u64, at, values.len() / 32 * block, |bytes| {
        round_to(task, dst, values, bytes);
    });
}

fn round_to(task: &Task, dst: &Dst, values: &[f32], bytes: &mut [u8]) {
    match dst.desc.dtype {
        DType::I8 => product::quantize::<BYTES_8>(task.isa, values, bytes.as_chunks_mut().0),
        _ => product::quantize::<BYTES_16>(task.isa, values, bytes.as_chunks_mut().0),
    }
}
