//! Once a model runs, a token costs no heap allocation: neither ours nor the devices'.

use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_llm::{Blueprint, Engine, Model, Sampler, SamplingOptions, Settings};
use orlop_sched::Machine;
use orlop_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_thousand_tokens_allocate_nothing() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/fixtures/llama-dense.Q4_0.gguf");
    let model = Model::open(path).unwrap();
    for threads in [1, 2] {
        let machine = Machine::new(vec![CpuDevice::new(ThreadPool::new(threads).unwrap()) as _]).unwrap();
        let settings = Settings { context: Some(1100), threads, ..Settings::default() };
        let blueprint = Blueprint::plan(&model, &machine, &settings).unwrap();
        let mut engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
        let mut sampler = Sampler::new(SamplingOptions::default(), 1);
        let mut token = {
            engine.feed(&[1, 2, 3]).unwrap();
            sampler.sample(engine.last_logits().unwrap())
        };
        let mut before = 0;
        for index in 0..1010 {
            if index == 10 {
                before = CountingAllocator::calls();
            }
            engine.feed(&[token]).unwrap();
            token = match index % 2 {
                0 => engine.last_best().unwrap(),
                _ => sampler.sample(engine.last_logits().unwrap()),
            };
        }
        let calls = CountingAllocator::calls() - before;
        assert_eq!(calls, 0, "with {threads} threads");
    }
}
