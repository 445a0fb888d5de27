use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use orlop_alloc::{Externals, SetTensor, TensorSet};
use orlop_backend::{Device, DeviceError, RunOptions};
use orlop_graph::{Graph, Leaf, TensorId};
use orlop_sched::{DeviceId, Error, Machine, PlanId, Session, SessionOptions, constraints, place_by_rules};
use orlop_testkit::devices::{Counters, FaultKind, FaultPoint, TestDevice};
use orlop_testkit::{Feeds, Random, ReferenceDevice, generate, kept, run_unplanned};

use crate::equality::{assignments, packed};
use crate::support::{machine, memory_of, private};

/// A random graph over three devices, and what it gives.
struct Scene {
    graph: Graph,
    feeds: Feeds,
    expected: Feeds,
    devices: [Arc<TestDevice>; 3],
    machine: Machine,
    externals: Externals,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (graph, feeds) = generate::graph(seed, &generate::Size { moves: 50, elements: 100 });
        let reference: Arc<dyn Device> = ReferenceDevice::new();
        let outputs = run_unplanned(&reference, &graph, &feeds).unwrap();
        let expected = kept(&graph).into_iter().map(|id| (id, outputs.bytes(id).unwrap())).collect();
        let patience = Duration::from_secs(5);
        let devices = [
            private("p").asynchronous(true).patience(patience).build(),
            private("q").patience(patience).build(),
            private("r").asynchronous(true).patience(patience).build(),
        ];
        let mut externals = Externals::new();
        for (index, (id, _)) in graph.leaves().filter(|(_, leaf)| leaf.is_external()).enumerate() {
            let set = [SetTensor::new(graph.tensor(id).name.as_str(), graph.tensor(id).desc)];
            let set = TensorSet::allocate(&memory_of(&*devices[index % 3]), &set).unwrap();
            externals.insert(id, set.tensors()[0].clone());
        }
        let machine = machine(&devices);
        Scene { graph, feeds, expected, devices, machine, externals }
    }

    fn fed(&self, id: TensorId) -> Vec<u8> {
        let found = self.feeds.iter().find(|(fed, _)| *fed == id);
        found.map_or_else(|| vec![0; self.graph.tensor(id).desc.bytes() as usize], |(_, bytes)| bytes.clone())
    }

    fn prepare(&self, session: &mut Session) -> Result<PlanId, Error> {
        let mut all = constraints(&self.graph, &self.externals);
        let devices: Vec<DeviceId> = self.machine.indices().collect();
        all.assigned =
            assignments(&self.graph, |node| Some(devices[Random::nth(7, node as u64) as usize % 3]));
        let placement = place_by_rules(&self.graph, &self.machine, &all)?;
        session.prepare_placed(&self.graph, &self.externals, &all, placement)
    }

    /// Sets everything, runs, and compares.
    fn run(&self, session: &mut Session, plan: PlanId) -> Result<(), Error> {
        for (id, leaf) in self.graph.leaves() {
            match leaf {
                Leaf::Input | Leaf::Persistent => session.set(plan, id, &self.fed(id))?,
                Leaf::State | Leaf::Weight => {
                    let stored = self.externals.get(id).unwrap();
                    stored.set(0, &self.fed(id)).map_err(orlop_alloc::Error::from)?;
                }
            }
        }
        session.run(plan, &RunOptions::default())?;
        for (id, bytes) in &self.expected {
            let mut found = vec![0; self.graph.tensor(*id).desc.bytes() as usize];
            session.get(plan, *id, &mut found)?;
            assert_eq!(packed(&self.graph, *id, &found), *bytes, "{id}");
        }
        Ok(())
    }

    fn counters(&self) -> [Counters; 3] {
        [0, 1, 2].map(|index| self.devices[index].counters())
    }

    /// How much of each kind of work one preparation and run are, by device.
    fn work(&self) -> Vec<(usize, FaultPoint, u64)> {
        let before = self.counters();
        let mut session = Session::new(self.machine.clone(), SessionOptions::default()).unwrap();
        let plan = self.prepare(&mut session).unwrap();
        session.check_races(plan).unwrap();
        self.run(&mut session, plan).unwrap();
        let counts = |(index, (after, before)): (usize, (&Counters, &Counters))| {
            [
                (index, FaultPoint::Allocation, after.allocations - before.allocations),
                (index, FaultPoint::Copy, after.copies - before.copies),
                (index, FaultPoint::Submit, after.submits - before.submits),
            ]
        };
        self.counters().iter().zip(&before).enumerate().flat_map(counts).collect()
    }
}

/// Whether a device's own error is at the end of the chain of sources.
fn ends_in(error: &Error, wanted: &DeviceError) -> bool {
    let mut source = error.source();
    while let Some(next) = source {
        if next.downcast_ref::<DeviceError>() == Some(wanted) || next.to_string() == wanted.to_string() {
            return true;
        }
        source = next.source();
    }
    error.to_string() == wanted.to_string()
}

#[test]
fn whatever_fails_is_an_error_and_the_next_attempt_works() {
    let scene = Scene::new(3);
    assert!(scene.graph.nodes().len() >= 50);
    let idle: Vec<u64> = scene.counters().iter().map(|counters| counters.live_bytes).collect();
    let work = scene.work();
    assert!(work.iter().all(|(_, _, count)| *count > 0), "{work:?}");
    for (device, kind, count) in work {
        for nth in 1..=count {
            let faults = scene.devices[device].faults();
            let error = DeviceError::BadThreads { asked: nth as usize, max: 0 };
            faults.fail(kind, nth, FaultKind::Error(error.clone()));
            let mut session = Session::new(scene.machine.clone(), SessionOptions::default()).unwrap();
            let first = scene.prepare(&mut session);
            let first = first.and_then(|plan| scene.run(&mut session, plan).map(|()| plan));
            let failed = first.expect_err("it was ordered to fail");
            assert!(ends_in(&failed, &error), "{kind:?} {nth} on {device}: {failed:?}");
            if kind != FaultPoint::Allocation {
                let name = scene.devices[device].name();
                assert!(matches!(&failed, Error::Device { device, .. } if device == name), "{failed:?}");
            }
            assert_eq!(faults.open(), 0);
            let plan = scene.prepare(&mut session).unwrap();
            scene.run(&mut session, plan).unwrap();
            scene.run(&mut session, plan).unwrap();
            drop(session);
            let after: Vec<u64> = scene.counters().iter().map(|counters| counters.live_bytes).collect();
            assert_eq!(after, idle, "{kind:?} {nth} on {device} leaves memory behind");
        }
    }
    let Scene { devices, externals, .. } = scene;
    drop(externals);
    assert!(devices.iter().all(|device| device.counters().live_buffers == 0));
}

#[test]
fn a_plan_survives_a_run_that_failed() {
    let scene = Scene::new(5);
    let mut session = Session::new(scene.machine.clone(), SessionOptions::default()).unwrap();
    let plan = scene.prepare(&mut session).unwrap();
    for (device, kind, count) in
        scene.work().into_iter().filter(|(_, kind, _)| *kind != FaultPoint::Allocation)
    {
        for nth in (1..=count).step_by(3) {
            scene.devices[device].faults().fail(kind, nth, FaultKind::OutOfMemory);
            scene.run(&mut session, plan).unwrap_err();
            scene.run(&mut session, plan).unwrap();
        }
    }
}

#[test]
fn a_lost_device_is_named_in_every_wait() {
    for device in 0..3 {
        for kind in [FaultPoint::Allocation, FaultPoint::Copy, FaultPoint::Submit] {
            for nth in [1, 2, 5] {
                let scene = Scene::new(3);
                let name = scene.devices[device].name().to_owned();
                let mut session = Session::new(scene.machine.clone(), SessionOptions::default()).unwrap();
                scene.devices[device].faults().fail(kind, nth, FaultKind::Lost);
                let first = scene.prepare(&mut session);
                let failed = match first.and_then(|plan| scene.run(&mut session, plan)) {
                    // Few allocations are made.
                    Ok(()) => continue,
                    Err(failed) => failed,
                };
                let named = match &failed {
                    Error::Device { device, .. }
                    | Error::DeviceLost { device, .. }
                    | Error::Memory { device, .. } => device == &name,
                    _ => false,
                };
                assert!(named, "{name}: {failed:?}");
                assert!(format!("{failed:?}").contains("Lost"), "{failed:?}");
                let again = scene.prepare(&mut session).and_then(|plan| scene.run(&mut session, plan));
                assert!(format!("{:?}", again.unwrap_err()).contains("Lost"));
            }
        }
    }
}
