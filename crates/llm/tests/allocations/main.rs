//! Once a model runs, a token costs no heap allocation: neither ours nor the devices'.

use std::sync::Mutex;

use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_llm::{Blueprint, Engine, Model, Sampler, SamplingOptions, SequenceId, Settings};
use orlop_sched::Machine;
use orlop_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Calls are counted for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_thousand_tokens_allocate_nothing() {
    let _alone = ALONE.lock();
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

#[test]
fn sequences_that_come_and_go_allocate_nothing() {
    let _alone = ALONE.lock();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/fixtures/llama-dense.Q4_0.gguf");
    let model = Model::open(path).unwrap();
    let machine = Machine::new(vec![CpuDevice::new(ThreadPool::new(2).unwrap()) as _]).unwrap();
    let settings =
        Settings { context: Some(2048), batch: 64, sequences: 8, threads: 2, ..Settings::default() };
    let blueprint = Blueprint::plan(&model, &machine, &settings).unwrap();
    let mut engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
    let prompt: Vec<u32> = (1..60).collect();
    let mut round = |length: usize| {
        let a = engine.start_sequence().unwrap();
        engine.feed_parts(&[(a, &prompt[..length])], &mut |_| ()).unwrap();
        let b = engine.fork_sequence(a, length / 2).unwrap();
        for token in 0..5 {
            let parts = [(a, &prompt[token..=token]), (b, &prompt[..3]), (SequenceId::FIRST, &prompt[..1])];
            engine.feed_parts(&parts, &mut |row| assert!(row.logits[0].is_finite())).unwrap();
        }
        engine.end_sequence(a).unwrap();
        engine.end_sequence(b).unwrap();
    };
    // The first run plans its graph; then buffers grow to their size.
    (1..=59).rev().for_each(&mut round);
    let before = CountingAllocator::calls();
    (1..59).for_each(&mut round);
    assert_eq!(CountingAllocator::calls() - before, 0);
}
