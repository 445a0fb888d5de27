//! Speculative decoding gives the tokens that generation without drafts gives.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use orlop_backend::Cancel;
use orlop_gguf::{Array, GgufFile as Parts, GgufPart, MetadataValue, Strings};
use orlop_llm::{
    BatchSpeculator, Blueprint, Chat, ChatEvent, ChatTemplate, DifferentToken, DraftCounts, DraftModel,
    Drafter, End, Engine, Error, FileType, GenerateEvent, GenerateOptions, Lookup, Model, PairBlueprint,
    Part, RunRows, Sampler, SamplingOptions, SequenceDraft, SequenceId, SequenceText, Settings, Speculator,
    Synth, TextModel, TextOptions, Tokenizer, VocabularyDifference, generate, generate_with,
};
use orlop_sched::Machine;
use orlop_testkit::{Random, ReferenceDevice};

use crate::made::made;
use crate::support::{load, one_cpu, reference};

const DRAFT: usize = 7;
const CONTEXT: usize = 160;
const PROMPT: [u32; 9] = [5, 400, 31, 77, 5, 400, 31, 77, 5];

fn settings() -> Settings {
    Settings { context: Some(CONTEXT as u64), draft: DRAFT as u64, ..Settings::default() }
}

/// A device on which a row's result does not depend on the rows beside it.
fn reference_device() -> Machine {
    Machine::new(vec![ReferenceDevice::new() as _]).unwrap()
}

fn synth(layers: u64) -> Synth {
    Synth { vocabulary: 700, context: 400, layers, file_type: FileType::Q8_0, ..Synth::default() }
}

fn opened(synth: &Synth) -> Model {
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    Model::from_file(Parts::from_file(file)).unwrap()
}

fn sampling() -> Vec<SamplingOptions> {
    let plain = SamplingOptions::default();
    let penalized = SamplingOptions { repeat_penalty: 1.4, repeat_last: 12, ..plain };
    vec![
        SamplingOptions::greedy(),
        plain,
        SamplingOptions { temperature: 3.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..plain },
        penalized,
        SamplingOptions { temperature: 0.0, ..penalized },
    ]
}

/// Proposes the tokens that will come, with mistakes.
#[derive(Debug)]
struct Scripted {
    /// The prompt, and the text behind it.
    script: Vec<u32>,
    /// Per cent of tokens that are right.
    right: u64,
    random: Random,
}

impl Scripted {
    fn boxed(text: &[u32], right: u64, seed: u64) -> Box<dyn Drafter> {
        Box::new(Scripted { script: [&PROMPT, text].concat(), right, random: Random::new(seed) })
    }
}

impl Drafter for Scripted {
    fn draft(
        &mut self,
        target: &mut Engine,
        text: &[u32],
        most: usize,
        into: &mut Vec<u32>,
    ) -> Result<(), Error> {
        assert_eq!(target.len() + 1, text.len(), "the last token is not in the cache yet");
        for token in self.script.iter().skip(text.len()).take(most) {
            let right = self.random.next() % 100 < self.right;
            into.push(if right { *token } else { (token + 1) % 700 });
        }
        Ok(())
    }
}

/// What was generated, and what it took.
#[derive(Debug, PartialEq)]
struct Made {
    tokens: Vec<u32>,
    end: End,
    /// Tokens in the cache.
    len: usize,
}

/// A model with a tokenizer, and where and how it runs.
struct Bench {
    model: Model,
    tokenizer: Tokenizer,
    machine: Machine,
    settings: Settings,
}

impl Bench {
    fn new() -> Bench {
        let model = opened(&synth(2));
        let tokenizer = Tokenizer::from_metadata(model.file().metadata()).unwrap();
        Bench { model, tokenizer, machine: reference_device(), settings: settings() }
    }

    /// On the CPU, whose results are batch-invariant.
    fn on_cpu() -> Bench {
        Bench { machine: one_cpu(), ..Bench::new() }
    }

    fn engine(&self) -> Engine {
        load(&self.model, &self.machine, &self.settings)
    }

    /// A drafter that runs another model.
    fn draft_model(&self, model: &Model, context: u64) -> Box<dyn Drafter> {
        let own = Settings { draft: 0, context: Some(context), ..self.settings.clone() };
        Box::new(DraftModel::new(load(model, &self.machine, &own), &self.engine()).unwrap())
    }

    /// The first token that the prompt's end allows may stop it: `stop` tokens at most, by the callback.
    fn generate(
        &self,
        engine: &mut Engine,
        speculator: Option<&mut Speculator>,
        sampler: &mut Sampler,
        limit: Option<usize>,
        stop: usize,
    ) -> Made {
        let mut tokens = Vec::new();
        let mut each = |event| {
            if let GenerateEvent::Token(token) = event {
                tokens.push(token);
            }
            if tokens.len() == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        engine.truncate(0);
        let options = GenerateOptions { limit, speculator, grammar: None };
        let end = generate_with(engine, &self.tokenizer, sampler, &PROMPT, options, &mut each).unwrap();
        Made { tokens, end, len: engine.len() }
    }

    /// Without drafts.
    fn plain(&self, options: SamplingOptions, seed: u64, limit: Option<usize>) -> Made {
        self.generate(&mut self.engine(), None, &mut Sampler::new(options, seed), limit, usize::MAX)
    }
}

#[test]
fn tokens_are_the_same_for_every_seed_temperature_penalty_and_drafter() {
    same_tokens(&Bench::new());
    same_tokens(&Bench::on_cpu());
}

fn same_tokens(bench: &Bench) {
    let draft_model = opened(&synth(1));
    let (mut plain, mut engine) = (bench.engine(), bench.engine());
    let mut accepted = [0; 6];
    for options in sampling() {
        for seed in 0..4 {
            let mut sampler = Sampler::new(options, seed);
            let expected = bench.generate(&mut plain, None, &mut sampler, Some(60), usize::MAX);
            let next = sampler.sample(&[0.5; 700]);
            let drafter = |index: usize| -> Box<dyn Drafter> {
                match index {
                    0..4 => Scripted::boxed(&expected.tokens, [0, 50, 90, 100][index], seed),
                    4 => Box::new(Lookup::new(CONTEXT as u64)),
                    _ => bench.draft_model(&draft_model, CONTEXT as u64),
                }
            };
            let drafters: Vec<Box<dyn Drafter>> = (0..6).map(drafter).collect();
            for (index, drafter) in drafters.into_iter().enumerate() {
                let speculator = Speculator::new(&engine, drafter).unwrap();
                // The length of most drafts does not depend on the clock.
                let mut speculator = if index % 2 == 0 { speculator.always_longest() } else { speculator };
                let mut sampler = Sampler::new(options, seed);
                let found =
                    bench.generate(&mut engine, Some(&mut speculator), &mut sampler, Some(60), usize::MAX);
                assert_eq!(found, expected, "{options:?}, seed {seed}, drafter {index}");
                assert_eq!(sampler.sample(&[0.5; 700]), next, "the sampler has gone as far");
                accepted[index] += speculator.counts().accepted;
            }
        }
    }
    let [never, .., looked_up, _] = accepted;
    assert_eq!(never, 0);
    assert!(accepted[2] > 300 && looked_up > 30, "{accepted:?}");
}

#[test]
fn a_model_that_drafts_for_itself_is_always_right() {
    let bench = Bench::new();
    let expected = bench.plain(SamplingOptions::greedy(), 0, Some(41));
    let mut engine = bench.engine();
    let drafter = bench.draft_model(&bench.model, CONTEXT as u64);
    let mut speculator = Speculator::new(&engine, drafter).unwrap().always_longest();
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let found = bench.generate(&mut engine, Some(&mut speculator), &mut sampler, Some(41), usize::MAX);
    assert_eq!(found, expected);
    // The first token comes from the prompt, and each run has a token more than its draft.
    assert_eq!(speculator.counts(), DraftCounts { drafted: 35, accepted: 35 });
    // A second text begins as the first one did.
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let again = bench.generate(&mut engine, Some(&mut speculator), &mut sampler, Some(41), usize::MAX);
    assert_eq!((again, speculator.counts().accepted), (expected, 70));
}

#[test]
fn runs_are_as_many_as_the_accepted_drafts_leave() {
    let bench = Bench::new();
    let options = SamplingOptions { temperature: 3.0, ..SamplingOptions::default() };
    let runs = |right: u64, made: usize| {
        let expected = bench.plain(options, 3, Some(made));
        let mut engine = bench.engine();
        engine.record();
        let speculator = Speculator::new(&engine, Scripted::boxed(&expected.tokens, right, 1)).unwrap();
        let (mut speculator, mut sampler) = (speculator.always_longest(), Sampler::new(options, 3));
        let found = bench.generate(&mut engine, Some(&mut speculator), &mut sampler, Some(made), usize::MAX);
        assert_eq!((found.tokens.len(), found), (made, expected));
        // Behind the prompt.
        let runs = engine.recorded().iter().filter(|run| run.past >= PROMPT.len());
        let sizes: Vec<usize> = runs.map(|run| run.tokens).collect();
        (sizes, speculator.counts())
    };
    for made in [1, 2, 9, 41, 70] {
        let (sizes, counts) = runs(100, made);
        let full = (made - 1) / (DRAFT + 1);
        assert!(sizes[..full].iter().all(|size| *size == DRAFT + 1), "{sizes:?}");
        // The rest is drafted in runs of planned sizes, the last token without being fed.
        assert_eq!(sizes.iter().sum::<usize>(), made - 1, "{sizes:?}");
        assert!(sizes.len() - full <= 4, "{sizes:?}");
        assert_eq!((counts.drafted, counts.accepted), (made - 1 - sizes.len(), made - 1 - sizes.len()));
        let (sizes, counts) = runs(0, made);
        assert_eq!((sizes.len(), counts.accepted), (made - 1, 0));
        assert_eq!(counts.drafted, sizes.iter().map(|size| size - 1).sum::<usize>());
    }
    // Nothing is drafted beyond the limit.
    assert!(runs(0, 4).0 == [1, 1, 1] && runs(0, 5).0 == [4, 1, 1, 1]);
}

#[test]
fn a_text_may_end_anywhere_in_a_draft() {
    let bench = Bench::new();
    let wild =
        SamplingOptions { temperature: 9.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingOptions::default() };
    let whole = bench.plain(wild, 1, Some(30));
    let mut engine = bench.engine();
    let mut speculate = |expected: &Made, seed, limit, stop| {
        let speculator = Speculator::new(&engine, Scripted::boxed(&expected.tokens, 100, 0)).unwrap();
        let mut speculator = speculator.always_longest();
        let mut sampler = Sampler::new(wild, seed);
        bench.generate(&mut engine, Some(&mut speculator), &mut sampler, limit, stop)
    };
    for count in 1..=30 {
        // The drafter knows more than is wanted.
        let limited =
            Made { tokens: whole.tokens[..count].to_vec(), end: End::Limit, len: PROMPT.len() + count - 1 };
        assert_eq!(speculate(&whole, 1, Some(count), usize::MAX), limited);
        assert_eq!(speculate(&whole, 1, None, count), Made { end: End::Stopped, ..limited });
    }
    assert_eq!(speculate(&whole, 1, Some(0), usize::MAX), bench.plain(wild, 1, Some(0)));
    let mut ends = [0; DRAFT + 1];
    let mut full = 0;
    for seed in 0..40 {
        let expected = bench.plain(wild, seed, None);
        match expected.end {
            End::Token => ends[(expected.tokens.len() - 1) % (DRAFT + 1)] += 1,
            End::ContextFull => full += 1,
            end => panic!("{end:?}"),
        }
        // What would come after the end is drafted, too.
        let longer = Made { tokens: [&expected.tokens[..], &[1; 20]].concat(), ..expected };
        let found = speculate(&longer, seed, None, usize::MAX);
        let expected = Made { tokens: longer.tokens[..longer.tokens.len() - 20].to_vec(), ..longer };
        assert_eq!(found, expected);
    }
    assert!(full > 0 && ends[2..].iter().sum::<u32>() > 3, "{full} {ends:?}");
}

#[test]
fn a_cancelled_text_ends_at_the_same_token() {
    let bench = Bench::new();
    let options = SamplingOptions::default();
    let whole = bench.plain(options, 2, Some(30));
    for count in 1..20 {
        let mut engine = bench.engine();
        let speculator = Speculator::new(&engine, Scripted::boxed(&whole.tokens, 100, 0)).unwrap();
        let (mut speculator, mut sampler) = (speculator.always_longest(), Sampler::new(options, 2));
        let (cancel, mut tokens) = (Cancel::new(), Vec::new());
        engine.cancel_with(Some(cancel.clone()));
        let mut each = |event| {
            if let GenerateEvent::Token(token) = event {
                tokens.push(token);
            }
            if tokens.len() == count {
                cancel.cancel();
            }
            ControlFlow::Continue(())
        };
        let options = GenerateOptions { speculator: Some(&mut speculator), ..GenerateOptions::default() };
        let end = generate_with(&mut engine, &bench.tokenizer, &mut sampler, &PROMPT, options, &mut each);
        assert_eq!((end.unwrap(), &tokens[..]), (End::Stopped, &whole.tokens[..count]));
        assert_eq!(engine.len(), PROMPT.len() + count - 1);
    }
}

#[test]
fn a_draft_model_with_less_context_drafts_as_far_as_it_goes() {
    let bench = Bench::new();
    let expected = bench.plain(SamplingOptions::greedy(), 0, None);
    let mut engine = bench.engine();
    let drafter = bench.draft_model(&bench.model, 30);
    let mut speculator = Speculator::new(&engine, drafter).unwrap().always_longest();
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let found = bench.generate(&mut engine, Some(&mut speculator), &mut sampler, None, usize::MAX);
    assert_eq!(found, expected);
    let DraftCounts { drafted, accepted } = speculator.counts();
    assert!(drafted == accepted && (10..=22).contains(&accepted), "{accepted}");
}

#[test]
fn a_drafter_that_knows_tokens_the_model_does_not_is_cut_short() {
    #[derive(Debug)]
    struct Foreign;
    impl Drafter for Foreign {
        fn draft(
            &mut self,
            _: &mut Engine,
            _: &[u32],
            most: usize,
            into: &mut Vec<u32>,
        ) -> Result<(), Error> {
            into.extend([1, 2, 3, 700].into_iter().cycle().take(most + 3));
            Ok(())
        }
    }
    let bench = Bench::new();
    let mut engine = bench.engine();
    let mut speculator = Speculator::new(&engine, Box::new(Foreign)).unwrap().always_longest();
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let found = bench.generate(&mut engine, Some(&mut speculator), &mut sampler, Some(12), usize::MAX);
    assert_eq!(found, bench.plain(SamplingOptions::greedy(), 0, Some(12)));
    assert_eq!(speculator.counts().drafted, 24, "three are known");
}

#[test]
fn other_vocabularies_are_refused_with_the_first_difference() {
    let bench = Bench::new();
    let texts = bench.model.file().metadata().strings("tokenizer.ggml.tokens").unwrap();
    let changed: Strings =
        texts.iter().enumerate().map(|(id, text)| if id == 321 { b"other" } else { text }).collect();
    let tokens = ("tokenizer.ggml.tokens".to_owned(), MetadataValue::from(Array::from(changed)));
    let other = opened(&Synth { metadata: vec![tokens], ..synth(1) });
    let smaller = opened(&Synth { vocabulary: 500, ..synth(1) });
    let padded = opened(&Synth { vocabulary: 700 + 128, ..synth(1) });
    let engine = bench.engine();
    let drafts = |model: &Model| {
        let own = Settings { draft: 0, ..settings() };
        let pair = PairBlueprint::plan(&bench.model, model, &one_cpu(), &settings()).map(|_| ());
        let alone = DraftModel::new(load(model, &one_cpu(), &own), &engine).map(|_| ());
        assert_eq!(format!("{pair:?}"), format!("{alone:?}"));
        pair
    };
    let text = String::from_utf8_lossy(texts.get(321).unwrap()).into_owned();
    match drafts(&other).unwrap_err() {
        error @ Error::OtherVocabulary { .. } => assert_eq!(
            error.to_string(),
            format!(
                "the draft model has another vocabulary: token 321 is `other` instead of `{text}` (700 tokens, the \
                 model has 700)"
            )
        ),
        other => panic!("{other}"),
    }
    match drafts(&smaller).unwrap_err() {
        Error::OtherVocabulary { difference } => {
            let VocabularyDifference { model_tokens, draft_tokens, first } = difference;
            assert_eq!((model_tokens, draft_tokens), (700, 500));
            assert!(first.is_none_or(|DifferentToken { id, .. }| id < 500));
        }
        other => panic!("{other}"),
    }
    drafts(&padded).unwrap();
}

#[test]
fn models_that_keep_a_state_are_refused() {
    let (state, ..) = made("mamba2");
    let error = Blueprint::plan(&state, &one_cpu(), &settings()).unwrap_err();
    assert!(matches!(error, Error::CannotRewind { architecture: "mamba2" }), "{error}");
    let (target, ..) = made("llama");
    let error = PairBlueprint::plan(&target, &state, &one_cpu(), &settings()).unwrap_err();
    assert!(matches!(error, Error::CannotRewind { architecture: "mamba2" }), "{error}");
    // Without drafts they run.
    Blueprint::plan(&state, &one_cpu(), &Settings { draft: 0, ..settings() }).unwrap();
}

#[test]
fn an_engine_that_is_not_planned_for_drafts_is_refused() {
    let bench = Bench::new();
    for own in [Settings { draft: 0, ..settings() }, Settings { batch: 1, ..settings() }] {
        let engine = load(&bench.model, &bench.machine, &own);
        let error = Speculator::new(&engine, Box::new(Lookup::new(8))).unwrap_err();
        assert!(matches!(error, Error::BadSetting { .. }), "{error}");
    }
}

#[test]
fn drafts_of_a_small_batch_are_as_short() {
    let bench = Bench::new();
    let expected = bench.plain(SamplingOptions::greedy(), 0, Some(30));
    let mut engine = load(&bench.model, &bench.machine, &Settings { batch: 3, ..settings() });
    let mut speculator =
        Speculator::new(&engine, Scripted::boxed(&expected.tokens, 100, 0)).unwrap().always_longest();
    engine.record();
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let found = bench.generate(&mut engine, Some(&mut speculator), &mut sampler, Some(30), usize::MAX);
    assert_eq!(found, expected);
    assert!(engine.recorded().iter().all(|run| run.tokens <= 3));
    assert_eq!(speculator.counts().accepted, 18);
}

#[test]
fn the_plan_has_the_memory_of_drafts() {
    let (model, tokens, _) = reference("llama-dense.Q4_0");
    for batch in [4, 512] {
        let own = Settings { batch, context: Some(64), draft: 15, ..Settings::default() };
        let mut forecast = Blueprint::plan(&model, &one_cpu(), &own).unwrap().forecast().unwrap();
        let mut engine = load(&model, &one_cpu(), &own);
        for size in [1, 2, 4, 8, 16] {
            let fed = engine.feed_verify(SequenceId::FIRST, &tokens[..size]).unwrap();
            assert_eq!(fed, size.min(batch as usize));
            assert!(engine.logits_at(fed - 1).is_ok() && engine.logits_at(fed).is_err());
        }
        let mut memory = engine.memory();
        forecast.devices.iter_mut().chain(&mut memory.devices).for_each(|share| share.free = None);
        assert_eq!(memory, forecast);
    }
}

#[test]
fn a_pair_of_models_fits_together_and_takes_what_was_planned() {
    let (model, draft, machine) = (opened(&synth(2)), opened(&synth(1)), one_cpu());
    let pair = PairBlueprint::plan(&model, &draft, &machine, &settings()).unwrap();
    assert_eq!(pair.draft.context(), CONTEXT as u64);
    // No graph of the draft model verifies drafts. Beside several sequences it drafts for up to four, and one is not used.
    for (sequences, drafting) in [(1, 1), (3, 5)] {
        let pair = Settings { sequences, ..settings() };
        let beside = PairBlueprint::plan(&model, &draft, &machine, &pair).unwrap().draft;
        let plain = Settings { draft: 0, sequences: drafting, ..settings() };
        let plain = Blueprint::plan(&draft, &machine, &plain).unwrap();
        assert_eq!(beside.shapes().collect::<Vec<_>>(), plain.shapes().collect::<Vec<_>>());
        assert_eq!(beside.forecast().unwrap().devices[0].kv, plain.forecast().unwrap().devices[0].kv);
    }
    let mut forecast = pair.forecast().unwrap();
    let total = forecast.devices[0].total();
    let engine = Engine::load(pair.model, &mut |_, _| ()).unwrap();
    let drafter = DraftModel::new(Engine::load(pair.draft, &mut |_, _| ()).unwrap(), &engine).unwrap();
    let mut memory = engine.memory().with(&drafter.memory().unwrap());
    forecast.devices.iter_mut().chain(&mut memory.devices).for_each(|share| share.free = None);
    assert_eq!(memory, forecast);

    let cpu = machine.find("cpu").unwrap();
    let within = |bytes, context| {
        let own = Settings { context, budgets: [(cpu, bytes)].into(), ..settings() };
        PairBlueprint::plan(&model, &draft, &machine, &own)
    };
    assert!(within(total, Some(CONTEXT as u64)).unwrap().forecast().unwrap().fits());
    let error = within(total - 1, Some(CONTEXT as u64)).unwrap_err();
    assert!(matches!(error, Error::DoesNotFit { .. }), "{error}");
    // Without a setting, the context is one that fits.
    let fitting = within(total, None).unwrap();
    let (forecast, context) = (fitting.forecast().unwrap(), fitting.model.context());
    assert!(forecast.fits() && (CONTEXT as u64 / 2..400).contains(&context), "{context}");
    assert_eq!(fitting.draft.context(), context);
    assert_eq!(forecast.devices[0].free, Some(total));
}

#[test]
fn chats_are_the_same_with_drafts() {
    let bench = Bench::new();
    let template = || {
        ChatTemplate::from_text("{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}<s>", "<s>", "</s>")
    };
    let options = SamplingOptions::greedy();
    let talk = |speculates: bool| {
        let mut engine = load(&bench.model, &bench.machine, &Settings { context: Some(400), ..settings() });
        let lookup = || Speculator::new(&engine, Box::new(Lookup::new(400))).unwrap().always_longest();
        let speculator = speculates.then(lookup);
        let mut chat = Chat::new(template()).with_speculator(speculator);
        let (mut sampler, mut said) = (Sampler::new(options, 4), Vec::new());
        for message in ["the the the the", "a b a b a b", "again", "the end the end the"] {
            chat.say(message);
            let mut heard = String::new();
            let turn = chat.answer(&mut engine, &bench.tokenizer, &mut sampler, Some(25), &mut |event| {
                if let ChatEvent::Text(text) = event {
                    heard.push_str(text);
                }
                ControlFlow::Continue(())
            });
            let turn = turn.unwrap();
            said.push((heard, turn.kept, turn.fed, turn.answered, turn.end, engine.len()));
            if message == "again" {
                chat.withdraw_answer();
                chat.withdraw();
            }
        }
        (said, chat.speculator().map(Speculator::counts))
    };
    let (expected, none) = talk(false);
    let (found, counts) = talk(true);
    assert_eq!((found, none), (expected, None));
    assert!(counts.is_some_and(|counts| counts.drafted > 0), "{counts:?}");
}

#[test]
fn texts_are_the_same_with_drafts() {
    let bench = Bench::new();
    let load = || TextModel::load(&bench.model, &bench.machine, &settings()).unwrap();
    let (mut plain, mut drafting) = (load(), load().with_drafter(Box::new(Lookup::new(200))).unwrap());
    for seed in 0..3 {
        let sampling = if seed == 0 { SamplingOptions::greedy() } else { SamplingOptions::default() };
        let options =
            TextOptions { max_tokens: Some(40), sampling: Some(sampling), seed, ..TextOptions::default() };
        let [one, other] = [&mut plain, &mut drafting].map(|model| {
            model.generate("to be or not to be or not", &options, &mut |_| ControlFlow::Continue(()))
        });
        assert_eq!(one.unwrap(), other.unwrap());
    }
    assert!(drafting.drafts().drafted > 0 && plain.drafts() == DraftCounts::default());
}

#[test]
fn generation_without_a_speculator_drafts_nothing() {
    let bench = Bench::new();
    let mut engine = bench.engine();
    engine.record();
    let mut sampler = Sampler::new(SamplingOptions::greedy(), 0);
    let mut each = |_| ControlFlow::Continue(());
    generate(&mut engine, &bench.tokenizer, &mut sampler, &PROMPT, Some(9), &mut each).unwrap();
    assert!(engine.recorded()[1..].iter().all(|run| run.tokens == 1));
}

/// What each of some sequences gives that are continued together, greedily, with drafts.
fn continued(
    engine: &mut Engine,
    drafts: &mut BatchSpeculator,
    prompts: &[Vec<u32>],
    tokens: usize,
) -> Vec<Vec<u32>> {
    let sequences: Vec<SequenceId> = prompts.iter().map(|_| engine.start_sequence().unwrap()).collect();
    let mut texts = prompts.to_vec();
    for (sequence, text) in sequences.iter().zip(&mut texts) {
        let mut next = 0;
        let part = Part::last(*sequence, text);
        let mut each = |mut rows: RunRows<'_>| {
            next = rows.best()?.next().unwrap().1;
            Ok(())
        };
        engine.feed_parts(&[part], &mut each).unwrap();
        text.push(next);
    }
    while texts.iter().zip(prompts).any(|(text, prompt)| text.len() < prompt.len() + tokens) {
        let wanted =
            sequences.iter().zip(&texts).zip(prompts).map(|((sequence, text), prompt)| SequenceText {
                sequence: *sequence,
                tokens: text,
                most: (prompt.len() + tokens).saturating_sub(text.len() + 1),
            });
        let mut drafted = vec![Vec::new(); texts.len()];
        drafts.draft(&wanted.collect::<Vec<_>>(), &mut drafted).unwrap();
        let fed: Vec<Vec<u32>> = texts
            .iter()
            .zip(&drafted)
            .map(|(text, draft)| [&text[text.len() - 1..], draft].concat())
            .collect();
        let parts: Vec<Part<'_>> =
            sequences.iter().zip(&fed).map(|(sequence, fed)| Part::all(*sequence, fed)).collect();
        let mut best = vec![Vec::new(); texts.len()];
        let mut each = |mut rows: RunRows<'_>| {
            rows.best()?.for_each(|(row, token)| best[row.part].push(token));
            Ok(())
        };
        engine.feed_parts(&parts, &mut each).unwrap();
        let mut verified = Vec::new();
        for (index, text) in texts.iter_mut().enumerate() {
            let right = drafted[index].iter().zip(&best[index]).take_while(|(draft, best)| draft == best);
            let accepted = right.count();
            text.extend_from_slice(&best[index][..=accepted]);
            engine.truncate_sequence(sequences[index], text.len() - 1).unwrap();
            verified.push(SequenceDraft { drafted: drafted[index].len(), accepted });
        }
        drafts.verified(&verified, Duration::from_millis(1));
    }
    for sequence in sequences {
        drafts.end(sequence);
        engine.end_sequence(sequence).unwrap();
    }
    texts.iter().zip(prompts).map(|(text, prompt)| text[prompt.len()..][..tokens].to_vec()).collect()
}

#[test]
fn up_to_four_sequences_are_drafted_for_together() {
    let bench = Bench::on_cpu();
    let settings = Settings { context: Some(400), sequences: 9, draft: 3, ..bench.settings.clone() };
    let pair = PairBlueprint::plan(&bench.model, &bench.model, &bench.machine, &settings).unwrap();
    assert_eq!(pair.draft.settings().sequences, 5);
    let mut engine = Engine::load(pair.model, &mut |_, _| ()).unwrap();
    let draft = Engine::load(pair.draft, &mut |_, _| ()).unwrap();
    let mut itself = BatchSpeculator::draft_model(draft, &engine).unwrap().always_longest();
    let mut lookup = BatchSpeculator::lookup(&engine).unwrap().always_longest();
    let prompts: Vec<Vec<u32>> =
        (0..5).map(|index| (0..9 + index).map(|token| token * 7 % 60).collect()).collect();
    let expected: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| continued(&mut engine, &mut lookup, std::slice::from_ref(prompt), 13).remove(0))
        .collect();
    let mut before = DraftCounts::default();
    for count in 1..=5 {
        let found = continued(&mut engine, &mut itself, &prompts[..count], 13);
        assert_eq!(found, expected[..count]);
        let counts = itself.counts() - before;
        before = itself.counts();
        // Three runs of four tokens each, for every sequence.
        let all = if count > 4 { 0 } else { 9 * count };
        assert_eq!(counts, DraftCounts { drafted: all, accepted: all }, "{count} sequences");
    }
}
