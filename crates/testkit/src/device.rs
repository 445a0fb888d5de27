//! The reference device: supports, lowers and compiles.

use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, HostBufferType, Link, LowerOptions,
    MemoryLayout, NodeQuery, Operand, Program, Queue, Reason, Role, Segment, StagingMemory, Steps, Support,
};
use orlop_graph::{Op, TensorDesc};

use crate::elements::can_encode;
use crate::ops::{reads, rearranges};
use crate::program::ReferenceProgram;
use crate::queue::ReferenceQueue;

/// The device that others are compared with: scalar code in `f64`, one step a node, no fusion, no temporaries.
///
/// It computes every op but [`Op::Custom`](orlop_graph::Op::Custom), on operands of any strides, in every element type that
/// `orlop-quant` knows, in any buffer of plain layout. Ops that only move elements accept all element types.
#[derive(Debug)]
pub struct ReferenceDevice {
    name: Arc<str>,
    buffer_types: [Arc<dyn BufferType>; 1],
}

impl ReferenceDevice {
    /// A device named `reference`.
    pub fn new() -> Arc<ReferenceDevice> {
        ReferenceDevice::named("reference")
    }

    /// A device of another name, as those of one program must differ.
    pub fn named(name: &str) -> Arc<ReferenceDevice> {
        Arc::new(ReferenceDevice { name: Arc::from(name), buffer_types: [HostBufferType::new(name)] })
    }
}

impl Device for ReferenceDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            description: "scalar f64 reference".to_owned(),
            class: DeviceClass::Test,
            memory: None,
            flops: 1e8,
            bytes_per_second: 1e9,
            cache_bytes: 0,
            launch_seconds: 1e-6,
            host_link: Link { bytes_per_second: 1e10, latency_seconds: 0.0 },
            staging: StagingMemory::default(),
            asynchronous: false,
            lost: false,
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.buffer_types
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        match refusal(node) {
            None => Support::YES,
            Some(reason) => Support::No(reason),
        }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        segment.one_step_per_node(self, options)
    }

    fn steps_may_move(&self) -> bool {
        true
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        Ok(Arc::new(ReferenceProgram::new(self, Arc::clone(&self.name), steps, bindings)?))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(ReferenceQueue::new(Arc::clone(&self.name))))
    }
}

fn refusal(node: &NodeQuery<'_>) -> Option<Reason> {
    if matches!(node.op, Op::Custom { .. }) {
        return Some(Reason::Op);
    }
    let all = || node.inputs.iter().chain([&node.output]).enumerate();
    let private = |operand: &Operand<'_>| {
        let buffer_type = operand.buffer_type.filter(|found| found.layout() == MemoryLayout::Private)?;
        Some(buffer_type.name().to_owned())
    };
    for (operand, described) in all() {
        if let Some(buffer_type) = private(described) {
            return Some(Reason::BufferType { operand, buffer_type });
        }
    }
    let descs: Vec<TensorDesc> = node.inputs.iter().map(|operand| *operand.desc).collect();
    // Sums at a place given in bytes are of plain floats, which have codecs.
    if node.op.is_view() || rearranges(node.op, &descs, node.output.desc) {
        return None;
    }
    let results = node.inputs.len();
    let unknown = |operand: usize, desc: &TensorDesc| {
        if operand == results {
            !can_encode(desc.dtype)
        } else {
            reads(node.op, operand) && !orlop_quant::supports_decode(desc.dtype)
        }
    };
    all()
        .find(|(operand, described)| unknown(*operand, described.desc))
        .map(|(operand, described)| Reason::DType { operand, dtype: described.desc.dtype })
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_backend::{Buffer, same_type};
    use orlop_graph::{DType, Op};

    #[derive(Debug)]
    struct Repacked;

    impl BufferType for Repacked {
        fn name(&self) -> &str {
            "repacked"
        }
        fn alignment(&self) -> u64 {
            64
        }
        fn layout(&self) -> MemoryLayout {
            MemoryLayout::Private
        }
        fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
            Err(DeviceError::OutOfMemory { buffer_type: "repacked".to_owned(), bytes })
        }
    }

    fn ask(op: &Op, inputs: &[TensorDesc], output: TensorDesc) -> Support {
        let plain = |desc| Operand { desc, buffer_type: None };
        let inputs: Vec<Operand<'_>> = inputs.iter().map(plain).collect();
        ReferenceDevice::new().supports(&NodeQuery { op, inputs: &inputs, output: plain(&output) })
    }

    #[test]
    fn private_layouts_are_refused() {
        let desc = TensorDesc::contiguous(DType::F32, &[4]).unwrap();
        let private: Arc<dyn BufferType> = Arc::new(Repacked);
        let plain = Operand { desc: &desc, buffer_type: None };
        let inputs = [plain, Operand { desc: &desc, buffer_type: Some(&private) }];
        let query = NodeQuery { op: &Op::Add, inputs: &inputs, output: plain };
        let reason = Reason::BufferType { operand: 1, buffer_type: "repacked".to_owned() };
        assert_eq!(ReferenceDevice::new().supports(&query), Support::No(reason));
    }

    #[test]
    fn custom_ops_are_refused() {
        let desc = TensorDesc::contiguous(DType::F32, &[1]).unwrap();
        let op = Op::Custom {
            name: "mine".to_owned(),
            dtype: DType::F32,
            extents: [1; 4],
            overwrites: Vec::new(),
        };
        assert_eq!(ask(&op, &[], desc), Support::No(Reason::Op));
    }

    #[test]
    fn every_role_has_the_same_aligned_host_memory() {
        let device = ReferenceDevice::named("oracle");
        assert_eq!(device.name(), "oracle");
        let [arena, weight] = [Role::Arena, Role::Weight].map(|role| &device.buffer_types(role)[0]);
        assert!(same_type(arena, weight));
        assert!(arena.is_host());
        assert_eq!(arena.alignment(), 64);
        assert_eq!(device.facts().class, DeviceClass::Test);
    }
}
