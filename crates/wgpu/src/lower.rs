//! Lowering: one step per node.

use orlop_backend::{Device, DeviceError, LowerOptions, Segment, Steps};

/// Lowers a segment to one step per node.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
) -> Result<Steps, DeviceError> {
    segment.refuse_overlaps(device)?;
    segment.one_step_per_node(device, options)
}
