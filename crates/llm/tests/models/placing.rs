//! Placement by predicted time, models for described machines, and weights that stay in the file.

use std::sync::Arc;

use orlop_backend::{Device, Link};
use orlop_gguf::GgufFile;
use orlop_llm::{
    Blueprint, Experts, FileType, FitChoice, LayerChoice, LayerPlacement, Model, ModelPart, Settings, Synth,
    Workload,
};
use orlop_sched::{DeviceDescription, FlopsDescription, Limit, LinkDescription, Machine, MachineDescription};
use orlop_testkit::devices::TestDevice;

use crate::support::{cpu, greedy, load, one_cpu, reference, rows, synthetic, with_experts};

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

#[test]
fn a_placement_by_time_is_no_slower_than_any_number_of_layers_that_fits() {
    let (dense, tokens, _) = reference("llama-dense.Q4_0");
    let machine = fast_and_slow();
    let fast = machine.find("fast").unwrap();
    for model in [dense, synthetic(&with_experts())] {
        let layers = model.config().layers.len();
        let work = Workload { prompt: 16, generated: 8, depth: 0 };
        let at = |layout, budget: Option<u64>| {
            let budgets = budget.map(|bytes| (fast, bytes)).into_iter().collect();
            let settings = Settings { layout, budgets, context: Some(64), ..Settings::default() };
            Blueprint::plan(&model, &machine, &settings).unwrap()
        };
        let bytes = |blueprint: &Blueprint| blueprint.forecast().unwrap().devices[0].total();
        for count in 0..=layers {
            let plain = at(LayerChoice::LastLayers(count), None);
            // Half a layer more, for choices that layers do not have.
            let budget = bytes(&plain) + bytes(&plain) / (2 * layers as u64);
            let placed = at(LayerChoice::Fastest(work), Some(budget));
            assert!(bytes(&placed) <= budget);
            let [before, after] =
                [&plain, &placed].map(|blueprint| blueprint.workload_seconds(&work).unwrap());
            assert!(after <= before, "{count} layers: {after} after {before}");
            // Whichever layout it was that is faster, each part has its reasons.
            let decisions = placed.decisions();
            assert!(decisions.parts.len() > layers, "{count} layers: {decisions:?}");
            assert!(decisions.bound <= decisions.seconds, "{decisions:?}");
            // A prompt of 16 tokens is not a batch of 64.
            let [chosen, predicted] = [decisions.seconds, after];
            assert!((0.7..1.4).contains(&(chosen / predicted)), "{count} layers: {chosen} {predicted}");
        }
        let whole = at(LayerChoice::Fastest(work), None);
        assert_eq!(whole.layout(), &LayerPlacement::all_on(fast, layers));
        let slow = at(LayerChoice::LastLayers(0), None).workload_seconds(&work).unwrap();
        assert!(whole.workload_seconds(&work).unwrap() < slow / 10.0);
        let decisions = whole.decisions();
        assert!(decisions.bound <= decisions.seconds && decisions.parts.len() > layers);
        // With room everywhere, the next best choice of each part costs something.
        assert!(decisions.parts.iter().all(|decision| decision.next_best.unwrap().1 > 0.0), "{decisions:?}");
        // Wherever parts are, the tokens are the same.
        if model.config().vocabulary > 64 {
            let settings = |layout, budgets| Settings { layout, budgets, ..Settings::default() };
            let expected = greedy(&mut load(&model, &one_cpu(), &Settings::default()), &tokens, 8);
            let half = [(fast, bytes(&whole) / 2)].into();
            let mut engine = load(&model, &machine, &settings(LayerChoice::Fastest(work), half));
            assert_eq!(greedy(&mut engine, &tokens, 8), expected);
        }
    }
}

#[test]
fn a_layout_is_chosen_again_for_the_context_that_fits() {
    let model = synthetic(&Synth { layers: 6, width: 256, hidden: 512, context: 4096, ..Synth::default() });
    let machine = fast_and_slow();
    let [fast, slow] = ["fast", "slow"].map(|name| machine.find(name).unwrap());
    let layout = LayerChoice::fastest();
    let at = |layout, context, budgets| {
        let settings = Settings { layout, context, budgets, batch: 32, ..Settings::default() };
        Blueprint::plan(&model, &machine, &settings).unwrap()
    };
    // Room for the weights and a part of the caches: half of it on each device.
    let whole = at(LayerChoice::First, Some(1024), [].into()).forecast().unwrap().devices[0].total();
    let budgets = || [(fast, whole / 2), (slow, whole / 2)].into();
    let chosen = at(layout.clone(), None, budgets());
    assert!((64..4096).contains(&chosen.context()), "{}", chosen.context());
    assert_eq!(chosen.layout(), at(layout, Some(chosen.context()), budgets()).layout());
    assert!((1..6).contains(&chosen.layout().layers_on(fast)), "{:?}", chosen.layout());
    assert!(!chosen.decisions().parts.is_empty());
}

#[test]
fn what_a_device_cannot_use_takes_no_room_there() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let link = Link { bytes_per_second: 1e10, latency_seconds: 1e-6 };
    let fast = TestDevice::builder(cpu("fast kernels", 1)).name("fast").without(["get_rows"]);
    let fast: Arc<dyn Device> =
        fast.flops(1e11).bytes_per_second(1e11).launch_seconds(1e-9).host_link(link).build();
    let machine = Machine::new([fast, cpu("slow", 1)]).unwrap();
    let id = machine.find("fast").unwrap();
    let work = Workload { prompt: 16, generated: 8, depth: 0 };
    let at = |budgets| {
        let layout = LayerChoice::Fastest(work);
        let settings = Settings { layout, budgets, context: Some(64), ..Settings::default() };
        Blueprint::plan(&model, &machine, &settings).unwrap()
    };
    let whole = at([].into()).forecast().unwrap().devices[0].total();
    // No room for a table.
    let placed = at([(id, whole)].into());
    let input = placed.decisions().parts.iter().find(|decision| decision.part == ModelPart::Input).unwrap();
    let can_be_there = input.device == id || input.next_best.is_some_and(|(device, _)| device == id);
    assert!(can_be_there, "{input:?}");
}

#[test]
fn the_type_that_fits_is_the_largest_that_does() {
    let synth = |file_type| {
        let synth = Synth { layers: 4, width: 512, hidden: 1024, context: 256, ..Synth::default() };
        Synth { file_type, ..synth }
    };
    let of = |file_type| {
        let outline = synth(file_type).outline().unwrap();
        Model::from_file(GgufFile::from_file(outline)).unwrap()
    };
    let settings = Settings { context: Some(256), batch: 32, ..Settings::default() };
    let total = |file_type| {
        let blueprint = Blueprint::plan(&of(file_type), &described(1 << 30), &settings).unwrap();
        blueprint.forecast().unwrap().devices[0].total()
    };
    let fitting = |bytes| {
        let settings = Settings { layout: LayerChoice::fastest(), ..settings.clone() };
        let blueprint = Blueprint::plan(&of(FileType::Q8_0), &described(bytes), &settings).unwrap();
        blueprint.fitting_type().unwrap().unwrap().file_type
    };
    for file_type in [FileType::Q8_0, FileType::Q5_0, FileType::Q4_0] {
        assert_eq!(fitting(total(file_type)), file_type, "as much memory as it takes, to the byte");
    }
}

#[test]
fn results_of_experts_are_handed_on_one_by_one() {
    // Wide activations, small experts: to bring results back takes longer than anything else.
    let experts = Experts { count: 8, used: 8, hidden: 32, ..Experts::default() };
    let synth = Synth { layers: 2, width: 512, hidden: 32, vocabulary: 64, ..Synth::default() };
    let model = synthetic(&Synth { experts: Some(experts), ..synth });
    let device = |name: &str, speed: f64| -> Arc<dyn Device> {
        let link = Link { bytes_per_second: 1e7, latency_seconds: 0.0 };
        let builder = TestDevice::builder(cpu(&format!("{name} kernels"), 1)).name(name).flops(speed);
        builder.bytes_per_second(speed).launch_seconds(1e-9).host_link(link).build()
    };
    let machine = Machine::new([device("fast", 1e12), device("slow", 5e11)]).unwrap();
    let [fast, slow] = ["fast", "slow"].map(|name| machine.find(name).unwrap());
    let work = Workload { prompt: 1, generated: 10, depth: 0 };
    let at = |layout| {
        let settings = Settings { layout, context: Some(64), ..Settings::default() };
        Blueprint::plan(&model, &machine, &settings).unwrap()
    };
    let whole = at(LayerChoice::Fastest(work));
    let decision = |part| whole.decisions().parts.iter().find(|decision| decision.part == part).unwrap();
    let (device, extra) = decision(ModelPart::Experts(0)).next_best.unwrap();
    assert_eq!(device, slow);
    let apart = LayerPlacement { experts: vec![slow, fast], ..LayerPlacement::all_on(fast, 2) };
    let seconds = |blueprint: &Blueprint| blueprint.workload_seconds(&work).unwrap();
    let found = seconds(&at(LayerChoice::Exactly(apart))) - seconds(&whole);
    assert!((0.7..1.4).contains(&(extra / found)), "{extra} expected, {found} predicted");
}

#[test]
fn experts_of_a_layer_can_be_on_another_device_than_the_rest() {
    let synth = with_experts();
    let model = synthetic(&synth);
    let machine = fast_and_slow();
    let [fast, slow] = ["fast", "slow"].map(|name| machine.find(name).unwrap());
    let tokens: Vec<u32> = (0..20).map(|token| token * 7 % 64).collect();
    let settings = |layout| Settings { layout, context: Some(64), ..Settings::default() };
    let expected = rows(&mut load(&model, &machine, &settings(LayerChoice::First)), &tokens);
    let all = LayerPlacement::all_on(fast, 4);
    let apart = LayerPlacement { experts: vec![slow, fast, slow, slow], ..all };
    let mut engine = load(&model, &machine, &settings(LayerChoice::Exactly(apart)));
    let memory = engine.memory();
    let weights = |index: usize| memory.devices[index].weights + memory.devices[index].repacked;
    assert!(weights(1) > 2 * weights(0), "{memory:?}");
    assert_eq!(rows(&mut engine, &tokens), expected);
    // With room for a part of them, attention comes first: experts are read least.
    let total: u64 = memory.devices.iter().map(|share| share.total()).sum();
    let budgets = [(fast, total / 10 * 6)].into();
    let work = Workload { prompt: 1, generated: 100, depth: 0 };
    let settings = Settings { budgets, ..settings(LayerChoice::Fastest(work)) };
    let placed = Blueprint::plan(&model, &machine, &settings).unwrap();
    let layout = placed.layout();
    assert!(layout.layers.iter().all(|device| *device == fast), "{layout:?}");
    assert!(layout.experts.contains(&slow), "{layout:?}");
    let is_experts = |part: &ModelPart| matches!(part, ModelPart::Experts(_));
    assert_eq!(placed.decisions().parts.iter().filter(|decision| is_experts(&decision.part)).count(), 4);
}

#[test]
fn a_model_that_memory_does_not_hold_runs_from_its_file() {
    let model = synthetic(&Synth { layers: 6, width: 256, hidden: 1024, ..Synth::default() });
    let machine = one_cpu();
    let cpu = machine.find("cpu").unwrap();
    let settings = Settings { context: Some(64), batch: 16, ..Settings::default() };
    let whole = Blueprint::plan(&model, &machine, &settings).unwrap();
    let all = whole.forecast().unwrap().devices.remove(0);
    let budget = (all.weights + all.repacked) / 2 + all.kv + all.compute;
    let tight = Settings { budgets: [(cpu, budget)].into(), file_bytes_per_second: 1e6, ..settings };
    let streaming = Blueprint::plan(&model, &machine, &tight).unwrap();
    let share = streaming.forecast().unwrap().devices.remove(0);
    assert!(share.fits() && share.streamed > 0 && share.weights + share.repacked > budget / 4, "{share:?}");
    let speed = streaming.speed_forecast(16, 0).unwrap();
    assert_eq!((speed.prompt_limited_by, speed.generation_limited_by), (Limit::File, Limit::File));
    // Rows of the embedding table alone are read of it.
    let least = share.streamed as f64 / 1e6;
    assert!((1.0 / speed.generation_tokens_per_second - least).abs() < 0.2 * least, "{speed:?} {least}");
    let tokens: Vec<u32> = (0..40).map(|token| token * 11 % 512).collect();
    let mut engine = load(&model, &machine, &tight);
    let found = rows(&mut engine, &tokens);
    let memory = engine.memory().devices.remove(0);
    assert_eq!((memory.streamed, memory.total()), (share.streamed, share.total()), "as planned");
    assert_eq!(
        found,
        rows(&mut load(&model, &machine, &Settings { context: Some(64), ..Settings::default() }), &tokens)
    );
    // The context is chosen where none is asked for.
    let open = Settings { context: None, ..tight };
    let chosen = Blueprint::plan(&model, &machine, &open).unwrap();
    assert!(chosen.forecast().unwrap().devices[0].streamed > 0 && chosen.context() <= 128);
}

fn described(gpu_bytes: u64) -> Machine {
    let device = |name: &str, kind: &str, memory_bytes, read_bytes_per_s, rate: f64| DeviceDescription {
        name: name.to_owned(),
        kind: kind.to_owned(),
        memory_bytes,
        read_bytes_per_s,
        flops: FlopsDescription { f16: rate, i8: 2.0 * rate },
        launch_s: 2e-6,
    };
    let link = |from: &str, to: &str| LinkDescription {
        from: from.to_owned(),
        to: to.to_owned(),
        latency_s: 1e-5,
        bytes_per_s: 2e10,
    };
    let description = MachineDescription {
        devices: vec![
            device("gpu", "cuda", gpu_bytes, 8e11, 5e13),
            device("cpu", "cpu", 64 << 30, 5e10, 1e12),
        ],
        links: vec![link("cpu", "gpu"), link("gpu", "cpu")],
    };
    description.machine().unwrap()
}

#[test]
fn a_model_without_a_file_is_planned_for_a_machine_that_is_not_here() {
    let synth = Synth { file_type: FileType::Q4_0, layers: 8, ..Synth::preset("llama-7b").unwrap() };
    let model = Model::from_file(GgufFile::from_file(synth.outline().unwrap())).unwrap();
    let fast = |gpu_bytes: u64| {
        let settings = Settings { layout: LayerChoice::fastest(), context: Some(512), ..Settings::default() };
        Blueprint::plan(&model, &described(gpu_bytes), &settings).unwrap()
    };
    let (whole, half) = (fast(8 << 30), fast(1 << 29));
    let speed = |blueprint: &Blueprint| blueprint.speed_forecast(512, 0).unwrap();
    let [gpu, cpu] = ["gpu", "cpu"].map(|name| whole.machine().find(name).unwrap());
    assert_eq!(whole.layout().layers_on(gpu), 8);
    // 1 GB of weights at 800 GB/s, and steps.
    let seconds = 1.0 / speed(&whole).generation_tokens_per_second;
    let bytes = whole.forecast().unwrap().devices[0].weights as f64;
    assert!((1.0..2.0).contains(&(seconds / (bytes / 8e11))), "{seconds}");
    assert_eq!(speed(&whole).generation_limited_by, Limit::Memory(gpu));
    let on_gpu = half.layout().layers_on(gpu);
    assert!((1..8).contains(&on_gpu), "{:?}", half.layout());
    assert_eq!(speed(&half).generation_limited_by, Limit::Memory(cpu));
    assert!(speed(&half).generation_tokens_per_second < speed(&whole).generation_tokens_per_second / 3.0);
    assert!(half.forecast().unwrap().fits());
    // What else would fit: smaller types, entirely.
    let fitting = fast(1 << 30).fitting_type().unwrap().unwrap();
    assert!(fitting.bytes < 1 << 30 && fitting.bytes > 1 << 29, "{fitting:?}");
    assert!(half.fitting_type().unwrap().unwrap().bytes < 1 << 29);
    assert_eq!(fast(1 << 28).fitting_type().unwrap(), None);
    let settings = Settings { layout: LayerChoice::fastest(), ..Settings::default() };
    let choices = FitChoice::all(&model, &described(1 << 30), &settings, &Workload::default()).unwrap();
    assert!(choices.len() >= 3, "{choices:?}");
    assert!(choices.iter().all(|choice| choice.forecast.fits() && choice.context <= 4096));
    let bytes = |context, cache| {
        let found = choices.iter().find(|choice| (choice.context, choice.cache.name()) == (context, cache));
        found.unwrap().bytes()
    };
    assert!(bytes(4096, "q8_0") < bytes(4096, "f16") && bytes(2048, "f16") < bytes(4096, "f16"));
}

#[test]
fn speeds_fall_with_depth_and_prompts_are_faster_than_generation() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let settings = Settings { context: Some(4096), ..Settings::default() };
    let blueprint = Blueprint::plan(&model, &one_cpu(), &settings).unwrap();
    let [shallow, deep] = [0, 3000].map(|depth| blueprint.speed_forecast(600, depth).unwrap());
    assert!(deep.generation_tokens_per_second < shallow.generation_tokens_per_second);
    assert!(deep.prompt_tokens_per_second < shallow.prompt_tokens_per_second);
    assert!(shallow.prompt_tokens_per_second > shallow.generation_tokens_per_second);
    assert_eq!((deep.depth, deep.prompt), (3000, 600));
}
