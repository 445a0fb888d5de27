use std::sync::Arc;

use orlop_graph::AccessKind;

use crate::{Buffer, Claim, DeviceError, Layout, StoredTensor};

/// How a copy went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyRoute {
    /// Source and destination are one place; there was nothing to do.
    Identical,
    /// The destination's device fetched it.
    Pulled,
    /// The source's device brought it.
    Pushed,
    /// Through host memory, as neither device reaches the other.
    Bounced,
}

/// Most bytes of host memory that a bounced copy takes at a time.
const BOUNCE_BYTES: u64 = 1 << 20;

/// Copies one tensor's elements into another of the same element type and extents, wherever they lie. Gaps
/// between the destination's elements keep what they held. Places may overlap if the strides agree.
///
/// # Errors
/// [`DeviceError::LayoutMismatch`], [`DeviceError::Busy`], [`DeviceError::ReadOnly`],
/// [`DeviceError::PrivateLayout`] unless both tensors have plain layouts.
pub fn copy(from: &StoredTensor, to: &StoredTensor) -> Result<CopyRoute, DeviceError> {
    let (source, target) = (&*from.slot().buffer, &*to.slot().buffer);
    let same = Arc::ptr_eq(source.gate(), target.gate());
    check(from, to)?;
    if same && from.slot().offset == to.slot().offset && from.desc().strides == to.desc().strides {
        return Ok(CopyRoute::Identical);
    }
    let write = Claim::take(target, AccessKind::Write)?;
    if same {
        return copy_claimed(from, to, [&write, &write]);
    }
    let read = Claim::take(source, AccessKind::Read)?;
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
    check(from, to)?;
    let (source, target) = (&*from.slot().buffer, &*to.slot().buffer);
    let same = Arc::ptr_eq(source.gate(), target.gate());
    let (mut from_runs, mut to_runs) = (from.desc().runs(), to.desc().runs());
    let overlap = same && {
        let (a, b) = (from.slot().offset, to.slot().offset);
        a < b + to.desc().bytes() && b < a + from.desc().bytes()
    };
    if overlap {
        // Run by run, a later run's source could be overwritten before it is read.
        let mut elements = Vec::new();
        let bytes = from_runs.run_bytes() as usize;
        for at in from_runs {
            let start = elements.len();
            elements.resize(start + bytes, 0);
            source.read(read, from.slot().offset + at, &mut elements[start..])?;
        }
        let bytes = to_runs.run_bytes() as usize;
        for (piece, at) in elements.chunks_exact(bytes.max(1)).zip(to_runs) {
            target.write(write, to.slot().offset + at, piece)?;
        }
        return Ok(CopyRoute::Bounced);
    }
    // Runs of both sides cut to a common length: the shorter divides the longer, as both are whole rows of
    // the same extents or parts of them.
    let piece = gcd(from_runs.run_bytes(), to_runs.run_bytes());
    let mut route = CopyRoute::Identical;
    let mut positions = (Position::default(), Position::default());
    while let Some(from_at) = positions.0.next(&mut from_runs, piece) {
        let Some(to_at) = positions.1.next(&mut to_runs, piece) else { break };
        let (start, at) = (from.slot().offset + from_at, to.slot().offset + to_at);
        route = copy_bytes(source, target, [read, write], start, at, piece)?;
    }
    Ok(route)
}

fn copy_bytes(
    source: &dyn Buffer,
    target: &dyn Buffer,
    [read, write]: [&Claim; 2],
    start: u64,
    at: u64,
    bytes: u64,
) -> Result<CopyRoute, DeviceError> {
    if target.pull([write, read], at, source, start..start + bytes)? {
        return Ok(CopyRoute::Pulled);
    }
    if source.push([read, write], start..start + bytes, target, at)? {
        return Ok(CopyRoute::Pushed);
    }
    let mut bounce = vec![0; bytes.min(BOUNCE_BYTES) as usize];
    let mut done = 0;
    while done < bytes {
        let part = &mut bounce[..(bytes - done).min(BOUNCE_BYTES) as usize];
        source.read(read, start + done, part)?;
        target.write(write, at + done, part)?;
        done += part.len() as u64;
    }
    Ok(CopyRoute::Bounced)
}

fn check(from: &StoredTensor, to: &StoredTensor) -> Result<(), DeviceError> {
    let (a, b) = (from.desc(), to.desc());
    if a.dtype != b.dtype || a.extents != b.extents {
        return Err(DeviceError::LayoutMismatch {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            descs: Box::new([*a, *b]),
        });
    }
    for tensor in [from, to] {
        if tensor.slot().buffer.buffer_type().layout() == Layout::Private {
            tensor.refuse_private("it can only be set and read")?;
        }
    }
    Ok(())
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

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
