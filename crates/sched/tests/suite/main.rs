//! Graphs over several devices.

mod cost;
mod described;
mod equality;
mod faults;
mod large;
mod observed;
mod one_device;
mod oracle;
mod pipeline;
mod placement;
mod plans;
mod property;
mod races;
mod refusals;
mod runs;
mod splits;
mod support;
mod transformers;
mod typed;
mod values;
mod watching;

use std::sync::Arc;

use orlop_backend::Device;
use orlop_sched::Machine;
use orlop_testkit::ReferenceDevice;

/// Reference devices, which reach each other's memory.
fn open_machine(devices: usize) -> Machine {
    Machine::new((0..devices).map(|index| ReferenceDevice::named(&format!("r{index}")) as Arc<dyn Device>))
        .unwrap()
}
