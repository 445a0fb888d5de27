//! `orlop devices`.

mod processor;

use std::sync::Arc;

use clap::Args;
use orlop::backend::{BufferType, Device, DeviceClass, DeviceFacts, Memory, MemoryLayout, Role};
use serde::Serialize;

use crate::devices;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::quantity::short_bytes;

const EXAMPLES: &str = "Examples:
  orlop devices
  orlop devices --json";

/// How to print the devices.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArguments {
    /// Print JSON: a list of devices.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Described {
    name: String,
    class: String,
    description: String,
    /// What a processor can do beside the usual.
    features: Vec<&'static str>,
    total: Option<u64>,
    free: Option<u64>,
    /// Most bytes of one buffer, where there is a limit.
    largest_buffer: Option<u64>,
    /// Where tensors begin.
    alignment: Option<u64>,
    /// Kinds of memory that weights may be in, best first.
    weights: Vec<Kind>,
    /// Whether it works beside the host.
    asynchronous: bool,
}

#[derive(Serialize)]
struct Kind {
    name: String,
    /// Whether it has a layout of its own.
    repacked: bool,
    alignment: u64,
    max_bytes: u64,
}

/// What a device is and how much memory it has, in words.
pub(crate) fn described(facts: &DeviceFacts) -> String {
    let memory = facts
        .memory
        .map(|Memory { free, total }| format!("; {} of {} free", short_bytes(free), short_bytes(total)));
    facts.description.clone() + &memory.unwrap_or_default()
}

/// Lists the devices of this machine.
pub(crate) fn run(arguments: &DevicesArguments) -> Result<(), Failure> {
    let known = devices::all(devices::physical_cores(), true)?;
    let mut printer = Printer::new();
    if arguments.json {
        let described: Vec<Described> = known.iter().map(|device| Described::new(&**device)).collect();
        return printer.json(&described);
    }
    for device in &known {
        let facts = device.facts();
        printer.line(format!("{:<8} {}", device.name(), described(&facts)))?;
        let Described { weights, features, asynchronous, largest_buffer, .. } = Described::new(&**device);
        let weights: Vec<String> = weights.into_iter().map(|kind| kind.name).collect();
        let beside = if asynchronous { "; works beside the host" } else { "" };
        if !features.is_empty() {
            printer.line(format!("{:<8} features: {}", "", features.join(", ")))?;
        }
        printer.line(format!("{:<8} weights in: {}{beside}", "", weights.join(", ")))?;
        if let Some(bytes) = largest_buffer {
            printer.line(format!("{:<8} buffers of at most {}", "", short_bytes(bytes)))?;
        }
    }
    Ok(())
}

impl Described {
    fn new(device: &dyn Device) -> Described {
        let facts = device.facts();
        let arena = device.buffer_types(Role::Arena).first();
        let kind = |memory: &Arc<dyn BufferType>| Kind {
            name: memory.name().to_owned(),
            repacked: memory.layout() == MemoryLayout::Private,
            alignment: memory.alignment(),
            max_bytes: memory.max_bytes(),
        };
        Described {
            name: device.name().to_owned(),
            class: format!("{:?}", facts.class).to_lowercase(),
            description: facts.description,
            features: if facts.class == DeviceClass::Cpu { processor::features() } else { Vec::new() },
            total: facts.memory.map(|memory| memory.total),
            free: facts.memory.map(|memory| memory.free),
            largest_buffer: arena.map(|arena| arena.max_bytes()).filter(|bytes| *bytes < u64::MAX),
            alignment: arena.map(|arena| arena.alignment()),
            weights: device.buffer_types(Role::Weight).iter().map(kind).collect(),
            asynchronous: facts.asynchronous,
        }
    }
}
