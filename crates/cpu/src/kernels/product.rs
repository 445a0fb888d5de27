//! Matrix products: rows of weights with rows of activations.
//!
//! Weights are worked on in groups of 16 rows, one lane of a vector each. With many rows of activations, two groups at
//! a time are unpacked into panels for the inner loop (`simd::product`), which then meet all of them; with few,
//! weights are read as they are, once. Unless all stay F32 ([`Precision`](orlop_backend::Precision)), products with quantized
//! weights take activations that are rounded to integers ([`rounded`]); all others are sums in F32 ([`float`]).

mod activation_rows;
mod experts;
mod float;
mod outer;
mod rounded;
mod rounding;

use orlop_backend::Reason;
use orlop_graph::{DType, Op, TensorDesc};

pub(crate) use rounded::{joins, takes_rounded};
pub(crate) use rounding::{Rounding, elements, round_elements, round_row};

use crate::task::{Kernel, KernelBody, StepKernel, Task, Thread, float, nothing_shared, row_at};

// Names of kernels without their ends, which say what activations are rounded to: see `Rounding`.

/// Rounds activations.
pub(crate) const ROUND: &str = "round";
/// A product.
pub(crate) const PRODUCT: &str = "mul_mat";
/// The same, and what is added to it: one tensor or two.
pub(crate) const PRODUCT_AND_SUMS: &str = "mul_mat and sums";
/// Several products with the same few rows of activations.
pub(crate) const PRODUCTS: &str = "mul_mats";
/// A product with chosen matrices.
pub(crate) const PRODUCT_ID: &str = "mul_mat_id";

pub(crate) const MUL_MAT: Kernel = Kernel {
    accepts,
    scratch: float::scratch,
    shared: float::right_hand_rows,
    check: None,
    // SAFETY: the phase rule: in the first phase each shared row is one thread's; in the second each unit of weight rows
    // with some rows of activations is, which has elements of its own in the result (`pieces`, `runs`), and shared
    // rows are only read. Operands lie apart.
    body: unsafe { KernelBody::in_phases(float::phases, float::mul_mat) },
};

pub(crate) const MUL_MAT_ID: Kernel = Kernel {
    check: Some(experts::are_in_range),
    // SAFETY: the phase rule: as for `MUL_MAT`; each unit of weight rows of all experts is one thread's.
    body: unsafe { KernelBody::in_phases(float::phases, float::mul_mat_id) },
    ..MUL_MAT
};

pub(crate) const OUT_PROD: Kernel = Kernel {
    scratch: outer::scratch,
    shared: nothing_shared,
    // SAFETY: the phase rule: each row of the result is one thread's; operands lie apart.
    body: unsafe { KernelBody::new(outer::out_prod) },
    ..MUL_MAT
};

pub(crate) fn named(name: &str, rounding: Option<Rounding>) -> Option<StepKernel> {
    rounding?;
    let product = StepKernel {
        operands: rounded::product_operands,
        needs: rounded::product_needs,
        check: None,
        // SAFETY: the phase rule: each unit of weight rows with some rows of activations is one thread's, and has elements of
        // its own in the result (`pieces`, `runs`); operands lie apart.
        body: unsafe { KernelBody::new(rounded::mul_mat) },
    };
    Some(match name {
        ROUND => StepKernel {
            operands: rounding::round_operands,
            needs: rounding::round_needs,
            check: None,
            // SAFETY: the phase rule: each row of the result is one thread's; the result, a temporary, lies apart.
            body: unsafe { KernelBody::new(rounding::round) },
        },
        PRODUCT => product,
        PRODUCT_AND_SUMS => StepKernel {
            operands: rounded::sums_operands,
            // SAFETY: the phase rule: as for `PRODUCT`; of tensors that are added, and that the result may lie on, a thread
            // reads only the elements that it writes.
            body: unsafe { KernelBody::new(rounded::mul_mat_and_sums) },
            ..product
        },
        PRODUCTS => StepKernel {
            operands: rounded::products_operands,
            needs: rounded::products_needs,
            // SAFETY: the phase rule: each group of weight rows of all products is one thread's; operands lie apart.
            body: unsafe { KernelBody::new(rounded::mul_mats) },
            ..product
        },
        PRODUCT_ID => StepKernel {
            check: Some(experts::are_in_range),
            // SAFETY: the phase rule: each unit of weight rows of all experts is one thread's; operands lie apart.
            body: unsafe { KernelBody::new(rounded::mul_mat_id) },
            ..product
        },
        _ => return None,
    })
}

fn accepts(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in operands.iter().chain([result]).enumerate() {
        let fits = match operand {
            0 => decodable(desc.dtype),
            2 if operands.len() == 3 => desc.dtype == DType::I32,
            _ => float(desc.dtype),
        };
        if !fits {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    weights(0, &operands[0])
}

/// Whether elements of a type can be multiplied after decoding.
pub(super) fn decodable(dtype: DType) -> bool {
    !dtype.is_integer() && orlop_quant::supports_decode(dtype)
}

/// Refuses gaps between blocks, which rows are not decoded over.
pub(super) fn weights(operand: usize, desc: &TensorDesc) -> Result<(), Reason> {
    if desc.dtype.is_quantized() && !desc.rows_are_contiguous() {
        return Err(Reason::Strides { operand });
    }
    Ok(())
}

/// The products of empty rows.
fn zeros(task: &Task, thread: Thread) {
    if thread.phase > 0 {
        return;
    }
    let rows = task.dst.desc.rows();
    for index in thread.part(rows) {
        let at = row_at(&task.dst.desc, index);
        (0..task.dst.desc.extents[0]).for_each(|column| task.dst.set_value(column, at, 0.0));
    }
}
