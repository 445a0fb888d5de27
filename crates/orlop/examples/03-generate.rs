//! Goes on from a text: `cargo run --release -p orlop --example 03-generate -- MODEL.gguf "Once upon a time"`.

use std::io::Write;
use std::ops::ControlFlow;

use orlop::cpu::{CpuDevice, ThreadPool};
use orlop::llm::{
    Blueprint, Engine, GenerateEvent, Model, Sampler, SamplingOptions, Settings, Special, TextStream,
    Tokenizer, generate,
};
use orlop::sched::Machine;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(prompt)) = (arguments.next(), arguments.next()) else {
        return Err("give a model and a text".into());
    };
    let model = Model::open(&path)?;
    let tokenizer = Tokenizer::from_metadata(model.file().metadata())?;

    // Everything is planned before anything is loaded.
    let pool = ThreadPool::for_machine()?;
    let threads = pool.threads();
    let machine = Machine::new(vec![CpuDevice::new(pool) as _])?;
    let settings = Settings { context: Some(2048), threads, ..Settings::default() };
    let blueprint = Blueprint::plan(&model, &machine, &settings)?;
    println!("{:?}", blueprint.forecast()?);

    let mut engine = Engine::load(blueprint, &mut |_, _| ())?;
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let prompt = tokenizer.prompt(&prompt, Special::Parse);
    // A character may take several tokens, and is printed when it is whole.
    let mut text = TextStream::new();
    generate(&mut engine, &tokenizer, &mut sampler, &prompt, Some(32), &mut |event| {
        if let GenerateEvent::Token(token) = event
            && !tokenizer.is_end(token)
        {
            print!("{}", text.push(tokenizer.decode(token)));
            let _ = std::io::stdout().flush();
        }
        ControlFlow::Continue(())
    })?;
    println!("{}", text.finish());
    Ok(())
}
