//! The reference device's programs: nodes, and the places of their tensors.

use std::any::Any;
use std::sync::Arc;

use orlop_backend::{
    Bindings, Device, DeviceError, NodeQuery, Operand, Program, Slot, StepValue, Steps, StoredTensor,
    Support, Touch, touched,
};
use orlop_graph::{Node, NodeId, TensorId};

/// Nodes at their places. The bindings hold the graph and the buffers.
#[derive(Debug)]
pub(crate) struct ReferenceProgram {
    /// The name of the device that compiled it; all objects of the device share the allocation.
    pub(crate) device: Arc<str>,
    pub(crate) bindings: Bindings,
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) max_threads: usize,
    touched: Vec<Touch>,
}

impl ReferenceProgram {
    pub(crate) fn new(
        device: &dyn Device,
        name: Arc<str>,
        steps: &Steps,
        bindings: &Bindings,
    ) -> Result<ReferenceProgram, DeviceError> {
        let foreign = |what| DeviceError::Foreign {
            what,
            owner: "another device's lowering".to_owned(),
            device: name.to_string(),
        };
        let mut nodes = Vec::with_capacity(steps.steps.len());
        for step in &steps.steps {
            let [id] = step.nodes[..] else { return Err(foreign("a step of several nodes or none")) };
            let node = bindings.graph.nodes().get(id.index()).ok_or_else(|| foreign("a node"))?;
            if step.kernel != node.op.name() {
                return Err(foreign("a kernel"));
            }
            check_places(device, node, bindings)?;
            nodes.push(id);
        }
        let touched = touched(steps, bindings)?;
        let max_threads = steps.options.max_threads;
        Ok(ReferenceProgram { device: name, bindings: bindings.clone(), nodes, max_threads, touched })
    }
}

/// Every operand and the result have a place that is large enough and that the device reaches.
fn check_places(device: &dyn Device, node: &Node, bindings: &Bindings) -> Result<(), DeviceError> {
    let slot = |id: TensorId| -> Result<&Slot, DeviceError> {
        let slot = bindings.slot(StepValue::Tensor(id))?;
        let tensor = bindings.graph.tensor(id);
        StoredTensor::new(tensor.name.as_str(), tensor.desc, slot.clone())?;
        Ok(slot)
    };
    let operand = |id: &TensorId| -> Result<Operand<'_>, DeviceError> {
        let buffer_type = Some(slot(*id)?.buffer.buffer_type());
        Ok(Operand { desc: &bindings.graph.tensor(*id).desc, buffer_type })
    };
    let inputs: Vec<Operand<'_>> = node.inputs.iter().map(operand).collect::<Result<_, _>>()?;
    let query = NodeQuery { op: &node.op, inputs: &inputs, output: operand(&node.output)? };
    match device.supports(&query) {
        Support::Yes { .. } => Ok(()),
        Support::No(reason) => Err(DeviceError::Unsupported {
            device: device.name().to_owned(),
            op: node.op.name().to_owned(),
            tensor: bindings.graph.tensor(node.output).name.clone(),
            reason,
        }),
    }
}

impl Program for ReferenceProgram {
    fn touches(&self) -> &[Touch] {
        &self.touched
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
