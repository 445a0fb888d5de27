//! Machines that are not here, described by numbers: models can be planned for them, and nothing runs.

use std::sync::Arc;

use orlop_backend::{
    Bindings, Buffer, BufferType, Device, DeviceClass, DeviceError, DeviceFacts, Link, LowerOptions, Memory,
    NodeQuery, Program, Queue, Reason, Role, Segment, StagingMemory, Steps, Support, same_type,
};
use orlop_graph::Op;

use crate::{DeviceSpeeds, Error, Machine};

/// A machine in numbers; [`MachineDescription::machine`] plans for it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct MachineDescription {
    /// Its devices, most preferred first.
    pub devices: Vec<DeviceDescription>,
    /// Links between devices and the host, whose device is of kind `cpu`. Devices without links are on the host's memory bus.
    #[cfg_attr(feature = "serde", serde(default))]
    pub links: Vec<LinkDescription>,
}

/// A device in numbers.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct DeviceDescription {
    /// Its name.
    pub name: String,
    /// `cpu` for the host's processor; else what it is, such as `cuda`.
    pub kind: String,
    /// Bytes that may be used.
    pub memory_bytes: u64,
    /// Bytes a second that it reads from its memory.
    pub read_bytes_per_s: f64,
    /// Operations a second.
    pub flops: FlopsDescription,
    /// Seconds to start one step.
    pub launch_s: f64,
}

/// Operations a second in large products.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct FlopsDescription {
    /// Of floats.
    pub f16: f64,
    /// Of quantized weights with activations in 8 bits.
    pub i8: f64,
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct LinkDescription {
    /// Name of the device that sends.
    pub from: String,
    /// Name of the device that receives.
    pub to: String,
    /// Seconds before the first byte.
    pub latency_s: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

const HOST_KIND: &str = "cpu";

impl MachineDescription {
    /// A machine to plan for.
    ///
    /// # Errors
    /// [`Error::BadDescription`] for numbers that no machine has and links without the host; and as [`Machine::new`].
    pub fn machine(&self) -> Result<Machine, Error> {
        let bad = |what: String| Err(Error::BadDescription(what));
        for device in &self.devices {
            let DeviceDescription { name, read_bytes_per_s, flops, launch_s, .. } = device;
            let rates = [*read_bytes_per_s, flops.f16, flops.i8];
            if !rates.iter().all(|rate| rate.is_finite() && *rate > 0.0) || !(0.0..1.0).contains(launch_s) {
                return bad(format!(
                    "the speeds of `{name}` must be positive, and starting a step takes less than a second"
                ));
            }
        }
        for LinkDescription { from, to, latency_s, bytes_per_s } in &self.links {
            let [from, to] = [from, to].map(|name| self.devices.iter().find(|device| device.name == *name));
            let (Some(from), Some(to)) = (from, to) else {
                return bad("a link names a device that is not among the devices".to_owned());
            };
            if (from.kind == HOST_KIND) == (to.kind == HOST_KIND) {
                return bad(format!(
                    "the link from `{}` to `{}` must have the host's cpu at one end",
                    from.name, to.name
                ));
            }
            if !(bytes_per_s.is_finite() && *bytes_per_s > 0.0 && (0.0..1.0).contains(latency_s)) {
                return bad(format!("the link from `{}` to `{}` needs a positive speed", from.name, to.name));
            }
        }
        let devices = self.devices.iter().map(|device| DescribedDevice::of(device, self) as Arc<dyn Device>);
        let mut machine = Machine::new(devices)?;
        for (ix, device) in machine.indices().zip(&self.devices) {
            let stated = DeviceSpeeds::stated(machine.facts(ix));
            let back = self.links.iter().find(|link| link.from == device.name && device.kind != HOST_KIND);
            let speeds = DeviceSpeeds {
                quantized_flops: device.flops.i8,
                to_host_bytes_per_second: back.map_or(stated.host_bytes_per_second, |link| link.bytes_per_s),
                ..stated
            };
            machine = machine.calibrated(ix, speeds)?;
        }
        Ok(machine)
    }
}

/// A device that is only described: it accepts every node, and runs none.
#[derive(Debug)]
struct DescribedDevice {
    description: DeviceDescription,
    host_link: Link,
    memory: [Arc<dyn BufferType>; 1],
}

impl DescribedDevice {
    fn of(description: &DeviceDescription, machine: &MachineDescription) -> Arc<DescribedDevice> {
        let DeviceDescription { name, kind, read_bytes_per_s, .. } = description;
        let here = machine.links.iter().find(|link| link.to == *name && kind != HOST_KIND);
        let bus = Link { bytes_per_second: *read_bytes_per_s, latency_seconds: 0.0 };
        let host_link = here
            .map_or(bus, |link| Link { bytes_per_second: link.bytes_per_s, latency_seconds: link.latency_s });
        let memory = DescribedMemory { name: name.clone(), is_host: kind == HOST_KIND };
        Arc::new(DescribedDevice { description: description.clone(), host_link, memory: [Arc::new(memory)] })
    }

    fn is_host(&self) -> bool {
        self.description.kind == HOST_KIND
    }

    fn is_absent(&self) -> DeviceError {
        let reason = "it is described, and not a device of this machine".to_owned();
        DeviceError::Lost { device: self.description.name.clone(), reason }
    }
}

/// Rows from which a product is worth bringing its weights over.
const MANY_ROWS: u64 = 32;

impl Device for DescribedDevice {
    fn name(&self) -> &str {
        &self.description.name
    }

    fn facts(&self) -> DeviceFacts {
        let DeviceDescription { kind, memory_bytes, read_bytes_per_s, flops, launch_s, .. } =
            &self.description;
        DeviceFacts {
            description: format!("described, {kind}"),
            class: if self.is_host() { DeviceClass::Cpu } else { DeviceClass::Gpu },
            memory: Some(Memory { total: *memory_bytes, free: *memory_bytes }),
            flops: flops.f16,
            bytes_per_second: *read_bytes_per_s,
            cache_bytes: 0,
            launch_seconds: *launch_s,
            host_link: self.host_link,
            staging: StagingMemory::default(),
            asynchronous: !self.is_host(),
            lost: false,
        }
    }

    fn buffer_types(&self, _: Role) -> &[Arc<dyn BufferType>] {
        &self.memory
    }

    fn supports(&self, node: &NodeQuery<'_>) -> Support {
        let elsewhere = |buffer_type: &&Arc<dyn BufferType>| !same_type(buffer_type, &self.memory[0]);
        let operands = node.inputs.iter().chain([&node.output]).map(|operand| operand.buffer_type);
        for (operand, buffer_type) in operands.enumerate() {
            if let Some(buffer_type) = buffer_type.filter(elsewhere) {
                return Support::No(Reason::BufferType {
                    operand,
                    buffer_type: buffer_type.name().to_owned(),
                });
            }
        }
        let rows = node.inputs.get(1).map_or(0, |operand| operand.desc.extents[1]);
        let is_product = matches!(node.op, Op::MulMat | Op::MulMatId | Op::MulMatSome);
        Support::Yes { wants_offload: is_product && rows >= MANY_ROWS && !self.is_host() }
    }

    fn lower(&self, segment: &Segment<'_>, options: &LowerOptions) -> Result<Steps, DeviceError> {
        segment.one_step_per_node(self, options)
    }

    fn steps_may_move(&self) -> bool {
        true
    }

    fn compile(&self, _: &Steps, _: &Bindings) -> Result<Arc<dyn Program>, DeviceError> {
        Err(self.is_absent())
    }

    fn queue(&self) -> Result<Box<dyn Queue>, DeviceError> {
        Err(self.is_absent())
    }
}

/// Memory of a described device; there is none to allocate.
#[derive(Debug)]
struct DescribedMemory {
    name: String,
    is_host: bool,
}

impl BufferType for DescribedMemory {
    fn name(&self) -> &str {
        &self.name
    }

    fn alignment(&self) -> u64 {
        256
    }

    fn is_host(&self) -> bool {
        self.is_host
    }

    fn allocate(self: Arc<Self>, bytes: u64) -> Result<Arc<dyn Buffer>, DeviceError> {
        Err(DeviceError::OutOfMemory { buffer_type: self.name.clone(), bytes })
    }
}
