//! From the file to the first token, every graph is planned once.

use std::sync::{Arc, Mutex};

use orlop_llm::{Blueprint, Engine, LayerChoice, Model, Part, SequenceId, Settings};
use orlop_sched::{Machine, PlanObserver};
use orlop_testkit::devices::TestDevice;

use crate::support::{cpu, one_cpu, reference};

/// Tokens that each graph takes which was planned.
#[derive(Clone, Default)]
struct Plannings(Arc<Mutex<Vec<u64>>>);

impl Plannings {
    fn observer(&self) -> PlanObserver {
        let seen = Arc::clone(&self.0);
        PlanObserver::new(move |graph| {
            let tokens = graph.tensors().iter().find(|tensor| tensor.name.as_str() == "tokens").unwrap();
            seen.lock().unwrap().push(tokens.desc.extents[0]);
        })
    }

    /// How many tokens each graph that was planned since the last call takes.
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Reads everything that speaks of plans, loads the model and feeds prompts: no graph is planned after loading but that of
/// the first run, which uses weights that are pending.
fn first_token(model: &Model, blueprint: Blueprint, tokens: &[u32], plannings: &Plannings) {
    blueprint.forecast().unwrap();
    blueprint.save();
    blueprint.planned_batch();
    blueprint.planned_token();
    blueprint.check_plans().unwrap();
    let mut engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
    assert_eq!(plannings.take(), [0; 0], "all graphs were planned before");
    engine.feed(tokens).unwrap();
    assert_eq!(
        plannings.take(),
        [tokens.len() as u64],
        "the graph of the first run, which uses pending weights"
    );
    for count in [1, 2, 7, 8, 9, 20] {
        engine.truncate(1);
        engine.feed(&tokens[..count]).unwrap();
    }
    assert_eq!(plannings.take(), [0; 0], "graphs of all batches were planned before");
    assert_eq!(engine.config(), model.config());
}

#[test]
fn each_graph_is_planned_once() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    for context in [None, Some(64)] {
        let plannings = Plannings::default();
        let settings = Settings { context, batch: 48, observer: plannings.observer(), ..Settings::default() };
        let blueprint = Blueprint::plan(&model, &one_cpu(), &settings).unwrap();
        assert_eq!(plannings.take(), [1, 8, 48]);
        let plans = blueprint.save().into();
        first_token(&model, blueprint, &tokens, &plannings);
        let blueprint = Blueprint::plan(&model, &one_cpu(), &Settings { plans, ..settings }).unwrap();
        assert_eq!(plannings.take(), [1, 8, 48], "with plans that were made before");
        first_token(&model, blueprint, &tokens, &plannings);
    }
}

#[test]
fn graphs_for_several_sequences_are_planned_with_the_model_and_counted() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let plannings = Plannings::default();
    let settings = Settings {
        context: Some(256),
        batch: 64,
        sequences: 4,
        draft: 7,
        observer: plannings.observer(),
        ..Settings::default()
    };
    let blueprint = Blueprint::plan(&model, &one_cpu(), &settings).unwrap();
    // Above 16 tokens there is a graph for one row of logits, and one for a row of each sequence.
    let shapes: Vec<(u64, u64)> = blueprint.shapes().map(|shape| (shape.tokens, shape.outputs)).collect();
    let expected = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 1), (32, 4), (64, 1), (64, 4)];
    assert_eq!(shapes, expected);
    assert_eq!(plannings.take(), expected.map(|(tokens, _)| tokens));
    let forecast = blueprint.forecast().unwrap();
    let mut engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
    engine.repack(&mut |_, _| ()).unwrap();
    assert_eq!(engine.batch_sizes().collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 64]);
    let ids = [SequenceId::FIRST, engine.start_sequence().unwrap(), engine.start_sequence().unwrap()];
    for count in [1, 2, 3, 5, 12, 24] {
        let parts = ids.map(|id| Part::last(id, &tokens[..count]));
        engine.feed_parts(&parts[..1], &mut |_| Ok(())).unwrap();
        engine.feed_parts(&parts, &mut |_| Ok(())).unwrap();
        engine.feed_parts(&[Part::all(ids[1], &tokens[..count])], &mut |_| Ok(())).unwrap();
        ids.iter().for_each(|id| assert_eq!(engine.truncate_sequence(*id, 0).unwrap(), 0));
    }
    assert_eq!(plannings.take(), [0; 0], "nothing is planned after loading");
    assert_eq!(engine.memory(), forecast);
}

#[test]
fn a_placement_by_time_plans_the_model_on_each_device_and_then_what_it_tries() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let device = |name: &str| TestDevice::builder(cpu(&format!("{name} kernels"), 1)).name(name).build();
    let machine = Machine::new(vec![device("a") as _, device("b") as _]).unwrap();
    let layers = model.config().layers.len() as u64;
    let plannings = Plannings::default();
    let settings = Settings {
        layout: LayerChoice::fastest(),
        context: Some(64),
        observer: plannings.observer(),
        ..Settings::default()
    };
    let blueprint = Blueprint::plan(&model, &machine, &settings).unwrap();
    // As many layers as fit: none, and then half of the rest, until it is found.
    let plain = 1 + u64::from(layers.next_power_of_two().ilog2()) + u64::from(layers.is_power_of_two());
    // Graphs of 1, 8 and 64 tokens: whole on each device, and one placement, as everything fits.
    assert_eq!(plannings.take().len() as u64, 3 * (plain + 2 + 1));
    let mut engine = Engine::load(blueprint, &mut |_, _| ()).unwrap();
    engine.feed(&tokens[..1]).unwrap();
    let planned = plannings.take();
    assert!(planned.len() <= 1, "{planned:?}: at most the graph of the first run");
}
