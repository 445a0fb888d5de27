//! Runs a graph on two devices: `cargo run -p orlop --example 04-two-devices`.

use orlop::cpu::{CpuDevice, Isa, ThreadPool};
use orlop::{Constraints, DType, Externals, GraphBuilder, Machine, RunOptions, Session, SessionOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[4]);
    let doubled = b.scale(x, 2.0);
    let squared = b.sqr(doubled);
    b.name(squared, "squared");
    b.output(squared);
    let graph = b.build()?;

    let fast = CpuDevice::new(ThreadPool::new(2)?);
    let scalar = CpuDevice::with_isa("scalar", ThreadPool::new(1)?, Isa::Scalar);
    let machine = Machine::new([fast as _, scalar as _])?;
    let mut constraints = Constraints::default();
    constraints.assigned.insert(squared, machine.find("scalar")?);

    let mut session = Session::new(machine.clone(), SessionOptions::default())?;
    let plan = session.prepare_with(&graph, &Externals::new(), &constraints)?;
    println!("{}", session.placement(plan)?.table(&graph, &machine));
    for device in machine.indices() {
        println!("{}: {} bytes", machine.name(device), session.memory_plan(plan, device)?.total());
    }
    session.set_f32(plan, x, &[1.0, 2.0, 3.0, 4.0])?;
    session.run(plan, &RunOptions::default())?;
    println!("{:?}", session.get_f32(plan, squared)?);
    Ok(())
}
