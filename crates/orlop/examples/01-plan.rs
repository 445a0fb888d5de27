//! Builds a small graph, plans its memory, and prints what the plan says.

use orlop::alloc::{ArenaId, Externals, GraphAllocator};
use orlop::backend::HostBufferType;
use orlop::graph::{DType, GraphBuilder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[512, 32]);
    let up = b.weight("up", DType::Q4_0, &[512, 2048]);
    let down = b.weight("down", DType::Q4_0, &[2048, 512]);
    let h = b.mul_mat(up, x);
    let h = b.silu(h); // the plan will do this in place
    let y = b.mul_mat(down, h);
    let y = b.add(y, x); // and this
    b.output(y);
    let graph = b.build()?;

    let mut allocator = GraphAllocator::new([HostBufferType::new("host") as _])?;
    let allocation = allocator.alloc(&graph, &Externals::new())?;

    let plan = allocation.plan();
    let arena = &plan.arenas[0];
    println!("{} bytes, bound {}, optimal: {}", arena.peak, arena.bound, arena.optimal);
    let (step, storages) = plan.peak(ArenaId::new(0));
    println!("most is in use at step {step}:");
    for storage in storages {
        println!("  {:>7} bytes at {:>6}  {}", storage.bytes, storage.place.offset, storage.name);
    }
    Ok(())
}
