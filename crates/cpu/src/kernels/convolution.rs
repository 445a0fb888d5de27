//! Convolutions. Those over all input channels gather the data under the kernel ([`patches`]) and multiply it by
//! each output channel's kernel ([`direct`]); transposed ones sum, for each output, over the inputs that reach it
//! ([`transposed`]). Sums are in F32, several at a time.

mod depthwise;
mod direct;
mod patches;
mod transposed;

use orlop_backend::Reason;
use orlop_graph::{Op, TensorDesc};

use crate::task::{Kernel, KernelBody, all_floats, float, two_phases};

pub(crate) const IM2COL: Kernel =
    // SAFETY: the phase rule: each row of the result is of one tile, and each tile one thread's; operands lie apart.
    Kernel::simple(unread_kernel, direct::tile_floats, unsafe { KernelBody::new(direct::im2col) });

pub(crate) const CONVOLUTION: Kernel = Kernel {
    accepts: all_floats,
    scratch: direct::tile_floats,
    shared: direct::kernel_rows,
    check: None,
    // SAFETY: the phase rule: in the first phase each shared row is one thread's; in the second each pair of a tile
    // and an output channel is, and shared rows are only read. Operands lie apart.
    body: unsafe { KernelBody::in_phases(two_phases, direct::convolve) },
};

pub(crate) const DEPTHWISE: Kernel =
    // SAFETY: the phase rule: each row of the result is one thread's; operands lie apart.
    Kernel::simple(all_floats, depthwise::scratch, unsafe { KernelBody::new(depthwise::convolve) });

pub(crate) const TRANSPOSED: Kernel = Kernel {
    accepts: all_floats,
    scratch: transposed::scratch,
    shared: transposed::channel_rows,
    check: None,
    // SAFETY: the phase rule: in the first phase each line, whose elements have shared rows of their own, is one
    // thread's; in the second each row of the result is, and shared rows are only read. Operands lie apart.
    body: unsafe { KernelBody::in_phases(two_phases, transposed::convolve) },
};

/// Of the kernel only the extents matter, so it may have any type.
fn unread_kernel(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    for (operand, desc) in [(1, &operands[1]), (2, result)] {
        if !float(desc.dtype) {
            return Err(Reason::DType { operand, dtype: desc.dtype });
        }
    }
    Ok(())
}
