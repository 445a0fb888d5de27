//! Drafts that the model verifies: they change no answer.

use orlop_http::{LoadedModel, ServedModel, ServerOptions, with_sequences};
use orlop_llm::{BatchSpeculator, Blueprint, Engine, PairBlueprint, SamplingOptions, Settings};
use orlop_sched::Machine;
use serde_json::{Value as Json, json};

use crate::support::{ROWS, Running, cpu, model, options, start_models};

const PARALLEL: usize = 8;

/// What drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drafts {
    None,
    Lookup,
    /// The model itself.
    Model,
}

fn start(drafts: Drafts) -> Running {
    let model = model();
    let machine = Machine::new([cpu()]).unwrap();
    let draft = if drafts == Drafts::None { 0 } else { 7 };
    let settings = Settings { context: Some(ROWS), batch: 64, draft, ..Settings::default() };
    let settings = with_sequences(settings, model.config(), PARALLEL);
    let pair = match drafts {
        Drafts::Model => Some(PairBlueprint::plan(&model, &model, &machine, &settings).unwrap()),
        Drafts::None | Drafts::Lookup => None,
    };
    let planned = match &pair {
        Some(pair) => pair.model.clone(),
        None => Blueprint::plan(&model, &machine, &settings).unwrap(),
    };
    let (blueprint, draft) = (planned.clone(), pair.as_ref().map(|pair| pair.draft.clone()));
    let load = move || {
        let engine = Engine::load(blueprint.clone(), &mut |_, _| ())?;
        let drafts = match (drafts, &draft) {
            (Drafts::None, _) => None,
            (_, None) => Some(BatchSpeculator::lookup(&engine)?),
            (_, Some(draft)) => {
                let draft = Engine::load(draft.clone(), &mut |_, _| ())?;
                Some(BatchSpeculator::draft_model(draft, &engine)?)
            }
        };
        Ok(LoadedModel { engine, drafts: drafts.map(BatchSpeculator::always_longest) })
    };
    let served = ServedModel::new("default", planned, SamplingOptions::default(), load).unwrap();
    let served = match &pair {
        Some(pair) => served.with_draft_model(pair).unwrap(),
        None => served,
    };
    start_models(ServerOptions { parallel: PARALLEL, ..options() }, vec![served])
}

fn completion(fields: Json) -> Json {
    let mut body = json!({ "prompt": [1, 70, 71, 72], "max_tokens": 40, "ignore_eos": true });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// Greedy, sampled, with scores, several answers, and with a grammar.
fn requests() -> Vec<Json> {
    vec![
        completion(json!({ "temperature": 0 })),
        completion(json!({ "temperature": 1, "seed": 1 })),
        completion(json!({ "temperature": 0.3, "seed": 2, "repeat_penalty": 1.2 })),
        completion(json!({ "temperature": 0, "logprobs": 2, "max_tokens": 20 })),
        completion(json!({ "temperature": 0.5, "seed": 4, "n": 3 })),
        completion(
            json!({ "temperature": 1, "seed": 5, "guided_regex": "(ab|ac|b)(aaaa|b){20}", "ignore_eos": false }),
        ),
    ]
}

/// What does not depend on the time.
fn said(answer: Json) -> Json {
    let choices = answer["choices"].as_array().unwrap().iter();
    let choices = choices.map(|one| json!([one["text"], one["finish_reason"], one["logprobs"]]));
    json!([choices.collect::<Vec<_>>(), answer["usage"]["completion_tokens"]])
}

#[test]
fn answers_are_the_same_whoever_drafts() {
    let plain = start(Drafts::None);
    let expected: Vec<Json> =
        requests().iter().map(|request| said(plain.post("/v1/completions", request).ok())).collect();
    assert_eq!(plain.metric("orlop_spec_decode_num_draft_tokens_total"), 0.0);
    for drafts in [Drafts::Lookup, Drafts::Model] {
        let server = start(drafts);
        for (request, expected) in requests().iter().zip(&expected) {
            let answer = server.post("/v1/completions", request).ok();
            assert_eq!(said(answer), *expected, "{drafts:?}: {request}");
        }
        // All together.
        std::thread::scope(|scope| {
            for (request, expected) in requests().into_iter().zip(&expected) {
                let server = &server;
                scope.spawn(move || {
                    let answer = server.post("/v1/completions", &request).ok();
                    assert_eq!(said(answer), *expected, "{drafts:?}, in company: {request}");
                });
            }
        });
        let drafted = server.metric("orlop_spec_decode_num_draft_tokens_total");
        let accepted = server.metric("orlop_spec_decode_num_accepted_tokens_total");
        let least = if drafts == Drafts::Model { 20.0 } else { 1.0 };
        assert!(least <= accepted && accepted <= drafted, "{drafts:?}: {accepted} of {drafted}");
    }
}

#[test]
fn a_model_that_drafts_for_itself_is_right_and_its_memory_is_planned() {
    let server = start(Drafts::Model);
    let answer =
        server.post("/v1/completions", &completion(json!({ "temperature": 0, "max_tokens": 33 }))).ok();
    let timings = &answer["timings"];
    // The first token comes with the prompt; then each run verifies seven, and gives one more.
    assert_eq!((&timings["draft_n"], &timings["draft_n_accepted"]), (&json!(28), &json!(28)), "{answer}");
    assert_eq!(timings["predicted_n"], 33);
    let metrics = server.get("/metrics").text().to_owned();
    let bytes = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(bytes("orlop_planned_bytes"), bytes("orlop_allocated_bytes"));
    let alone = start(Drafts::None).get("/metrics").text().to_owned();
    let alone = alone.lines().find(|line| line.starts_with("orlop_planned_bytes")).unwrap();
    assert!(bytes("orlop_planned_bytes") > alone.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
}

#[test]
fn without_drafts_their_number_is_not_reported() {
    let answer = start(Drafts::None).post("/v1/completions", &completion(json!({ "temperature": 0 }))).ok();
    assert!(answer["timings"]["predicted_n"] == 40 && answer["timings"].get("draft_n").is_none(), "{answer}");
}
