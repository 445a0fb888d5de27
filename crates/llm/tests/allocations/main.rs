//! Once a model runs, a token costs no heap allocation: neither ours nor the devices'.

use std::ops::ControlFlow;
use std::sync::Arc;

use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{
    Blueprint, Engine, ExpertCounter, Experts, GenerateEvent, GenerateOptions, Lookup, Model, Part, RunRows,
    Sampler, SamplingOptions, SequenceId, Settings, Speculator, Synth, Tokenizer, generate_with,
};
use orlop_sched::Machine;
use orlop_testkit::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Calls are counted for the whole process, so this is one test: between tests, the harness allocates.
#[test]
fn nothing_is_allocated_once_a_model_runs() {
    a_thousand_tokens_allocate_nothing();
    counting_experts_allocates_nothing();
    sequences_that_come_and_go_allocate_nothing();
    looking_up_and_verifying_drafts_allocates_nothing();
}

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

fn counting_experts_allocates_nothing() {
    let experts = Experts { count: 8, used: 2, hidden: 64, ..Experts::default() };
    let synth = Synth { experts: Some(experts), context: 300, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    let model = Model::from_file(GgufFile::from_file(file)).unwrap();
    let machine = Machine::new(vec![CpuDevice::new(ThreadPool::new(1).unwrap()) as _]).unwrap();
    let counter = Arc::new(ExpertCounter::default());
    let settings = Settings { expert_counter: Some(Arc::clone(&counter)), ..Settings::default() };
    let blueprint = Blueprint::plan(&model, &machine, &settings).unwrap();
    let mut engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
    engine.feed(&[1, 2, 3]).unwrap();
    for token in 0..10 {
        engine.feed(&[token]).unwrap();
    }
    let before = CountingAllocator::calls();
    for token in 0..200 {
        engine.feed(&[token]).unwrap();
    }
    assert_eq!(CountingAllocator::calls() - before, 0);
    assert_eq!(counter.counts().layers[&0].iter().sum::<u64>(), 2 * 213);
}

fn sequences_that_come_and_go_allocate_nothing() {
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
        engine.feed_parts(&[Part::silent(a, &prompt[..length])], &mut |_| Ok(())).unwrap();
        let b = engine.fork_sequence(a, length / 2).unwrap();
        for token in 0..5 {
            let [one, three] = [Part::last(a, &prompt[token..=token]), Part::all(b, &prompt[..3])];
            let mut see = |mut rows: RunRows<'_>| {
                assert!(rows.logits()?.all(|row| row.logits[0].is_finite()));
                assert!(rows.best()?.all(|(_, token)| token < 128));
                Ok(())
            };
            engine.feed_parts(&[one, three, Part::last(SequenceId::FIRST, &prompt[..1])], &mut see).unwrap();
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

fn looking_up_and_verifying_drafts_allocates_nothing() {
    let synth = Synth { vocabulary: 700, context: 1100, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    let model = Model::from_file(GgufFile::from_file(file)).unwrap();
    let tokenizer = Tokenizer::from_metadata(model.file().metadata()).unwrap();
    let machine = Machine::new(vec![CpuDevice::new(ThreadPool::new(1).unwrap()) as _]).unwrap();
    let settings = Settings { context: Some(1000), draft: 7, ..Settings::default() };
    let mut engine =
        Engine::load(Blueprint::plan(&model, &machine, &settings).unwrap(), &mut |_, _| ()).unwrap();
    engine.repack(&mut |_, _| ()).unwrap();
    // A graph is bound when it first runs.
    for size in [1, 4, 8] {
        engine.feed_verify(SequenceId::FIRST, &[3; 8][..size]).unwrap();
        engine.logits_at(0).unwrap();
    }
    // Likely to repeat itself, so that drafts are accepted and rejected.
    let mut sampler = Sampler::new(SamplingOptions { top_k: 2, ..SamplingOptions::default() }, 1);
    for adapts in [true, false] {
        let speculator = Speculator::new(&engine, Box::new(Lookup::new(1000))).unwrap();
        let mut speculator = if adapts { speculator } else { speculator.always_longest() };
        let (mut made, mut before) = (0, 0);
        engine.truncate(0);
        let mut each = |event| {
            made += usize::from(matches!(event, GenerateEvent::Token(_)));
            if made == 200 {
                before = CountingAllocator::calls();
            }
            ControlFlow::Continue(())
        };
        let prompt = [5, 6, 7, 5, 6, 7, 5];
        let options = GenerateOptions { limit: Some(900), speculator: Some(&mut speculator), grammar: None };
        generate_with(&mut engine, &tokenizer, &mut sampler, &prompt, options, &mut each).unwrap();
        let calls = CountingAllocator::calls() - before;
        assert!(made > 300, "{made}");
        assert_eq!(calls, 0, "adapts: {adapts}");
        assert!(speculator.counts().drafted > 20, "{:?}", speculator.counts());
    }
}
