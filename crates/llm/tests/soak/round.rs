//! One model on one machine.

use std::ops::AddAssign;
use std::sync::Arc;

use orlop_backend::{Cancel, Device};
use orlop_cpu::{CpuDevice, Isa, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{
    Blueprint, Engine, Error, Experts, FileType, LayerChoice, LayerPlacement, Model, Part, SequenceId,
    Settings, Synth,
};
use orlop_sched::Machine;
use orlop_testkit::Random;
use orlop_testkit::devices::{FaultKind, FaultPoint, TestDevice};

/// What happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Calls that fed tokens.
    pub(crate) fed: usize,
    /// Calls without room for their tokens.
    pub(crate) refused: usize,
    pub(crate) cancelled: usize,
    /// Calls that an injected fault ended.
    pub(crate) failed: usize,
    /// Machines that were lost at the end.
    pub(crate) lost: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        let Counts { fed, refused, cancelled, failed, lost } = other;
        self.fed += fed;
        self.refused += refused;
        self.cancelled += cancelled;
        self.failed += failed;
        self.lost += lost;
    }
}

const VOCABULARY: u64 = 300;
const CALLS: u64 = 60;

fn model(random: &mut Random) -> Model {
    let experts = Experts { count: 4, used: 2, hidden: 64, ..Experts::default() };
    let synth = Synth {
        layers: 1 + random.below(3),
        kv_heads: random.pick(&[1, 2, 4]),
        vocabulary: VOCABULARY,
        context: 512,
        experts: random.one_in(3).then_some(experts),
        tied: random.one_in(2),
        file_type: random.pick(&[FileType::F32, FileType::F16, FileType::Q8_0, FileType::Q4_0]),
        seed: random.next(),
        ..Synth::default()
    };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().unwrap())).unwrap();
    Model::from_file(GgufFile::from_file(file)).unwrap()
}

/// How one device is made.
#[derive(Clone, Copy)]
struct DeviceKind {
    asynchronous: bool,
    host_visible: bool,
    threads: usize,
}

impl DeviceKind {
    fn random(random: &mut Random) -> DeviceKind {
        let [asynchronous, host_visible] = [(); 2].map(|()| random.one_in(2));
        DeviceKind { asynchronous, host_visible, threads: 1 + random.index(2) }
    }

    fn device(self, name: &str) -> Arc<TestDevice> {
        let pool = ThreadPool::new(self.threads).unwrap();
        let device =
            TestDevice::builder(CpuDevice::with_isa(&format!("{name} kernels"), pool, Isa::detect()));
        device.name(name).asynchronous(self.asynchronous).host_visible(self.host_visible).build()
    }
}

/// Machines of equal devices for an engine, and for one that is never disturbed.
fn devices(kinds: &[DeviceKind]) -> (Vec<Arc<TestDevice>>, Machine) {
    let devices: Vec<_> = kinds.iter().enumerate().map(|(at, kind)| kind.device(&format!("d{at}"))).collect();
    let machine = Machine::new(devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>));
    (devices, machine.unwrap())
}

fn load(model: &Model, machine: &Machine, settings: &Settings) -> Engine {
    Engine::load(Blueprint::plan(model, machine, settings).unwrap(), &mut |_, _| ()).unwrap()
}

struct Round {
    random: Random,
    devices: Vec<Arc<TestDevice>>,
    engine: Engine,
    undisturbed: Engine,
    texts: Vec<(SequenceId, Vec<u32>)>,
    counts: Counts,
}

/// Calls an engine at random, with a model and a machine that the seed chooses.
pub(crate) fn round(seed: u64) -> Counts {
    let mut random = Random::new(seed);
    let model = model(&mut random);
    let kinds: Vec<DeviceKind> = (0..1 + random.below(3)).map(|_| DeviceKind::random(&mut random)).collect();
    let ((devices, machine), (_, equal)) = (devices(&kinds), devices(&kinds));
    let (first, last) =
        (machine.find("d0").unwrap(), machine.find(&format!("d{}", kinds.len() - 1)).unwrap());
    let layers = model.config().layers.len();
    let layout = LayerPlacement::all_on(first, layers).with_layers(random.index(layers)..layers, 1, last);
    let settings = Settings {
        sequences: 1 + random.below(5),
        batch: random.pick(&[16, 32, 64]),
        context: Some(random.pick(&[192, 320, 512])),
        fusion: random.one_in(2),
        layout: LayerChoice::Exactly(layout),
        ..Settings::default()
    };
    let engine = load(&model, &machine, &settings);
    let undisturbed = load(&model, &equal, &Settings { sequences: 1, ..settings });
    let texts = vec![(SequenceId::FIRST, Vec::new())];
    let mut round = Round { random, devices, engine, undisturbed, texts, counts: Counts::default() };
    for call in 0..CALLS {
        round.call();
        for (id, text) in &round.texts {
            assert_eq!(round.engine.sequence_len(*id).unwrap(), text.len(), "seed {seed}, call {call}");
        }
    }
    round.end()
}

impl Round {
    fn call(&mut self) {
        let chosen = self.random.index(self.texts.len());
        match self.random.below(8) {
            0 => match self.engine.start_sequence() {
                Ok(id) => self.texts.push((id, Vec::new())),
                Err(error) => assert!(matches!(error, Error::TooManySequences { .. }), "{error}"),
            },
            1 => {
                let (from, text) = self.texts[chosen].clone();
                let len = self.random.index(text.len() + 1);
                match self.engine.fork_sequence(from, len) {
                    Ok(id) => self.texts.push((id, text[..len].to_vec())),
                    Err(error) => assert!(matches!(error, Error::TooManySequences { .. }), "{error}"),
                }
            }
            2 if chosen > 0 => self.engine.end_sequence(self.texts.remove(chosen).0).unwrap(),
            3 => {
                let len = self.random.index(self.texts[chosen].1.len() + 1);
                let (id, text) = &mut self.texts[chosen];
                assert_eq!(self.engine.truncate_sequence(*id, len).unwrap(), len);
                text.truncate(len);
            }
            _ => self.feed(chosen),
        }
    }

    /// Feeds some sequences; perhaps that is cancelled, or a device fails.
    fn feed(&mut self, chosen: usize) {
        let mut added: Vec<(usize, Vec<u32>)> = Vec::new();
        for index in 0..self.texts.len() {
            if index == chosen || self.random.one_in(2) {
                let count = self.random.pick(&[1, 1, 2, 9, 50]);
                added.push((index, (0..count).map(|_| self.random.below(VOCABULARY) as u32).collect()));
            }
        }
        let cancel = Cancel::new();
        let is_cancelled = self.random.one_in(10);
        if is_cancelled {
            cancel.cancel();
        }
        self.engine.cancel_with(Some(cancel));
        if self.random.one_in(6) {
            let faults = self.devices[self.random.index(self.devices.len())].faults();
            let point = self.random.pick(&[FaultPoint::Submit, FaultPoint::Copy]);
            faults.fail(point, 1 + self.random.below(4), FaultKind::OutOfMemory);
        }
        let pending = |devices: &[Arc<TestDevice>]| devices.iter().map(|device| device.faults().open()).sum();
        let armed: usize = pending(&self.devices);
        let parts: Vec<Part<'_>> =
            added.iter().map(|(index, tokens)| Part::last(self.texts[*index].0, tokens)).collect();
        let mut best = vec![None; parts.len()];
        let fed = self.engine.feed_parts(&parts, &mut |mut run| {
            run.best()?.for_each(|(row, token)| best[row.part] = Some(token));
            Ok(())
        });
        let has_failed = armed > pending(&self.devices);
        self.devices.iter().for_each(|device| device.faults().clear());
        match fed {
            Ok(()) => self.counts.fed += 1,
            Err(Error::NoPages { .. } | Error::ContextFull { .. }) => {
                self.counts.refused += 1;
                return;
            }
            Err(Error::RunFailed(failure)) => {
                assert!(is_cancelled || has_failed, "{failure:?}");
                self.counts.cancelled += usize::from(is_cancelled && !has_failed);
                self.counts.failed += usize::from(has_failed);
            }
            Err(error) => panic!("{error}"),
        }
        for ((index, tokens), best) in added.iter().zip(best) {
            let (id, text) = &mut self.texts[*index];
            let before = text.len();
            text.extend(tokens);
            text.truncate(self.engine.sequence_len(*id).unwrap());
            assert!(text.len() >= before, "a failed run took {} tokens back", before - text.len());
            if let Some(best) = best.filter(|_| text.len() == before + tokens.len()) {
                self.undisturbed.truncate(0);
                self.undisturbed.feed(text).unwrap();
                assert_eq!(self.undisturbed.last_best().unwrap(), best, "after {} tokens", text.len());
            }
        }
    }

    /// Ends all sequences, and perhaps loses the devices.
    fn end(mut self) -> Counts {
        self.engine.cancel_with(None);
        self.texts.iter().for_each(|(id, _)| self.engine.end_sequence(*id).unwrap());
        assert!(self.engine.page_pools().all(|pool| pool.free == pool.pages), "no page is lost");
        if self.random.one_in(2) {
            self.devices.iter().for_each(|device| device.faults().lose());
            let fed = self.engine.feed(&[1]);
            assert!(matches!(fed, Err(Error::RunFailed(_))), "{fed:?}");
            self.counts.lost += 1;
        }
        self.counts
    }
}
