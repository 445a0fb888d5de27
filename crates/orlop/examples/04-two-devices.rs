//! A graph over two devices: `cargo run -p orlop --example 04-two-devices`.

use std::sync::Arc;

use orlop::alloc::Externals;
use orlop::backend::RunOptions;
use orlop::cpu::{CpuDevice, Isa, ThreadPool};
use orlop::graph::{DType, GraphBuilder};
use orlop::sched::{Constraints, Machine, Session, SessionOptions, place_by_rules};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let doubled = b.scale(x, 2.0);
    let squared = b.sqr(doubled);
    b.name(squared, "squared");
    b.output(squared);
    let graph = Arc::new(b.build()?);

    let fast = CpuDevice::new(ThreadPool::new(2)?);
    let plain = CpuDevice::with_isa("plain", ThreadPool::new(1)?, Isa::Scalar);
    let machine = Machine::new(vec![fast as _, plain as _])?;
    let mut constraints = Constraints::default();
    constraints.assigned.insert(squared, machine.find("plain")?);
    let placement = place_by_rules(&graph, &machine, &constraints)?;
    println!("{}", placement.table(&graph, &machine));

    let mut session = Session::new(machine.clone(), SessionOptions::default())?;
    let plan = session.prepare_placed(&graph, &Externals::new(), &constraints, placement)?;
    for device in machine.indices() {
        println!("{}: {} bytes", machine.name(device), session.memory_plan(plan, device)?.total());
    }
    session.set(plan, x, &[1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat())?;
    session.run(plan, &RunOptions::default())?;
    let mut bytes = [0; 16];
    session.get(plan, squared, &mut bytes)?;
    println!("{:?}", bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect::<Vec<_>>());
    Ok(())
}
