use orlop_backend::{Device, DeviceError, LowerOptions, Segment, Steps};

/// A segment as this device runs it: one step a node.
pub(crate) fn lower(
    device: &dyn Device,
    segment: &Segment<'_>,
    options: &LowerOptions,
) -> Result<Steps, DeviceError> {
    segment.refuse_overlaps(device)?;
    segment.one_step_per_node(device, options)
}
