//! `orlop devices`: the devices of this machine.

mod processor;

use std::sync::Arc;

use clap::Args;
use orlop::backend::{BufferType, Device, DeviceClass, DeviceFacts, Memory, MemoryLayout, Role};
use orlop::devices;
use serde::Serialize;

use crate::failure::Failure;
use crate::model_arguments::{device_options, no_device};
use crate::printer::Printer;
use crate::quantity::short_bytes;

const EXAMPLES: &str = "Examples:
  orlop devices
  orlop devices --json";

/// Arguments of `orlop devices`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArguments {
    /// Print JSON: a list of devices.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DeviceReport {
    name: String,
    class: String,
    description: String,
    /// Instruction set extensions of a CPU.
    features: Vec<&'static str>,
    total: Option<u64>,
    free: Option<u64>,
    /// Size limit of one buffer, if any.
    largest_buffer: Option<u64>,
    /// Alignment of tensors.
    alignment: Option<u64>,
    /// Memory types for weights, best first.
    weights: Vec<WeightMemory>,
    /// Whether it runs concurrently with the host.
    asynchronous: bool,
}

#[derive(Serialize)]
struct WeightMemory {
    name: String,
    /// Whether weights are stored in a private layout.
    repacked: bool,
    alignment: u64,
    max_bytes: u64,
}

/// The description and memory of a device.
pub(crate) fn described(facts: &DeviceFacts) -> String {
    let memory = facts
        .memory
        .map(|Memory { free, total }| format!("; {} of {} free", short_bytes(free), short_bytes(total)));
    facts.description.clone() + &memory.unwrap_or_default()
}

/// Lists the devices of this machine.
pub(crate) fn run(arguments: &DevicesArguments) -> Result<(), Failure> {
    let known = devices::all(&device_options()).map_err(no_device)?;
    let mut printer = Printer::new();
    if arguments.json {
        let described: Vec<DeviceReport> = known.iter().map(|device| DeviceReport::new(&**device)).collect();
        return printer.json(&described);
    }
    for device in &known {
        let facts = device.facts();
        printer.line(format!("{:<8} {}", device.name(), described(&facts)))?;
        let DeviceReport { weights, features, asynchronous, largest_buffer, .. } =
            DeviceReport::new(&**device);
        let weights: Vec<String> = weights.into_iter().map(|kind| kind.name).collect();
        let mode = if asynchronous { "; asynchronous" } else { "" };
        if !features.is_empty() {
            printer.line(format!("{:<8} features: {}", "", features.join(", ")))?;
        }
        printer.line(format!("{:<8} weight memory: {}{mode}", "", weights.join(", ")))?;
        if let Some(bytes) = largest_buffer {
            printer.line(format!("{:<8} maximum buffer size: {}", "", short_bytes(bytes)))?;
        }
    }
    Ok(())
}

impl DeviceReport {
    fn new(device: &dyn Device) -> DeviceReport {
        let facts = device.facts();
        let arena = device.buffer_types(Role::Arena).first();
        let weight_memory = |memory: &Arc<dyn BufferType>| WeightMemory {
            name: memory.name().to_owned(),
            repacked: memory.layout() == MemoryLayout::Private,
            alignment: memory.alignment(),
            max_bytes: memory.max_bytes(),
        };
        DeviceReport {
            name: device.name().to_owned(),
            class: format!("{:?}", facts.class).to_lowercase(),
            description: facts.description,
            features: if facts.class == DeviceClass::Cpu { processor::features() } else { Vec::new() },
            total: facts.memory.map(|memory| memory.total),
            free: facts.memory.map(|memory| memory.free),
            largest_buffer: arena.map(|arena| arena.max_bytes()).filter(|bytes| *bytes < u64::MAX),
            alignment: arena.map(|arena| arena.alignment()),
            weights: device.buffer_types(Role::Weight).iter().map(weight_memory).collect(),
            asynchronous: facts.asynchronous,
        }
    }
}
