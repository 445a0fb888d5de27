//! Continues a text: `cargo run --release -p orlop --example 03-generate -- MODEL.gguf "Once upon a time"`.

use std::io::Write;
use std::ops::ControlFlow;

use orlop::{Machine, Model, SamplingOptions, Settings, TextModel, TextOptions, devices};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, prompt] = &arguments[..] else { return Err("usage: 03-generate MODEL.gguf TEXT".into()) };

    let machine = Machine::new(devices::all(&Default::default())?)?;
    let settings =
        Settings { context: Some(2048), threads: devices::physical_cores(), ..Settings::default() };
    let mut model = TextModel::load(&Model::open(path)?, &machine, &settings)?;
    let options = TextOptions {
        max_tokens: Some(32),
        sampling: Some(SamplingOptions::greedy()),
        ..TextOptions::default()
    };
    model.generate(prompt, &options, &mut |piece| {
        print!("{piece}");
        let _ = std::io::stdout().flush();
        ControlFlow::Continue(())
    })?;
    println!();
    Ok(())
}
