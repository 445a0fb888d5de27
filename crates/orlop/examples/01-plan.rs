//! Plans the memory of a small graph: `cargo run -p orlop --example 01-plan`.

use orlop::alloc::ArenaId;
use orlop::backend::HostBufferType;
use orlop::{DType, Externals, GraphAllocator, GraphBuilder};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[512, 32]);
    let up = b.weight("up", DType::Q4_0, &[512, 2048]);
    let down = b.weight("down", DType::Q4_0, &[2048, 512]);
    let h = b.mul_mat(up, x);
    let h = b.silu(h); // in place
    let y = b.mul_mat(down, h);
    let y = b.add(y, x); // in place
    b.output(y);

    let mut allocator = GraphAllocator::new([HostBufferType::new("host") as _])?;
    let allocation = allocator.alloc(&b.build()?, &Externals::new())?;
    let arena = &allocation.plan().arenas[0];
    println!("{} bytes, bound {}, optimal: {}", arena.peak, arena.bound, arena.optimal);
    let (step, storages) = allocation.plan().peak(ArenaId::new(0));
    println!("the peak is at step {step}:");
    for storage in storages {
        println!("  {:>7} bytes at {:>6}  {}", storage.bytes, storage.place.offset, storage.name);
    }
    Ok(())
}
