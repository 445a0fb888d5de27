//! Multiplies a 2×3 matrix with a vector: `cargo run -p orlop --example 02-run`.

use orlop::{DType, GraphBuilder, Machine, Session, SessionOptions, devices};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[2]);
    let w = b.weight("w", DType::F32, &[2, 3]);
    let y = b.mul_mat(w, x);
    b.output(y);
    let graph = b.build()?;

    let mut session =
        Session::new(Machine::new(devices::all(&Default::default())?)?, SessionOptions::default())?;
    let weights = session.upload(&graph, &[("w", &[1.0f32, 2.0, -1.0, 1.0, 0.5, -4.0])])?;
    let plan = session.prepare(&graph, &weights)?;
    println!("{:?}", session.run_f32(plan, &[(x, &[3.0, 1.0])], y)?);
    Ok(())
}
