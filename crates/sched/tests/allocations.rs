//! A prepared graph runs without asking the host for memory: in a program of its own, as the count is of everything.

use std::sync::Arc;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Claims, Device, DeviceError, Program, Queue, Role, RunOptions};
use orlop_graph::{DType, GraphBuilder};
use orlop_sched::{Machine, Session, SessionOptions, constraints, place_by_rules};
use orlop_testkit::{CountingAllocator, DeviceHooks, Forward, ReferenceDevice};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A device of another name that computes nothing.
#[derive(Debug)]
struct Still(&'static str);

#[derive(Debug)]
struct StillQueue;

impl Queue for StillQueue {
    unsafe fn submit(
        &mut self,
        program: &Arc<dyn Program>,
        claims: &Claims,
        _: &RunOptions,
    ) -> Result<(), DeviceError> {
        program.touches().iter().try_for_each(|(buffer, kind)| claims.check(&**buffer, *kind))
    }
}

impl DeviceHooks for Still {
    fn name<'a>(&'a self, _: &'a dyn Device) -> &'a str {
        self.0
    }

    fn queue(&self, _: &dyn Device) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(StillQueue))
    }
}

/// Allocations of a hundred times `set`, `run` and `get`, after a few to warm up.
fn allocations(names: &[&'static str]) -> u64 {
    let devices =
        names.iter().map(|name| Forward::new(ReferenceDevice::new(), Still(name)) as Arc<dyn Device>);
    let machine = Machine::new(devices).unwrap();
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[64]);
    let p = b.persistent("p", DType::F32, &[64]);
    let w = b.weight("w", DType::F32, &[64]);
    let mut y = b.add(x, w);
    let mut nodes = Vec::new();
    for _ in 0..20 {
        y = b.mul(y, p);
        y = b.silu(y);
        nodes.push(y);
    }
    b.output(y);
    let graph = b.build().unwrap();
    let memory = Arc::clone(&machine.devices()[0].buffer_types(Role::Weight)[0]);
    let set = TensorSet::allocate(&memory, &[SetTensor::new("w", graph.tensor(w).desc)]).unwrap();
    let mut externals = Externals::new();
    externals.insert(w, set.tensors()[0].clone());
    let mut all = constraints(&graph, &externals);
    let devices: Vec<_> = machine.indices().collect();
    all.assigned =
        nodes.iter().enumerate().map(|(index, id)| (*id, devices[index % devices.len()])).collect();
    let placement = place_by_rules(&graph, &machine, &all).unwrap();
    let mut session = Session::new(machine, SessionOptions::default()).unwrap();
    let plan = session.prepare_placed(&graph, &externals, &all, placement).unwrap();
    let splits = session.schedule(plan).unwrap().splits.len();
    assert!(devices.len() == 1 || splits >= 20, "{splits}");
    let mut bytes = [0; 256];
    session.set(plan, p, &bytes).unwrap();
    let options = RunOptions::default();
    let mut once = |session: &mut Session| {
        session.set(plan, x, &bytes).unwrap();
        session.run(plan, &options).unwrap();
        session.get(plan, y, &mut bytes).unwrap();
        session.set(plan, p, &bytes).unwrap();
    };
    (0..3).for_each(|_| once(&mut session));
    let before = CountingAllocator::thread_calls();
    (0..100).for_each(|_| once(&mut session));
    CountingAllocator::thread_calls() - before
}

#[test]
fn a_hundred_runs_on_one_device_allocate_nothing() {
    assert_eq!(allocations(&["a"]), 0);
}

#[test]
fn a_hundred_runs_over_two_synchronous_devices_with_events_between_them_allocate_nothing() {
    assert_eq!(allocations(&["a", "b"]), 0);
}
