//! What is planned is what runs.

use orlop_http::{CachePlan, ServerOptions, with_sequences};
use orlop_llm::{Blueprint, Settings};
use orlop_sched::Machine;
use serde_json::json;

use crate::support::{cpu, model, options, served, start_models};

#[test]
fn as_many_sequences_run_as_the_plan_says() {
    let (parallel, rows) = (8, 512);
    let model = model();
    let settings = Settings { context: Some(rows), batch: 64, ..Settings::default() };
    let settings = with_sequences(settings, model.config(), parallel);
    let machine = Machine::new([cpu()]).unwrap();
    let blueprint = Blueprint::plan(&model, &machine, &settings).unwrap();
    let plan = CachePlan::of(&blueprint, Some(64), parallel).unwrap();
    // Eight pages, and a sequence that the server does not use.
    assert_eq!(plan.sequences, [(64, 7)]);
    let options = ServerOptions { parallel, ..options() };
    let server =
        start_models(options, vec![served("default", cpu(), &model, parallel, rows).with_context(64)]);
    let wanted = json!({ "prompt": [70], "max_tokens": 60, "n": 8, "ignore_eos": true, "stream": true });
    let mut connection = server.begin("/v1/completions", &wanted);
    assert_eq!(connection.head().status, 200);
    server.until("all run that can", || {
        server.metric("orlop_num_requests_running") == 7.0
            && server.metric("orlop_num_requests_waiting") == 1.0
    });
}
