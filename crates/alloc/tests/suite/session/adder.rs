//! A device whose nodes write the sum of their operands, byte by byte, and one more; copies only copy.

use std::any::Any;
use std::sync::Arc;

use orlop_backend::{
    Bindings, BufferType, Claims, Device, DeviceClass, DeviceError, DeviceFacts, Event, Link, LowerOptions,
    NodeQuery, Program, Queue, Role, RunOptions, Segment, StepValue, Steps, StoredTensor, Support, Touch,
    touched,
};
use orlop_graph::AccessKind;

#[derive(Debug)]
pub(crate) struct Adder {
    types: [Arc<dyn BufferType>; 1],
}

impl Adder {
    pub(crate) fn new(arena: Arc<dyn BufferType>) -> Arc<Adder> {
        Arc::new(Adder { types: [arena] })
    }
}

impl Device for Adder {
    fn name(&self) -> &str {
        "adder"
    }

    fn facts(&self) -> DeviceFacts {
        DeviceFacts {
            description: "adds bytes".to_owned(),
            class: DeviceClass::Test,
            memory: None,
            flops: 1.0,
            bytes_per_second: 1.0,
            launch_seconds: 0.0,
            host_link: Link { bytes_per_second: 1.0, latency_seconds: 0.0 },
            asynchronous: false,
            lost: false,
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.types
    }

    fn supports(&self, _: &NodeQuery<'_>) -> Support {
        Support::YES
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        segment.one_step_per_node(self, options)
    }

    fn compile(&self, steps: &Steps, bindings: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        let touches = touched(steps, bindings)?;
        Ok(Arc::new(Sums { steps: steps.clone(), bindings: bindings.clone(), touches }))
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(AdderQueue))
    }
}

#[derive(Debug)]
struct Sums {
    steps: Steps,
    bindings: Bindings,
    touches: Vec<Touch>,
}

impl Program for Sums {
    fn touches(&self) -> &[Touch] {
        &self.touches
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Sums {
    fn bytes(&self, value: StepValue) -> usize {
        match value {
            StepValue::Tensor(id) => self.bindings.graph.tensor(id).desc.bytes() as usize,
            StepValue::Temporary(index) => self.steps.temporaries[index].bytes as usize,
        }
    }

    fn read(&self, value: StepValue, claims: &Claims) -> Result<Vec<u8>, DeviceError> {
        let slot = self.bindings.slot(value)?;
        let mut bytes = vec![0; self.bytes(value)];
        // SAFETY: `lend` asks that no other lent claim writes these bytes meanwhile: one is lent at a time.
        let claim = unsafe { claims.lend(&*slot.buffer, AccessKind::Read) }?;
        slot.buffer.read(&claim, slot.offset, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&self, value: StepValue, bytes: &[u8], claims: &Claims) -> Result<(), DeviceError> {
        let slot = self.bindings.slot(value)?;
        // SAFETY: `lend` asks that no other lent claim touches these bytes meanwhile: one is lent at a time.
        let claim = unsafe { claims.lend(&*slot.buffer, AccessKind::Write) }?;
        slot.buffer.write(&claim, slot.offset, bytes)
    }
}

#[derive(Debug)]
struct AdderQueue;

impl Queue for AdderQueue {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        _: &RunOptions,
    ) -> Result<(), DeviceError> {
        let Some(program) = program.as_any().downcast_ref::<Sums>() else { unreachable!("its own programs") };
        for step in &program.steps.steps {
            let is_copy = step.kernel == "copy";
            let operands = if is_copy { &step.reads[..1] } else { &step.reads };
            for write in &step.writes {
                let mut sum = vec![u8::from(!is_copy); program.bytes(*write)];
                for read in operands {
                    let bytes = program.read(*read, claims)?;
                    sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum = sum.wrapping_add(byte));
                }
                program.write(*write, &sum, claims)?;
            }
        }
        Ok(())
    }

    unsafe fn copy(&mut self, _: &StoredTensor, _: &StoredTensor, _: &Claims) -> Result<(), DeviceError> {
        unreachable!("sessions on one device copy nothing")
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, DeviceError> {
        unreachable!("sessions on one device wait for everything")
    }

    fn wait(&mut self, _: &Arc<dyn Event>) -> Result<(), DeviceError> {
        unreachable!("sessions on one device wait for everything")
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}
