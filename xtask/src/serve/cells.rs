//! The loads: which prompts come from how many clients.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;

use super::loader::{self, Timing};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cell {
    /// 128 tokens of their own, 128 new ones.
    Chat,
    /// 512 tokens that all prompts begin with and 64 of their own, 128 new ones.
    Shared,
    /// Eight clients generate, with and without prompts of 4,096 tokens that arrive.
    Stall,
    /// 64 clients with pages for 16, beside 16 clients.
    Overload,
}

/// A load on a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// What is special about it.
    pub(crate) note: &'static str,
    /// Clients that send requests one after the other.
    pub(crate) clients: usize,
    /// Requests of each.
    pub(crate) requests: usize,
    /// Tokens that all prompts begin with.
    pub(crate) common: usize,
    /// Tokens of each prompt's own.
    pub(crate) own: usize,
    /// New tokens.
    pub(crate) generate: usize,
    /// Tokens of prompts that arrive meanwhile, one after the other.
    pub(crate) intruder: Option<usize>,
    /// Tokens of the cache.
    pub(crate) rows: usize,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) seconds: f64,
    pub(crate) requests: Vec<Timing>,
    pub(crate) intruders: Vec<Timing>,
    pub(crate) errors: usize,
}

/// A page of the cache.
const PAGE: usize = 64;

/// Tokens that every vocabulary has, and no special ones.
const TOKENS: std::ops::Range<u64> = 1000..30_000;

impl Cell {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cell::Chat => "chat",
            Cell::Shared => "shared",
            Cell::Stall => "stall",
            Cell::Overload => "overload",
        }
    }

    /// The loads of a cell.
    pub(crate) fn loads(self, streams: &[usize], requests: usize) -> Vec<Load> {
        let load = |clients: usize, common: usize, own: usize| Load {
            note: "",
            clients,
            requests,
            common,
            own,
            generate: 128,
            intruder: None,
            rows: clients * rows(common + own + 128),
        };
        match self {
            Cell::Chat => streams.iter().map(|clients| load(*clients, 0, 128)).collect(),
            Cell::Shared => streams.iter().map(|clients| load(*clients, 512, 64)).collect(),
            Cell::Stall => {
                let eight = Load { generate: 512, rows: 8 * rows(640) + rows(4224), ..load(8, 0, 128) };
                let alone = Load { clients: 0, note: "long prompt alone", intruder: Some(4096), ..eight };
                let both = Load { note: "with long prompts", intruder: Some(4096), ..eight };
                vec![Load { note: "without", ..eight }, alone, both]
            }
            Cell::Overload => {
                let few = load(16, 0, 128);
                vec![Load { note: "unloaded", ..few }, Load { note: "overloaded", clients: 64, ..few }]
            }
        }
    }
}

fn rows(tokens: usize) -> usize {
    tokens.div_ceil(PAGE) * PAGE
}

impl Load {
    /// Tokens of a sequence, at most.
    pub(crate) fn context(&self) -> usize {
        let usual = rows(self.common + self.own + self.generate);
        usual.max(self.intruder.map_or(0, |intruder| rows(intruder + PAGE)))
    }

    /// Sends all requests of a round, and waits for their answers.
    pub(crate) fn drive(&self, address: SocketAddr, round: u64) -> Result<Outcome> {
        let begin = Instant::now();
        let client = |client: usize| {
            let ask = move |number: usize| {
                let seed = 1 + (round << 40) + ((client as u64) << 20) + number as u64;
                let prompt: Vec<u64> = tokens(0, self.common).chain(tokens(seed, self.own)).collect();
                loader::ask(address, &prompt, self.generate)
            };
            (0..self.requests).map(ask).collect::<Vec<Result<Timing>>>()
        };
        let mut outcome = Outcome::default();
        thread::scope(|scope| -> Result<()> {
            let clients: Vec<_> =
                (0..self.clients).map(|number| scope.spawn(move || client(number))).collect();
            if let Some(length) = self.intruder {
                // The others generate by then.
                thread::sleep(Duration::from_secs(if self.clients > 0 { 2 } else { 0 }));
                let prompt: Vec<u64> = tokens(u64::MAX - round, length).collect();
                match loader::ask(address, &prompt, 1) {
                    Ok(timing) => outcome.intruders.push(timing),
                    Err(_) => outcome.errors += 1,
                }
            }
            for client in clients {
                for timing in client.join().map_err(|_| anyhow!("a client has panicked"))? {
                    match timing {
                        Ok(timing) => outcome.requests.push(timing),
                        Err(_) => outcome.errors += 1,
                    }
                }
            }
            Ok(())
        })
        .context("driving a server")?;
        outcome.seconds = begin.elapsed().as_secs_f64();
        Ok(outcome)
    }
}

/// Tokens that look random: the same for the same seed.
fn tokens(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        TOKENS.start + (state >> 33) % (TOKENS.end - TOKENS.start)
    })
}
