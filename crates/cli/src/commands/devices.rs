//! `orlop devices`: the devices of this machine.

pub(crate) mod processor;

use std::sync::Arc;

use clap::Args;
use orlop::backend::{
    BufferType, Device, DeviceClass, DeviceFacts, LowerOptions, Memory, MemoryLayout, Role,
};
use orlop::devices::{self, DeviceOptions, physical_cores};
use orlop::graph::DType;
use orlop::sched::{DeviceSpeeds, Machine, ProductSpeed};
use serde::Serialize;

use crate::failure::Failure;
use crate::measured_speeds::{Renew, measured};
use crate::model_arguments::{bad, device_options, no_device, parse_threads};
use crate::printer::Printer;
use crate::quantity::short_bytes;

const EXAMPLES: &str = "Examples:
  orlop devices
  orlop devices --measure
  orlop devices --json";

/// Arguments of `orlop devices`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevicesArguments {
    /// Measure what the devices do in a second, in about two seconds, and keep it for later commands.
    #[arg(long)]
    measure: bool,
    /// Number of threads of the CPU [default: number of usable performance cores]
    #[arg(short, long, value_name = "N", value_parser = parse_threads, requires = "measure")]
    threads: Option<usize>,
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
    /// What it was measured to do in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    speeds: Option<DeviceSpeeds>,
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
    let threads = arguments.threads.unwrap_or_else(physical_cores);
    let known = devices::all(&DeviceOptions { threads, ..device_options() }).map_err(no_device)?;
    let machine = Machine::new(known.iter().cloned()).map_err(bad)?;
    let machine = match arguments.measure {
        // As models run without further options.
        true => measured(
            machine,
            &LowerOptions { max_threads: threads, ..LowerOptions::default() },
            &[],
            Renew::Always,
        ),
        false => machine,
    };
    let speeds = |ix| arguments.measure.then(|| machine.speeds(ix).clone());
    let mut printer = Printer::new();
    if arguments.json {
        let described = machine
            .indices()
            .zip(&known)
            .map(|(ix, device)| DeviceReport { speeds: speeds(ix), ..DeviceReport::new(&**device) });
        return printer.json(&described.collect::<Vec<DeviceReport>>());
    }
    for (ix, device) in machine.indices().zip(&known) {
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
        if let Some(speeds) = speeds(ix) {
            lines(&speeds).into_iter().try_for_each(|line| printer.line(format!("{:<8} {line}", "")))?;
        }
    }
    Ok(())
}

/// Measured speeds as text: the memory and arithmetic, transfers, and products by type with few and many rows.
fn lines(speeds: &DeviceSpeeds) -> Vec<String> {
    let giga = |number: f64| number / 1e9;
    let mut lines = vec![
        format!(
            "measured: {:.1} GB/s of memory, {:.0} GFLOPS, {:.2} µs to start a step",
            giga(speeds.bytes_per_second),
            giga(speeds.flops),
            1e6 * speeds.launch_seconds
        ),
        format!(
            "measured: transfers of {:.1} GB/s to it, {:.1} GB/s from it, after {:.2} µs",
            giga(speeds.host_bytes_per_second),
            giga(speeds.to_host_bytes_per_second),
            1e6 * speeds.host_latency_seconds
        ),
    ];
    let mut types: Vec<DType> = speeds.products.iter().map(|point| point.dtype).collect();
    types.dedup();
    lines.extend(types.into_iter().map(|dtype| {
        let own = speeds.products.iter().filter(|point| point.dtype == dtype);
        let rates: Vec<String> = own
            .map(|ProductSpeed { rows, seconds_per_weight, .. }| {
                format!("{rows} rows {:.0}", giga(2.0 * *rows as f64 / seconds_per_weight))
            })
            .collect();
        format!("measured: products of {dtype} in GFLOPS: {}", rates.join(", "))
    }));
    lines
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
            speeds: None,
        }
    }
}
