//! What passes from one device to another, if it is to be F16.

use orlop_graph::{DType, Op, TensorId};

use crate::CutType;
use crate::draft::{GraphDraft, ModelPart};

impl GraphDraft<'_> {
    /// The part whose result a layer reads.
    pub(crate) fn part_behind(&self, layer: usize) -> ModelPart {
        layer.checked_sub(1).map_or(ModelPart::Input, ModelPart::Layer)
    }

    /// What a part reads of the result of the one before: where they are on two devices, it may pass as F16.
    pub(crate) fn pass_on(&mut self, x: TensorId, parts: [ModelPart; 2]) -> TensorId {
        let [from, to] = parts.map(|part| self.spec.layout.device(part));
        if self.spec.cut == CutType::F32 || from == to {
            return x;
        }
        let halves = self.b.node(Op::Cast { dtype: DType::F16 }, &[x]);
        let floats = self.b.node(Op::Cast { dtype: DType::F32 }, &[halves]);
        self.assigned.extend([halves, floats].into_iter().zip(parts));
        floats
    }
}
