//! Nodes as steps: one for each, and before them one for the masks of attention.

use orlop_backend::{Device, DeviceError, LowerOptions, Reason, Segment, Step, StepEditor, StepValue, Steps};
use orlop_graph::{DType, Glu, Graph, NodeId, Op, TensorDesc};

use super::device::RpcDevice;
use super::masks::{MaskKey, parts_of};

/// The kernel of the step that makes masks. It comes first: what the host sends for it must not lie where earlier steps write.
pub(super) const MASKS: &str = "attention masks";

pub(super) fn lower(
    device: &RpcDevice,
    segment: &Segment<'_>,
    options: &LowerOptions,
) -> Result<Steps, DeviceError> {
    let graph = segment.graph;
    let mut editor = StepEditor::new(device, segment, options)?;
    let keys = MaskKey::all(graph, segment.nodes.iter().copied());
    let mut masks = Step {
        kernel: MASKS.into(),
        nodes: Vec::new(),
        reads: Vec::new(),
        writes: Vec::new(),
        may_overwrite: Vec::new(),
    };
    for key in &keys {
        if let Some(tensor) = key.computed(segment) {
            return Err(DeviceError::Unsupported {
                device: device.name().to_owned(),
                op: "flash_attention".to_owned(),
                tensor: graph.tensor(tensor).name.clone(),
                reason: Reason::BufferType {
                    operand: 3,
                    buffer_type: "a result of the same split".to_owned(),
                },
            });
        }
        masks.reads.extend(key.operands().map(StepValue::Tensor));
        for (name, bytes) in key.temporaries() {
            masks.writes.push(editor.temporary(name.to_owned(), bytes));
        }
    }
    for index in 0..editor.steps.len() {
        let node = editor.steps[index].nodes[0];
        let extra = extra(device, graph, node)?;
        let values: Vec<StepValue> = extra.all().map(|(name, bytes)| editor.temporary(name, bytes)).collect();
        let step = &mut editor.steps[index];
        step.writes.extend(values);
        step.may_overwrite.retain(|_| is_in_place(&graph.node(node).op));
        if let Some(mask) = mask_of(graph, node, &keys) {
            step.reads.push(parts_of(&masks.writes, mask)[3]);
        }
    }
    if !keys.is_empty() {
        editor.steps.insert(0, masks);
    }
    Ok(editor.finish())
}

/// Which mask a node reads.
pub(super) fn mask_of(graph: &Graph, node: NodeId, keys: &[MaskKey]) -> Option<usize> {
    let key = MaskKey::of(graph, node)?;
    keys.iter().position(|known| *known == key)
}

/// Memory that a node needs beside its result, as the writes behind it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    /// Operands in the form that ggml's op takes: sorted numbers for TopK, a mask of F16 for attention; what a quick GELU is
    /// computed in.
    pub(super) prepared: Option<TensorDesc>,
    /// The result with scratch behind it, where a backend wants that: it is copied afterwards.
    pub(super) tail: Option<u64>,
}

impl Extra {
    fn all(&self) -> impl Iterator<Item = (String, u64)> {
        let prepared = self.prepared.map(|desc| ("a prepared operand".to_owned(), desc.bytes()));
        prepared.into_iter().chain(self.tail.map(|bytes| ("a result with scratch".to_owned(), bytes)))
    }
}

pub(super) fn extra(device: &RpcDevice, graph: &Graph, node: NodeId) -> Result<Extra, DeviceError> {
    let node = graph.node(node);
    let desc = |slot: usize| graph.tensor(node.inputs[slot]).desc;
    let of = |dtype, desc: TensorDesc| TensorDesc::contiguous(dtype, &desc.extents).ok();
    let prepared = match &node.op {
        Op::TopK { .. } => of(DType::I32, desc(0)),
        op if is_quick(op) && node.inputs.len() == 2 => Some(desc(0)).filter(TensorDesc::is_contiguous),
        Op::FlashAttention(attention) => {
            let mask = attention.mask_slot().map(desc).filter(|mask| mask.dtype == DType::F32);
            mask.and_then(|mask| of(DType::F16, mask))
        }
        _ => None,
    };
    let inputs: Vec<TensorDesc> = (0..node.inputs.len()).map(desc).collect();
    let tail = device.scratch(&node.op, &inputs, &graph.tensor(node.output).desc)?;
    Ok(Extra { prepared, tail })
}

/// Whether an op is a gate for which ggml has a table of F16, and for which other ops are exact.
pub(super) fn is_quick(op: &Op) -> bool {
    matches!(op, Op::Gated { gate: Glu::GeluQuick, .. })
}

/// Whether ggml's allocator lets results of the op take an operand's place.
fn is_in_place(op: &Op) -> bool {
    use orlop_graph::Unary;
    match op {
        Op::Unary(function) => !matches!(function, Unary::Sin | Unary::Cos),
        Op::Add | Op::Add1 | Op::Sub | Op::Mul | Op::Div | Op::Scale { .. } => true,
        Op::DiagMaskInf { .. } | Op::DiagMaskZero { .. } | Op::Rope(_) | Op::RmsNorm { .. } => true,
        Op::SoftMax(_) => true,
        _ => false,
    }
}
