//! Runs a graph where a [`GraphAllocator`](crate::GraphAllocator) has placed it.

use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Claims, Device, LowerOptions, Role, RunOptions, Segment, Slot, StepValue, Steps,
};
use orlop_graph::{NodeId, TensorId};

use crate::{Allocation, Error};

impl Allocation {
    /// Runs the graph once on a device that reaches all of its memory, without fusion, and waits for the results.
    ///
    /// Every tensor that has a place is written there, as the plan says. Temporaries of the device are allocated for this
    /// run. A session (`orlop-sched`) prepares a graph once and runs it many times, fused.
    ///
    /// # Errors
    /// [`Error::NotAsPlaced`] if the device's kernel cannot work in place where the plan does, and what the device refuses or
    /// meets.
    pub fn run(&self, device: &dyn Device, options: &RunOptions) -> Result<(), Error> {
        let graph = &self.graph;
        let order = self.assignment.order.clone().unwrap_or_else(|| graph.order());
        let nodes: Vec<NodeId> = order.groups().flatten().copied().collect();
        let lies = |slot: &Option<Slot>| slot.as_ref().map(|slot| Arc::clone(slot.buffer.buffer_type()));
        let buffer_types: Vec<Option<Arc<dyn BufferType>>> = self.slots().iter().map(lies).collect();
        let escapes = vec![true; buffer_types.len()];
        let segment = Segment { graph, nodes: &nodes, buffer_types: &buffer_types, escapes: &escapes };
        let lower = LowerOptions {
            max_threads: options.threads.unwrap_or(1),
            fusion: false,
            ..LowerOptions::default()
        };
        let steps = device.lower(&segment, &lower)?;
        self.check_in_place(&steps)?;
        let bindings = Bindings {
            graph: graph.clone(),
            tensors: graph.tensor_ids().filter_map(|id| Some((id, self.slot(id)?.clone()))).collect(),
            temporaries: temporaries(device, &steps)?,
        };
        let program = device.compile(&steps, &bindings)?;
        let mut queue = device.queue()?;
        let claims = Claims::take(program.touches().iter().map(|(buffer, kind)| (buffer, *kind)))?;
        // SAFETY: `submit` asks that other queues do not interfere under the same claims, and there are none; and that a
        // result lies on nothing that is still needed, which the plan keeps for these nodes in this order, and on an operand
        // only where the step may overwrite it, which `check_in_place` has checked.
        let submitted = unsafe { queue.submit(&program, &claims, options) };
        // Work that was submitted before an error still holds the claims.
        let finished = queue.sync();
        Ok(submitted.and(finished)?)
    }

    /// A result may share bytes with an operand of another storage only where the device's step may overwrite it.
    fn check_in_place(&self, steps: &Steps) -> Result<(), Error> {
        for step in &steps.steps {
            for (write, output) in step.writes.iter().enumerate() {
                for (read, input) in step.reads.iter().enumerate() {
                    let (StepValue::Tensor(output), StepValue::Tensor(input)) = (*output, *input) else {
                        continue;
                    };
                    let allowed =
                        step.may_overwrite.iter().any(|pair| (pair.write, pair.read) == (write, read));
                    if !allowed && self.overlap(output, input) {
                        let name = |id: TensorId| self.graph.tensor(id).name.clone();
                        return Err(Error::NotAsPlaced {
                            kernel: step.kernel.to_string(),
                            result: name(output),
                            operand: name(input),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether tensors of two storages share bytes.
    fn overlap(&self, a: TensorId, b: TensorId) -> bool {
        let root = |id: TensorId| self.graph.tensor(id).storage.root;
        let (Some(first), Some(second)) = (self.slot(a), self.slot(b)) else { return false };
        let end = |id: TensorId, slot: &Slot| slot.offset + self.graph.tensor(id).desc.bytes();
        root(a) != root(b)
            && Arc::ptr_eq(first.buffer.gate(), second.buffer.gate())
            && first.offset < end(b, second)
            && second.offset < end(a, first)
    }
}

/// Memory of a device's own for the temporaries of its steps.
fn temporaries(device: &dyn Device, steps: &Steps) -> Result<Vec<Slot>, Error> {
    let Some(memory) = device.buffer_types(Role::Arena).first() else {
        return Err(Error::NoBuffers);
    };
    let allocate = |bytes: u64| Ok(Slot { buffer: Arc::clone(memory).allocate(bytes)?, offset: 0 });
    steps.temporaries.iter().map(|temporary| allocate(temporary.bytes)).collect()
}
