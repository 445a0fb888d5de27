use std::sync::Arc;

use orlop::backend::Device;
use orlop::llm::LayerPlacement;
use orlop::sched::Machine;
use orlop::wgpu::Counts;

use crate::support::{gpu, greedy, load, model};

#[test]
fn a_token_makes_nothing_but_encoders_and_memory_is_what_the_plan_says() {
    let (model, gpu) = (model(), gpu());
    let layers = model.config().layers.len();
    let machine = Machine::new([Arc::clone(&gpu) as Arc<dyn Device>]).unwrap();
    let mut engine =
        load(&model, &machine, LayerPlacement::all_on(machine.indices().next().unwrap(), layers));
    let forecast = engine.blueprint().forecast().unwrap();
    assert_eq!(gpu.tensor_bytes(), forecast.devices[0].total());
    assert_eq!(engine.memory().devices, forecast.devices);

    greedy(&mut engine, &[6403, 1980, 253, 655], 2);
    let (before, allocated) = (gpu.counts(), gpu.allocated());
    engine.feed(&[28]).unwrap();
    engine.last_logits().unwrap();
    // One encoder for the run, inputs and all, and one for reading the logits.
    let made = gpu.counts().since(&before);
    assert_eq!(made, Counts { encoders: 2, submissions: 2, waits: made.waits, ..Counts::default() });
    assert_eq!(gpu.allocated(), allocated);
    assert_eq!(gpu.tensor_bytes(), forecast.devices[0].total());
}
