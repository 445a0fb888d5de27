//! Experts: which ones tokens choose, and layers whose experts are on two devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_backend::{Device, Link};
use orlop_gguf::GgufFile;
use orlop_llm::{
    Blueprint, Error, ExpertCounter, ExpertCounts, FileType, HotExperts, LayerChoice, LayerPlacement, Model,
    Settings, Synth, SynthTensor, Workload,
};
use orlop_sched::Machine;
use orlop_testkit::devices::TestDevice;

use crate::made::{exact, made};
use crate::support::{cpu, greedy, load, nmse, one_cpu, rows, synthetic, with_experts};

fn tokens() -> Vec<u32> {
    (0..20).map(|token| token * 7 % 64).collect()
}

/// Two processors that the plan takes for different devices.
fn two() -> Machine {
    Machine::new([cpu("one", 2), cpu("two", 1)]).unwrap()
}

/// A fast device and a slow one, which compute the same.
fn fast_and_slow() -> Machine {
    let device = |name: &str, speed: f64| -> Arc<dyn Device> {
        let link = Link { bytes_per_second: 1e10, latency_seconds: 1e-6 };
        let inner = cpu(&format!("{name} kernels"), 1);
        let builder = TestDevice::builder(inner).name(name).flops(speed).bytes_per_second(speed);
        builder.launch_seconds(1e-9).host_link(link).build()
    };
    Machine::new([device("fast", 1e11), device("slow", 1e9)]).unwrap()
}

/// What feeding tokens counts, if the logits of all of them are wanted.
fn counted(model: &Model, machine: &Machine, settings: &Settings, tokens: &[u32]) -> ExpertCounts {
    let counter = Arc::new(ExpertCounter::default());
    let settings = Settings { expert_counter: Some(Arc::clone(&counter)), ..settings.clone() };
    let mut engine = load(model, machine, &settings);
    rows(&mut engine, tokens);
    counter.counts()
}

#[test]
fn counts_are_the_choices_of_the_router() {
    // A bias far larger than any score decides what the first layer chooses, for every token.
    let bias = SynthTensor {
        name: "blk.0.exp_probs_b.bias".to_owned(),
        extents: vec![8],
        mean: 0.0,
        deviation: 100.0,
    };
    let model = synthetic(&Synth { tensors: vec![bias], ..with_experts() });
    let file = model.file();
    let bias = orlop_testkit::f32s(file.bytes_of(file.tensor("blk.0.exp_probs_b.bias").unwrap()));
    let mut ranked: Vec<usize> = (0..8).collect();
    ranked.sort_by(|one, other| bias[*other].total_cmp(&bias[*one]));
    let mut expected = vec![0u64; 8];
    ranked[..2].iter().for_each(|expert| expected[*expert] = 20);
    let settings = Settings { context: Some(64), batch: 16, ..Settings::default() };
    let counts = counted(&model, &one_cpu(), &settings, &tokens());
    assert_eq!(counts.layers[&0], expected, "{bias:?}");
    assert_eq!(counts.layers.len(), 4);
    assert!(counts.layers.values().all(|layer| layer.len() == 8 && layer.iter().sum::<u64>() == 40));
}

#[test]
fn counts_are_those_of_importance_data_however_runs_are_filled_up() {
    for name in ["llama-experts", "deepseek2", "gpt-oss"] {
        let (model, tokens, _) = made(name);
        let settings = Settings { importance: true, ..exact() };
        let mut engine = load(&model, &one_cpu(), &settings);
        rows(&mut engine, &tokens);
        let path = std::env::temp_dir().join(format!("orlop-counts-{}-{name}.gguf", std::process::id()));
        engine.importance().write(&path, "text.txt", 1, 1).unwrap();
        let file = GgufFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut expected = BTreeMap::new();
        for layer in 0..model.config().layers.len() {
            if let Some(counts) = file.tensor(&format!("blk.{layer}.ffn_down_exps.weight.counts")) {
                let counts = orlop_testkit::f32s(file.bytes_of(counts));
                expected.insert(layer, counts.iter().map(|count| *count as u64).collect::<Vec<u64>>());
            }
        }
        assert!(!expected.is_empty(), "{name}");
        for batch in [1, 7, 512] {
            let settings = Settings { batch, ..exact() };
            assert_eq!(counted(&model, &one_cpu(), &settings, &tokens).layers, expected, "{name}, {batch}");
        }
    }
}

#[test]
fn engines_with_one_counter_add_to_the_same_counts() {
    let (model, counter) = (synthetic(&with_experts()), Arc::new(ExpertCounter::default()));
    let settings =
        Settings { context: Some(64), expert_counter: Some(Arc::clone(&counter)), ..Settings::default() };
    for _ in 0..2 {
        load(&model, &one_cpu(), &settings).feed(&tokens()).unwrap();
    }
    // The last layer chooses for the last token alone.
    let counts = counter.counts();
    let sums: Vec<u64> = counts.layers.values().map(|layer| layer.iter().sum()).collect();
    assert_eq!(sums, [80, 80, 80, 4]);
}

#[test]
fn experts_on_two_devices_give_the_results_of_one() {
    for name in
        ["llama-experts", "qwen2moe", "deepseek2", "gpt-oss", "llama4", "nemotron_h_moe", "gemma4-experts"]
    {
        let (model, tokens, _) = made(name);
        let layers = model.config().layers.len();
        let machine = two();
        let [one, other] = ["one", "two"].map(|name| machine.find(name).unwrap());
        let whole = rows(&mut load(&model, &machine, &exact()), &tokens);
        let routed =
            |layer: usize| model.file().tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_some();
        let count = model.config().experts.unwrap().count as u32;
        for hot in [vec![0], (0..count).step_by(2).collect(), (1..count).collect()] {
            let hot = HotExperts { device: one, experts: hot.into() };
            let layout = LayerPlacement {
                experts: vec![other; layers],
                hot: (0..layers).map(|layer| routed(layer).then(|| hot.clone())).collect(),
                ..LayerPlacement::all_on(one, layers)
            };
            let settings = Settings { layout: LayerChoice::Exactly(layout), ..exact() };
            let planned = Blueprint::plan(&model, &machine, &settings).unwrap().forecast().unwrap();
            let mut engine = load(&model, &machine, &settings);
            let found = rows(&mut engine, &tokens);
            assert!(nmse(&found, &whole) < 1e-10, "{name}, {hot:?}: {}", nmse(&found, &whole));
            assert_eq!(engine.memory(), planned, "{name}, {hot:?}");
            engine.check_races().unwrap();
        }
    }
}

#[test]
fn hot_experts_take_their_share_of_memory_in_any_type() {
    for file_type in [FileType::F16, FileType::Q8_0, FileType::Q4_K_M] {
        let model = synthetic(&Synth { file_type, ..with_experts() });
        let machine = two();
        let [one, other] = ["one", "two"].map(|name| machine.find(name).unwrap());
        let settings = |layout| Settings { layout, context: Some(64), ..Settings::default() };
        let expected = rows(&mut load(&model, &machine, &settings(LayerChoice::First)), &tokens());
        let weights = |hot: Option<&[u32]>| {
            let hot = hot.map(|hot| HotExperts { device: one, experts: hot.into() });
            let layout = LayerPlacement {
                experts: vec![other; 4],
                hot: vec![hot; 4],
                ..LayerPlacement::all_on(one, 4)
            };
            let mut engine = load(&model, &machine, &settings(LayerChoice::Exactly(layout)));
            assert!(nmse(&rows(&mut engine, &tokens()), &expected) < 1e-6);
            let share = &engine.memory().devices[0];
            share.weights + share.repacked
        };
        let none = weights(None);
        let [two, four] = [&[1, 6][..], &[0, 1, 6, 7]].map(|hot| weights(Some(hot)) - none);
        // Beside the experts, a table of eight numbers for each layer.
        assert!((4 * two - 2 * four) / 2 <= 2 * 4 * 256 && 2 * two >= four, "{two} {four}");
    }
}

#[test]
fn hot_experts_are_some_of_a_layer_that_has_experts() {
    let synth = with_experts();
    let (experts, dense) = (synthetic(&synth), synthetic(&Synth { experts: None, ..synth }));
    let machine = two();
    let one = machine.find("one").unwrap();
    let refusal = |model: &Model, hot: &[u32], importance| {
        let hot = vec![Some(HotExperts { device: one, experts: hot.into() }); 4];
        let layout = LayerPlacement { hot, ..LayerPlacement::all_on(one, 4) };
        let layout = LayerChoice::Exactly(layout);
        let settings = Settings { layout, importance, context: Some(64), ..Settings::default() };
        match Blueprint::plan(model, &machine, &settings) {
            Err(Error::BadSetting { value, rule, .. }) => format!("{value}: {rule}"),
            other => panic!("{other:?}"),
        }
    };
    for (hot, of) in
        [(&[][..], &experts), (&[3, 1], &experts), (&[1, 1], &experts), (&[8], &experts), (&[1], &dense)]
    {
        assert!(refusal(of, hot, false).ends_with("some of the layer's experts, ascending"), "{hot:?}");
    }
    let all: Vec<u32> = (0..8).collect();
    assert!(refusal(&experts, &all, false).contains("of layer 0"));
    assert!(refusal(&experts, &[1], true).contains("importance data"));
}

#[test]
fn the_experts_that_are_chosen_most_are_on_the_fast_device() {
    let model = synthetic(&with_experts());
    let machine = fast_and_slow();
    let [fast, slow] = ["fast", "slow"].map(|name| machine.find(name).unwrap());
    let work = Workload { prompt: 1, generated: 100, depth: 0 };
    // Two experts of each layer get 80 of 100 choices: others in each layer.
    let hot = |layer: usize| [layer as u32, layer as u32 + 4];
    let counts = |layer: usize| {
        (0..8u32).map(|expert| if hot(layer).contains(&expert) { 120 } else { 10 }).collect::<Vec<u64>>()
    };
    let counts = Arc::new(ExpertCounts { layers: (0..4).map(|layer| (layer, counts(layer))).collect() });
    let at = |layout, expert_counts: Option<&Arc<ExpertCounts>>, budget: Option<u64>| {
        let budgets = budget.map(|bytes| (fast, bytes)).into_iter().collect();
        let expert_counts = expert_counts.cloned();
        let settings = Settings { layout, budgets, expert_counts, context: Some(64), ..Settings::default() };
        Blueprint::plan(&model, &machine, &settings).unwrap()
    };
    let total = |blueprint: &Blueprint| blueprint.forecast().unwrap().devices[0].total();
    let cold = LayerPlacement { experts: vec![slow; 4], ..LayerPlacement::all_on(fast, 4) };
    let cold = at(LayerChoice::Exactly(cold), Some(&counts), None);
    let whole = at(LayerChoice::First, Some(&counts), None);
    // Room for a good quarter of the experts.
    let budget = total(&cold) + (total(&whole) - total(&cold)) * 3 / 10;
    let fastest = || LayerChoice::Fastest(work);
    let [placed, without] = [Some(&counts), None].map(|counts| at(fastest(), counts, Some(budget)));
    assert!(total(&placed) <= budget);
    for (layer, found) in placed.layout().hot.iter().enumerate() {
        let found = found.as_ref().unwrap_or_else(|| panic!("{:?}", placed.layout()));
        assert_eq!(found.device, fast);
        let chosen = hot(layer);
        assert!(chosen.iter().all(|expert| found.experts.contains(expert)), "layer {layer}: {found:?}");
    }
    let seconds = |blueprint: &Blueprint| blueprint.workload_seconds(&work).unwrap();
    // The two of the eight that are left to the slow device are a fifth of the work.
    assert!(seconds(&placed) < 0.5 * seconds(&without), "{} {}", seconds(&placed), seconds(&without));
    let decisions = placed.decisions();
    assert!(
        (decisions.seconds / seconds(&placed) - 1.0).abs() < 1e-9 && decisions.bound <= decisions.seconds
    );
    // The same tokens, as planned to the byte.
    let expected = greedy(
        &mut load(&model, &machine, &Settings { context: Some(64), ..Settings::default() }),
        &[1, 2],
        8,
    );
    let settings = Settings {
        layout: fastest(),
        budgets: [(fast, budget)].into(),
        expert_counts: Some(Arc::clone(&counts)),
        context: Some(64),
        ..Settings::default()
    };
    let mut engine = load(&model, &machine, &settings);
    assert_eq!(greedy(&mut engine, &[1, 2], 8), expected);
    assert_eq!(engine.memory(), placed.forecast().unwrap());
    // With room for all, they are together.
    let roomy = at(fastest(), Some(&counts), Some(2 * total(&whole)));
    assert_eq!(roomy.layout(), &LayerPlacement::all_on(fast, 4));
}
