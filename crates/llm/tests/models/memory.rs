//! Forecasts, and what fits.

use orlop_llm::{Blueprint, Error, LayerChoice, LayerPlacement, LayerSplit, Model, Outputs, Settings};
use orlop_sched::Machine;
use orlop_testkit::devices::TestDevice;

use crate::support::{cpu, greedy, load, one_cpu, reference};

#[test]
fn a_forecast_is_what_is_allocated() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    for (batch, outputs) in [(512, Outputs::Last), (8, Outputs::Last), (8, Outputs::All)] {
        let settings = Settings { batch, outputs, context: Some(64), ..Settings::default() };
        let blueprint = Blueprint::plan(&model, &one_cpu(), &settings).unwrap();
        let mut forecast = blueprint.forecast().unwrap();
        let mut engine = load(&model, &one_cpu(), &settings);
        greedy(&mut engine, &tokens, 30);
        let mut memory = engine.memory();
        // What else runs on this machine changes what is free.
        forecast.devices.iter_mut().chain(&mut memory.devices).for_each(|share| share.free = None);
        assert_eq!(memory, forecast);
    }
}

#[test]
fn a_device_of_its_own_memory_holds_the_forecast_and_no_more() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    let device = TestDevice::builder(cpu("kernels", 1)).name("a").asynchronous(true).build();
    let machine = Machine::new(vec![device.clone() as _]).unwrap();
    let settings = Settings { context: Some(64), ..Settings::default() };
    let mut engine = load(&model, &machine, &settings);
    greedy(&mut engine, &tokens, 20);
    let total: u64 = engine.memory().devices.iter().map(|share| share.total()).sum();
    assert_eq!(device.counters().live_bytes, total);
}

#[test]
fn the_context_shrinks_until_it_fits() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let machine = one_cpu();
    let cpu = machine.find("cpu").unwrap();
    let budget = |bytes| Settings { budgets: [(cpu, bytes)].into(), ..Settings::default() };
    let whole = Blueprint::plan(&model, &machine, &Settings::default()).unwrap().forecast().unwrap();
    assert_eq!(whole.context, model.config().context);
    let bytes = whole.devices[0].total() - 1;
    let smaller = Blueprint::plan(&model, &machine, &budget(bytes)).unwrap();
    assert!(smaller.context() < whole.context && smaller.context() > whole.context / 2);
    assert!(smaller.forecast().unwrap().fits());
    let asked = Settings { context: Some(whole.context), ..budget(bytes) };
    match Blueprint::plan(&model, &machine, &asked) {
        Err(Error::DoesNotFit { context, largest, available, .. }) => {
            assert_eq!((context, largest, available), (whole.context, Some(smaller.context()), bytes));
        }
        other => panic!("{other:?}"),
    }
    match Blueprint::plan(&model, &machine, &budget(1000)) {
        Err(Error::DoesNotFit { largest: None, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_context_beyond_the_training_is_searched_as_far_as_it_was_asked_for() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let machine = one_cpu();
    let cpu = machine.find("cpu").unwrap();
    let trained = model.config().context;
    let asked = Settings { context: Some(4 * trained), ..Settings::default() };
    let drawn = Blueprint::plan(&model, &machine, &asked).unwrap();
    assert_eq!((drawn.trained_context(), drawn.largest_context().unwrap()), (trained, Some(4 * trained)));
    let total = drawn.forecast().unwrap().devices[0].total();
    let tight = Settings { budgets: [(cpu, total - 1)].into(), ..asked };
    let Err(Error::DoesNotFit { largest: Some(largest), .. }) = Blueprint::plan(&model, &machine, &tight)
    else {
        panic!("it must not fit");
    };
    assert!(trained < largest && largest < 4 * trained, "{largest}");
    // Without a setting, the context is what the model was trained for; larger ones that fit are found on request.
    let plain = Blueprint::plan(&model, &machine, &Settings::default()).unwrap();
    assert_eq!((plain.context(), plain.largest_context().unwrap()), (trained, Some(trained)));
    assert_eq!(plain.largest_context_within(trained + 1).unwrap(), Some(trained + 1));
}

/// Bytes on the first device with a number of layers there.
fn on_with(model: &Model, machine: &Machine, count: usize, context: u64) -> u64 {
    let layout = LayerChoice::LastLayers(count);
    let settings = Settings { layout, context: Some(context), ..Settings::default() };
    Blueprint::plan(model, machine, &settings).unwrap().forecast().unwrap().devices[0].total()
}

#[test]
fn where_no_division_holds_the_context_a_smaller_one_is_offered_with_its_layers() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let device = |name: &str| TestDevice::builder(cpu(&format!("{name} kernels"), 1)).name(name).build();
    let machine = Machine::new(vec![device("a") as _, device("b") as _]).unwrap();
    let layers = model.config().layers.len();
    let half = on_with(&model, &machine, layers, 4);
    let asked = Settings {
        context: Some(100_000),
        layout: LayerChoice::LastLayers(layers),
        budgets: machine.indices().map(|device| (device, half)).collect(),
        ..Settings::default()
    };
    let Err(Error::DoesNotFit { divided: Some(division), .. }) = Blueprint::plan(&model, &machine, &asked)
    else {
        panic!("it must not fit");
    };
    let take = |division: LayerSplit| {
        let (layout, context) = (LayerChoice::LastLayers(division.layers), Some(division.context));
        Blueprint::plan(&model, &machine, &Settings { layout, context, ..asked.clone() })
    };
    assert!(take(division).is_ok(), "{division:?}");
    for layers in 0..=layers {
        assert!(
            take(LayerSplit { layers, context: division.context + 1 }).is_err(),
            "{layers} of {division:?}"
        );
    }
}

#[test]
fn an_error_says_how_many_layers_fit() {
    let (model, ..) = reference("llama-dense.Q4_0");
    let device = |name: &str| TestDevice::builder(cpu(&format!("{name} kernels"), 1)).name(name).build();
    let machine = Machine::new(vec![device("small") as _, device("large") as _]).unwrap();
    let small = machine.find("small").unwrap();
    let layers = model.config().layers.len();
    // One layer too many: the error says how many fit, and that is so.
    let asked = Settings {
        context: Some(64),
        layout: LayerChoice::LastLayers(layers),
        budgets: [(small, on_with(&model, &machine, layers, 64) - 1)].into(),
        ..Settings::default()
    };
    match Blueprint::plan(&model, &machine, &asked) {
        Err(error @ Error::DoesNotFit { divided: Some(division), .. }) => {
            assert_eq!(division, LayerSplit { layers: layers - 1, context: 64 });
            assert!(error.to_string().ends_with(&division.to_string()), "{error}");
            let taken = Settings { layout: LayerChoice::LastLayers(division.layers), ..asked };
            assert!(Blueprint::plan(&model, &machine, &taken).is_ok());
        }
        other => panic!("{other:?}"),
    }
    let one = LayerPlacement::all_on(small, layers);
    assert_eq!(one.layers_on(small), layers);
}
