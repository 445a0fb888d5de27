//! Elements taken from one place to another: copies, conversions, repetition, joining, padding, rolling, patches.
//!
//! Between equal element types whole blocks move as they are stored, so every type is accepted, with or without a
//! codec. Different types meet as F32.

use orlop_backend::Reason;
use orlop_graph::{DType, Op, Patch, TensorDesc};

use crate::access::{Dst, RowIndex, Src};
use crate::isa::Isa;
use crate::task::{
    Kernel, KernelBody, SPAN, Task, Thread, all_floats, merged, no_scratch, repeated, row_at, spans,
    two_phases,
};

pub(crate) const COPY: Kernel = Kernel::simple(any_type, no_scratch, COPY_BODY);
pub(crate) const CONVERT: Kernel = Kernel::simple(convertible_types, no_scratch, COPY_BODY);
pub(crate) const SET: Kernel = Kernel::simple(any_type, no_scratch, SET_BODY);
pub(crate) const ACCUMULATE: Kernel = Kernel::simple(all_floats, no_scratch, ACCUMULATE_BODY);

// SAFETY: the phase rule: each row of the result is one thread's; operands lie apart.
pub(crate) const REPEAT: Kernel = Kernel::simple(any_type, no_scratch, unsafe { KernelBody::new(repeat) });

// SAFETY: the phase rule: as for `REPEAT`.
pub(crate) const CONCAT: Kernel = Kernel::simple(any_type, no_scratch, unsafe { KernelBody::new(concat) });

// SAFETY: the phase rule: as for `REPEAT`.
pub(crate) const PAD: Kernel = Kernel::simple(any_type, no_scratch, unsafe { KernelBody::new(pad) });

// SAFETY: the phase rule: as for `REPEAT`.
pub(crate) const ROLL: Kernel = Kernel::simple(any_type, no_scratch, unsafe { KernelBody::new(roll) });

// SAFETY: the phase rule: each span of the result is one thread's, and there are no operands.
pub(crate) const ARANGE: Kernel = Kernel::simple(all_floats, no_scratch, unsafe { KernelBody::new(arange) });

// SAFETY: the phase rule: each block of the result is one thread's, or all are the first thread's where blocks or both
// tensors share memory (`writer`, `copy_within`). Where the result lies on the operand, a block is read by its writer.
const COPY_BODY: KernelBody = unsafe { KernelBody::new(copy) };

// SAFETY: the phase rule: the base is copied in the first phase, as in `COPY_BODY`, and the patch over it in the second, where
// each of its blocks is one thread's or all are the first's (`writer`). The patch lies apart from the result.
const SET_BODY: KernelBody = unsafe { KernelBody::in_phases(two_phases, set) };

// SAFETY: the phase rule: as for `SET_BODY`; in the second phase a thread reads only the sums that it writes.
const ACCUMULATE_BODY: KernelBody = unsafe { KernelBody::in_phases(two_phases, accumulate) };

fn any_type(_: &Op, _: &[TensorDesc], _: &TensorDesc) -> Result<(), Reason> {
    Ok(())
}

fn convertible_types(_: &Op, operands: &[TensorDesc], result: &TensorDesc) -> Result<(), Reason> {
    convertible(operands[0].dtype, 0, result.dtype, operands.len())
}

/// Whether elements can go from one type to another by way of F32 without loss on that way: integers are only
/// written from types that F32 holds exactly.
pub(super) fn convertible(
    from: DType,
    from_operand: usize,
    to: DType,
    to_operand: usize,
) -> Result<(), Reason> {
    let from_refused = Reason::DType { operand: from_operand, dtype: from };
    if from == to {
        Ok(())
    } else if !orlop_quant::supports_decode(from) {
        Err(from_refused)
    } else if to.is_integer() {
        let exact = match from {
            DType::F64 | DType::I64 => false,
            // Large numbers round, but not back into the range of the narrow types.
            DType::I32 => matches!(to, DType::I8 | DType::I16),
            _ => true,
        };
        if exact { Ok(()) } else { Err(from_refused) }
    } else if orlop_quant::supports_encode(to) {
        Ok(())
    } else {
        Err(Reason::DType { operand: to_operand, dtype: to })
    }
}

fn copy(task: &Task, thread: Thread, _: &mut [f32]) {
    let (src, dst) = (&task.src[0], &task.dst);
    if src.desc.dtype != dst.desc.dtype {
        convert(task.isa, src, dst, thread);
    } else if matches!(task.op, Op::Copy) && dst.touches(src) {
        if thread.is_first() {
            copy_within(src, dst);
        }
    } else {
        transfer(src, dst, thread);
    }
}

/// This thread as one of those that write a tensor: all do, but if elements share memory, one must write them in
/// order.
pub(super) fn writer(dst: &TensorDesc, thread: Thread) -> Option<Thread> {
    if apart(dst) {
        return Some(thread);
    }
    thread.is_first().then_some(Thread { index: 0, count: 1, ..thread })
}

/// Whether strides keep all blocks of a tensor apart. Strides so entangled that it cannot be told count as no.
fn apart(desc: &TensorDesc) -> bool {
    let mut dims = [0, 1, 2, 3].map(|dim| (desc.strides[dim], desc.extents[dim]));
    dims[0].1 /= desc.dtype.block_elements();
    if !dims.is_sorted() {
        dims.sort_unstable();
    }
    let mut reach = desc.dtype.block_bytes();
    for (stride, extent) in dims.into_iter().filter(|(_, extent)| *extent > 1) {
        if stride < reach {
            return false;
        }
        reach += stride * (extent - 1);
    }
    true
}

/// Blocks in a row.
fn blocks(desc: &TensorDesc) -> u64 {
    desc.extents[0] / desc.dtype.block_elements()
}

/// Moves this thread's part of all blocks, in element order; both tensors have as many.
fn transfer(src: &Src, dst: &Dst, thread: Thread) {
    let Some(thread) = writer(&dst.desc, thread) else { return };
    let (src, dst) = (src.viewed(merged(&src.desc)), dst.viewed(merged(&dst.desc)));
    let (from_row, to_row) = (blocks(&src.desc), blocks(&dst.desc));
    let all = thread.part(dst.desc.rows() * to_row);
    let (mut carrier, mut at) = (Carrier::new(), all.start);
    while at < all.end {
        let (from, to) = (at % from_row, at % to_row);
        let count = (all.end - at).min(from_row - from).min(to_row - to);
        carrier.copy(
            &src,
            (from, row_at(&src.desc, at / from_row)),
            &dst,
            (to, row_at(&dst.desc, at / to_row)),
            count,
        );
        at += count;
    }
}

/// A copy between places that may overlap: all is read before anything is written. One thread does it.
fn copy_within(src: &Src, dst: &Dst) {
    let size = src.desc.dtype.block_bytes();
    let [from_row, to_row] = [&src.desc, &dst.desc].map(|desc| (blocks(desc) * size) as usize);
    let mut bytes = vec![0; from_row * src.desc.rows() as usize];
    for (row, bytes) in bytes.chunks_exact_mut(from_row).enumerate() {
        src.read_blocks(0, row_at(&src.desc, row as u64), bytes);
    }
    for (row, bytes) in bytes.chunks_exact(to_row).enumerate() {
        dst.write_blocks(0, row_at(&dst.desc, row as u64), bytes);
    }
}

/// As [`transfer`], between types. Pieces are whole blocks of both: [`SPAN`] is, and rows are.
fn convert(isa: Isa, src: &Src, dst: &Dst, thread: Thread) {
    let Some(thread) = writer(&dst.desc, thread) else { return };
    let (src, dst) = (src.viewed(merged(&src.desc)), dst.viewed(merged(&dst.desc)));
    let elements = dst.desc.elements();
    let mut values = [0.0; SPAN];
    for piece in thread.part(elements.div_ceil(SPAN as u64)) {
        let start = piece * SPAN as u64;
        let values = &mut values[..(elements - start).min(SPAN as u64) as usize];
        in_rows(&src.desc, start, values.len(), |column, at, part| {
            src.read(isa, column, at, &mut values[part]);
        });
        in_rows(&dst.desc, start, values.len(), |column, at, part| {
            dst.write(isa, column, at, &values[part]);
        });
    }
}

/// The parts of rows that make up `length` elements from number `start` on.
fn in_rows(
    desc: &TensorDesc,
    start: u64,
    length: usize,
    mut each: impl FnMut(u64, RowIndex, std::ops::Range<usize>),
) {
    let (row, mut done) = (desc.extents[0], 0);
    while done < length {
        let at = start + done as u64;
        let count = (length - done).min((row - at % row) as usize);
        each(at % row, row_at(desc, at / row), done..done + count);
        done += count;
    }
}

/// Takes blocks from place to place through memory of its own.
pub(super) struct Carrier {
    buffer: [u8; 4096],
}

/// The number of a block in its row, and the row.
type BlockPlace = (u64, RowIndex);

impl Carrier {
    pub(super) fn new() -> Carrier {
        Carrier { buffer: [0; 4096] }
    }

    /// Moves neighbouring blocks. Places must not overlap unless they are the same.
    pub(super) fn copy(&mut self, src: &Src, from: BlockPlace, dst: &Dst, to: BlockPlace, count: u64) {
        let size = src.desc.dtype.block_bytes();
        let most = self.buffer.len() as u64 / size;
        let mut done = 0;
        while done < count {
            let step = most.min(count - done);
            let bytes = &mut self.buffer[..(step * size) as usize];
            src.read_blocks(from.0 + done, from.1, bytes);
            dst.write_blocks(to.0 + done, to.1, bytes);
            done += step;
        }
    }

    /// Writes zeros.
    fn clear(&mut self, dst: &Dst, to: BlockPlace, count: u64) {
        let size = dst.desc.dtype.block_bytes();
        let most = self.buffer.len() as u64 / size;
        self.buffer[..(most.min(count) * size) as usize].fill(0);
        let mut done = 0;
        while done < count {
            let step = most.min(count - done);
            dst.write_blocks(to.0 + done, to.1, &self.buffer[..(step * size) as usize]);
            done += step;
        }
    }
}

fn repeat(task: &Task, thread: Thread, _: &mut [f32]) {
    let (src, dst) = (&task.src[0], &task.dst);
    let (period, length) = (blocks(&src.desc), blocks(&dst.desc));
    let (mut carrier, written) = (Carrier::new(), dst.as_src());
    for row in thread.part(dst.desc.rows()) {
        let at = row_at(&dst.desc, row);
        carrier.copy(src, (0, repeated(&src.desc, at)), dst, (0, at), period);
        // What is there already is repeated as a whole, so short periods take few steps.
        let mut done = period;
        while done < length {
            let count = done.min(length - done);
            carrier.copy(&written, (0, at), dst, (done, at), count);
            done += count;
        }
    }
}

fn concat(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Concat { axis } = task.op else { return };
    let mut carrier = Carrier::new();
    for row in thread.part(task.dst.desc.rows()) {
        let to = row_at(&task.dst.desc, row);
        if axis == 0 {
            let mut column = 0;
            for src in &task.src {
                carrier.copy(src, (0, to), &task.dst, (column, to), blocks(&src.desc));
                column += blocks(&src.desc);
            }
            continue;
        }
        let (axis, mut from) = (usize::from(axis), to);
        for src in &task.src {
            let extent = src.desc.extents[axis];
            if from[axis - 1] < extent {
                carrier.copy(src, (0, from), &task.dst, (0, to), blocks(&src.desc));
                break;
            }
            from[axis - 1] -= extent;
        }
    }
}

fn pad(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Pad { before, .. } = task.op else { return };
    let (src, dst) = (&task.src[0], &task.dst);
    let (inner, length) = (src.desc.extents[0], dst.desc.extents[0]);
    let mut carrier = Carrier::new();
    for row in thread.part(dst.desc.rows()) {
        let to = row_at(&dst.desc, row);
        let from = [0, 1, 2].map(|dim| {
            let place = to[dim].checked_sub(before[dim + 1]);
            place.filter(|place| *place < src.desc.extents[dim + 1])
        });
        if let [Some(i1), Some(i2), Some(i3)] = from {
            carrier.clear(dst, (0, to), before[0]);
            carrier.copy(src, (0, [i1, i2, i3]), dst, (before[0], to), inner);
            carrier.clear(dst, (before[0] + inner, to), length - inner - before[0]);
        } else {
            carrier.clear(dst, (0, to), length);
        }
    }
}

fn roll(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Roll { shifts } = task.op else { return };
    let (src, dst) = (&task.src[0], &task.dst);
    let extents = dst.desc.extents;
    // The element that comes to the beginning of a dimension.
    let starts = [0, 1, 2, 3].map(|dim| (-i128::from(shifts[dim])).rem_euclid(extents[dim].into()) as u64);
    let mut carrier = Carrier::new();
    for row in thread.part(dst.desc.rows()) {
        let to = row_at(&dst.desc, row);
        let from = [0, 1, 2].map(|dim| {
            let until_end = extents[dim + 1] - starts[dim + 1];
            if to[dim] < until_end { to[dim] + starts[dim + 1] } else { to[dim] - until_end }
        });
        let until_end = extents[0] - starts[0];
        carrier.copy(src, (starts[0], from), dst, (0, to), until_end);
        carrier.copy(src, (0, from), dst, (until_end, to), starts[0]);
    }
}

fn arange(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Arange { start, step, .. } = task.op else { return };
    let mut values = [0.0; SPAN];
    for span in spans(&task.dst.desc, thread) {
        for (value, index) in values[..span.length].iter_mut().zip(span.column..) {
            *value = (f64::from(start) + f64::from(step) * index as f64) as f32;
        }
        task.dst.write_elements(span.column, span.at, &values[..span.length]);
    }
}

fn set(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Set(patch) = task.op else { return };
    if thread.phase == 0 {
        transfer(&task.src[0], &task.dst, thread);
    } else if let Some(region) = region(task, &patch) {
        transfer(&task.src[1], &region, thread);
    }
}

fn accumulate(task: &Task, thread: Thread, _: &mut [f32]) {
    let Op::Acc(patch) = task.op else { return };
    if thread.phase == 0 {
        return transfer(&task.src[0], &task.dst, thread);
    }
    let Some(region) = region(task, &patch) else { return };
    let Some(thread) = writer(&region.desc, thread) else { return };
    let (sums, mut values, mut added) = (region.as_src(), [0.0; SPAN], [0.0; SPAN]);
    for span in spans(&region.desc, thread) {
        let (values, added) = (&mut values[..span.length], &mut added[..span.length]);
        sums.read_elements(span.column, span.at, values);
        task.src[1].read_elements(span.column, span.at, added);
        values.iter_mut().zip(&*added).for_each(|(value, added)| *value += added);
        region.write_elements(span.column, span.at, values);
    }
}

/// Where a patch goes: `None` if it has no elements.
fn region(task: &Task, patch: &Patch) -> Option<Dst> {
    let (dtype, extents) = (task.dst.desc.dtype, task.src[1].desc.extents);
    let [s1, s2, s3] = patch.strides;
    let desc = TensorDesc { dtype, extents, strides: [dtype.block_bytes(), s1, s2, s3] };
    if desc.is_empty() { None } else { task.dst.region(patch.offset, desc) }
}
