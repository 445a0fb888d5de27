//! `orlop devices`.

use clap::Args;
use orlop::backend::Device;
use serde::Serialize;

use crate::devices;
use crate::failure::Failure;
use crate::printer::Printer;
use crate::quantity::short_bytes;

/// How to print the devices.
#[derive(Debug, Args)]
pub(crate) struct DevicesArguments {
    /// Print JSON: a list of devices.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Described {
    name: String,
    description: String,
    total: Option<u64>,
    free: Option<u64>,
}

/// Lists the devices of this machine.
pub(crate) fn run(arguments: &DevicesArguments) -> Result<(), Failure> {
    let known = devices::all(devices::physical_cores(), true)?;
    let describe = |device: &std::sync::Arc<dyn Device>| {
        let facts = device.facts();
        Described {
            name: device.name().to_owned(),
            description: facts.description,
            total: facts.memory.map(|memory| memory.total),
            free: facts.memory.map(|memory| memory.free),
        }
    };
    let described: Vec<Described> = known.iter().map(describe).collect();
    let mut printer = Printer::new();
    if arguments.json {
        return printer.json(&described);
    }
    for Described { name, description, total, free } in described {
        let memory = match (free, total) {
            (Some(free), Some(total)) => format!(", {} of {} free", short_bytes(free), short_bytes(total)),
            _ => String::new(),
        };
        printer.line(format!("{name:<8} {description}{memory}"))?;
    }
    Ok(())
}
