//! Copies between tensors in any two buffers.

use std::sync::Arc;

use orlop_graph::AccessKind;

use crate::{Buffer, Claim, DeviceError, MemoryLayout, StoredTensor};

/// How a copy went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyRoute {
    /// Source and destination are one place, or there are no elements: there was nothing to do.
    Identical,
    /// The destination's device fetched it.
    Pulled,
    /// The source's device sent it.
    Pushed,
    /// Through host memory, as neither device reaches the other.
    Bounced,
}

/// Bytes of host memory that a bounced copy uses at most.
const BOUNCE_BYTES: u64 = 1 << 20;

/// Copies one tensor's elements into another of the same element type and extents, wherever they lie. Gaps
/// between the destination's elements keep what they held. Places may overlap, and a copy of a tensor to its
/// own place does nothing, whatever claims and layout the buffer has.
///
/// # Errors
/// [`DeviceError::LayoutMismatch`], [`DeviceError::Busy`], [`DeviceError::ReadOnly`],
/// [`DeviceError::PrivateLayout`] unless both tensors have plain layouts.
pub fn copy(from: &StoredTensor, to: &StoredTensor) -> Result<CopyRoute, DeviceError> {
    if nothing_to_do(from, to)? {
        return Ok(CopyRoute::Identical);
    }
    let (source, target) = (&*from.slot().buffer, &*to.slot().buffer);
    if same_buffer(from, to) {
        let both = Claim::take(target, AccessKind::Write)?;
        return copy_claimed(from, to, [&both, &both]);
    }
    let read = Claim::take(source, AccessKind::Read)?;
    let write = Claim::take(target, AccessKind::Write)?;
    copy_claimed(from, to, [&read, &write])
}

/// As [`copy`], under claims that the caller holds: to read the source, and to write the destination.
///
/// # Errors
/// As [`copy`], and [`DeviceError::NotClaimed`].
pub fn copy_claimed(
    from: &StoredTensor,
    to: &StoredTensor,
    [read, write]: [&Claim; 2],
) -> Result<CopyRoute, DeviceError> {
    if nothing_to_do(from, to)? {
        return Ok(CopyRoute::Identical);
    }
    let (source, target) = (&*from.slot().buffer, &*to.slot().buffer);
    let (mut from_runs, mut to_runs) = (from.desc().runs(), to.desc().runs());
    let overlap = same_buffer(from, to) && {
        let (a, b) = (from.slot().offset, to.slot().offset);
        a < b + to.desc().bytes() && b < a + from.desc().bytes()
    };
    if overlap {
        // Run by run, a later run's source could be overwritten before it is read.
        let all = from.desc().row_bytes().saturating_mul(from.desc().rows());
        let mut elements = host_memory(all)?;
        let run = (from_runs.run_bytes() as usize).max(1);
        for (piece, at) in elements.chunks_exact_mut(run).zip(from_runs) {
            source.read(read, from.slot().offset + at, piece)?;
        }
        let run = (to_runs.run_bytes() as usize).max(1);
        for (piece, at) in elements.chunks_exact(run).zip(to_runs) {
            target.write(write, to.slot().offset + at, piece)?;
        }
        return Ok(CopyRoute::Bounced);
    }
    // Runs of both sides cut to a common length: a run is a block, or as many of the same innermost extents
    // as lie together, so the shorter divides the longer.
    let piece = from_runs.run_bytes().min(to_runs.run_bytes());
    let mut bounce = Vec::new();
    let mut route = CopyRoute::Identical;
    let mut positions = (Position::default(), Position::default());
    while let Some(from_at) = positions.0.next(&mut from_runs, piece) {
        let Some(to_at) = positions.1.next(&mut to_runs, piece) else { break };
        let (start, at) = (from.slot().offset + from_at, to.slot().offset + to_at);
        if target.pull([write, read], at, source, start..start + piece)? {
            route = CopyRoute::Pulled;
        } else if source.push([read, write], start..start + piece, target, at)? {
            route = CopyRoute::Pushed;
        } else {
            if bounce.is_empty() {
                bounce = host_memory(piece.min(BOUNCE_BYTES))?;
            }
            copy_bytes(source, target, [read, write], [start, at, piece], &mut bounce)?;
            route = CopyRoute::Bounced;
        }
    }
    Ok(route)
}

/// The route that a copy would take, under claims as for [`copy_claimed`]. Nothing is copied.
///
/// # Errors
/// As [`copy_claimed`].
pub fn copy_route(
    from: &StoredTensor,
    to: &StoredTensor,
    [read, write]: [&Claim; 2],
) -> Result<CopyRoute, DeviceError> {
    if nothing_to_do(from, to)? {
        return Ok(CopyRoute::Identical);
    }
    let (source, target) = (&*from.slot().buffer, &*to.slot().buffer);
    // A device that can copy a range can copy an empty one.
    let (start, at) = (from.slot().offset, to.slot().offset);
    Ok(match () {
        () if target.pull([write, read], at, source, start..start)? => CopyRoute::Pulled,
        () if source.push([read, write], start..start, target, at)? => CopyRoute::Pushed,
        () => CopyRoute::Bounced,
    })
}

/// Zeroed memory for bytes on their way.
pub(crate) fn host_memory(bytes: u64) -> Result<Vec<u8>, DeviceError> {
    let mut memory = Vec::new();
    let reserved = usize::try_from(bytes).is_ok_and(|bytes| memory.try_reserve_exact(bytes).is_ok());
    if !reserved {
        return Err(DeviceError::OutOfMemory { buffer_type: "host memory for a copy".to_owned(), bytes });
    }
    memory.resize(bytes as usize, 0);
    Ok(memory)
}

fn copy_bytes(
    source: &dyn Buffer,
    target: &dyn Buffer,
    [read, write]: [&Claim; 2],
    [start, at, bytes]: [u64; 3],
    bounce: &mut [u8],
) -> Result<(), DeviceError> {
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(bounce.len() as u64);
        let part = &mut bounce[..part as usize];
        source.read(read, start + done, part)?;
        target.write(write, at + done, part)?;
        done += part.len() as u64;
    }
    Ok(())
}

fn same_buffer(from: &StoredTensor, to: &StoredTensor) -> bool {
    Arc::ptr_eq(from.slot().buffer.gate(), to.slot().buffer.gate())
}

/// Whether the two are one place or have no elements; if not, whether they can be copied at all.
fn nothing_to_do(from: &StoredTensor, to: &StoredTensor) -> Result<bool, DeviceError> {
    let (a, b) = (from.desc(), to.desc());
    if a == b && from.slot().offset == to.slot().offset && same_buffer(from, to) {
        return Ok(true);
    }
    if a.dtype != b.dtype || a.extents != b.extents {
        return Err(DeviceError::LayoutMismatch {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            descs: Box::new([*a, *b]),
        });
    }
    for tensor in [from, to] {
        if tensor.slot().buffer.buffer_type().layout() == MemoryLayout::Private {
            tensor.refuse_private("it can only be set and read")?;
        }
    }
    Ok(a.row_bytes() == 0 || a.is_empty())
}

/// Where a side of the copy stands inside its current run.
#[derive(Default)]
struct Position {
    run: u64,
    done: u64,
    left: u64,
}

impl Position {
    fn next(&mut self, runs: &mut orlop_graph::Runs, piece: u64) -> Option<u64> {
        if self.left == 0 {
            self.run = runs.next()?;
            self.done = 0;
            self.left = runs.run_bytes();
        }
        let at = self.run + self.done;
        self.done += piece;
        self.left -= piece;
        Some(at)
    }
}
