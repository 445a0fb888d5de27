//! How long a draft should be: what it is expected to gain, by the share of tokens that were accepted and by what runs and
//! drafting were measured to take, within an account of what may be lost.

use std::time::Duration;

/// What may be lost to rejected drafts, of the time that generation takes without them.
const MAX_LOSS: f64 = 0.015;
/// Single tokens' time that may be lost before the first draft was accepted.
const FIRST_LOSS: f64 = 1.0;
/// Gains that may be lost again.
const MAX_ACCOUNT: f64 = 8.0;
/// What the results of a draft count for when the next one's are known.
const DECAY: f64 = 0.8;
/// Accepted and verified tokens that are assumed at first.
const ASSUMED: (f64, f64) = (1.4, 2.0);
/// What each further token is assumed to add to a run before that is measured.
const FIRST_SLOPE: f64 = 0.125;
/// Runs with drafts until a run of one token is measured again.
const MEASURED_EVERY: usize = 64;
/// A draft must be expected to gain this much.
const MIN_GAIN: f64 = 1.05;

/// Chooses lengths of drafts. Time is counted in runs of one token.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Runs that can be verified.
    runs: Vec<Run>,
    /// The time of a run of one token.
    single: Estimate,
    /// The time of drafting one token.
    drafting: Estimate,
    /// Tokens that were accepted lately, of those that were compared.
    accepted: f64,
    compared: f64,
    /// Time that may be lost.
    account: f64,
    /// Runs since one of a single token.
    since_single: usize,
    /// The last draft was rejected.
    failed: bool,
    adapts: bool,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    /// Its tokens: a draft, and the token before it.
    tokens: usize,
    time: Estimate,
}

/// What a run verified of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verified {
    pub(super) drafted: usize,
    pub(super) accepted: usize,
}

/// Seconds that something takes, if that was measured. Other programs make some measurements too long, and none too short.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate(Option<f64>);

impl Estimate {
    fn add(&mut self, seconds: f64) {
        self.0 = Some(match self.0 {
            None => seconds,
            Some(known) if seconds < known => (known + seconds) / 2.0,
            Some(known) => known + (seconds.min(2.0 * known) - known) / 8.0,
        });
    }
}

impl Pace {
    /// With runs of these numbers of tokens, smallest first.
    pub(super) fn new(sizes: Vec<usize>) -> Pace {
        let runs = sizes.into_iter().map(|tokens| Run { tokens, time: Estimate::default() }).collect();
        let (accepted, compared) = ASSUMED;
        let (single, drafting) = (Estimate::default(), Estimate::default());
        Pace {
            runs,
            single,
            drafting,
            accepted,
            compared,
            account: FIRST_LOSS,
            since_single: 0,
            failed: false,
            adapts: true,
        }
    }

    /// Always the longest draft.
    pub(super) fn fixed(self) -> Pace {
        Pace { adapts: false, ..self }
    }

    /// The tokens of the largest run of at most this many.
    pub(super) fn size_within(&self, tokens: usize) -> usize {
        self.runs.iter().rev().map(|run| run.tokens).find(|size| *size <= tokens).unwrap_or(1)
    }

    /// How many tokens to draft, up to `room`; 0 if that does not pay.
    pub(super) fn length(&self, room: usize) -> usize {
        if !self.adapts {
            return self.size_within(room.saturating_add(1)) - 1;
        }
        if self.single.0.is_none() || self.since_single >= MEASURED_EVERY {
            return 0;
        }
        // Sizes are tried one after the other, because the time of the next one is known roughly only.
        let known = self.runs.iter().take_while(|run| run.time.0.is_some()).count();
        let runs = self.runs[..self.runs.len().min(known + 1)].iter();
        let runs = runs.filter(|run| run.tokens - 1 <= room && self.cost(run) - 1.0 <= self.account);
        let best = runs.clone().max_by(|a, b| self.gain(a).total_cmp(&self.gain(b)));
        let best = best.filter(|run| self.gain(run) >= MIN_GAIN);
        // Texts and times change: what does not seem to pay is tried as often as the account allows, and with runs of one
        // token between, which are measured, too.
        let tried = || runs.filter(|_| !self.failed).min_by(|a, b| self.cost(a).total_cmp(&self.cost(b)));
        best.or_else(tried).map_or(0, |run| run.tokens - 1)
    }

    /// Drafting some tokens took some time.
    pub(super) fn drafted(&mut self, tokens: usize, took: Duration) {
        // Some drafters have to catch up with the text first, so this can be more than was expected.
        self.account -= self.single.0.map_or(0.0, |single| took.as_secs_f64() / single);
        if tokens > 0 {
            self.drafting.add(took.as_secs_f64() / tokens as f64);
        }
    }

    /// Drafting a token is known to take some time.
    pub(super) fn drafts_in(&mut self, took: Duration) {
        self.drafting.0.get_or_insert(took.as_secs_f64());
    }

    /// A run of some tokens took some time, and some of the draft were accepted.
    pub(super) fn verified(&mut self, tokens: usize, accepted: usize, took: Duration) {
        self.verified_all(&[Verified { drafted: tokens - 1, accepted }], took);
    }

    /// A run of several sequences took some time. Its length is that of the longest draft, and what is gained the mean.
    pub(super) fn verified_all(&mut self, runs: &[Verified], took: Duration) {
        let mean = |count: fn(&Verified) -> usize| {
            runs.iter().map(count).sum::<usize>() as f64 / runs.len().max(1) as f64
        };
        let accepted = mean(|run| run.accepted);
        // The first token that is not accepted was compared, too.
        let compared = mean(|run| (run.accepted + 1).min(run.drafted));
        let tokens = 1 + runs.iter().map(|run| run.drafted).max().unwrap_or(0);
        let gained = accepted + 1.0;
        self.account += MAX_LOSS * gained;
        // No run is faster than one of a single token.
        if tokens == 1 || self.single.0.is_none_or(|single| took.as_secs_f64() < single) {
            self.single.add(took.as_secs_f64());
        }
        self.failed = tokens > 1 && accepted == 0.0;
        self.since_single = if tokens == 1 { 0 } else { self.since_single + 1 };
        let taken = self.single.0.map_or(1.0, |single| took.as_secs_f64() / single).clamp(1.0, tokens as f64);
        if let Some(index) = self.runs.iter().position(|run| run.tokens == tokens) {
            let first = self.runs[index].time.0.is_none();
            let assumed = self.verifying(&self.runs[index]) * self.single.0.unwrap_or(f64::MAX);
            // A first measurement that is far from what was assumed may be a disturbed one. It is charged all the same.
            let most = if first { 1.5 * assumed } else { f64::MAX };
            self.runs[index].time.add(took.as_secs_f64().min(most));
            self.account += gained - if first { taken } else { self.verifying(&self.runs[index]) };
            self.accepted = self.accepted * DECAY + accepted;
            self.compared = self.compared * DECAY + compared;
        }
        self.account = self.account.min(MAX_ACCOUNT);
    }

    /// What a draft and its run take.
    fn cost(&self, run: &Run) -> f64 {
        let drafting = self.drafting.0.zip(self.single.0).map_or(0.0, |(time, single)| time / single);
        self.verifying(run) + drafting * (run.tokens - 1) as f64
    }

    /// What a run takes.
    fn verifying(&self, run: &Run) -> f64 {
        let slope = |run: &Run| {
            // A run takes no longer than one of more tokens: what other programs disturbed is corrected by that.
            let larger = self.runs.iter().filter(|other| other.tokens >= run.tokens);
            let time = larger.filter_map(|run| run.time.0).reduce(f64::min)? / self.single.0?;
            // A run does not take longer than its tokens one by one.
            Some(((time - 1.0) / (run.tokens - 1) as f64).clamp(0.0, 1.0))
        };
        // Each further token adds less than those before it.
        let smaller = self.runs.iter().rev().filter(|other| other.tokens < run.tokens);
        let assumed = || smaller.filter_map(slope).next().map_or(FIRST_SLOPE, |slope| slope / 2.0);
        let slope = slope(run).unwrap_or_else(assumed);
        1.0 + slope * (run.tokens - 1) as f64
    }

    fn gain(&self, run: &Run) -> f64 {
        self.expected(run) / self.cost(run)
    }

    /// Tokens that a run is expected to give: each of the draft's is accepted if all before it are.
    fn expected(&self, run: &Run) -> f64 {
        let share = self.accepted / self.compared;
        (0..run.tokens).map(|index| share.powi(index as i32)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::Random;

    const SIZES: [usize; 3] = [4, 8, 16];

    /// A machine: the time of a run by its number of tokens, and of drafting one token.
    struct Machine {
        runs: fn(usize) -> f64,
        drafting: f64,
    }

    /// Tokens that are made, the time that it takes, and runs. Each drafted token is accepted with a probability, which
    /// may change.
    fn simulate(
        pace: &mut Pace,
        machine: &Machine,
        tokens: usize,
        share: impl Fn(usize) -> f64,
    ) -> (f64, usize) {
        let mut random = Random::new(1);
        let (mut made, mut time, mut runs) = (0, 0.0, 0);
        while made < tokens {
            let length = pace.length(tokens - made - 1);
            let drafting = machine.drafting * length as f64;
            pace.drafted(length, Duration::from_secs_f64(drafting));
            let accepted = (0..length).take_while(|_| random.fraction() < share(made)).count();
            // Every tenth measurement is disturbed; that is not the drafts' fault.
            let run = (machine.runs)(length + 1);
            let disturbed = if random.next().is_multiple_of(10) { 3.0 * run } else { run };
            pace.verified(length + 1, accepted, Duration::from_secs_f64(disturbed));
            made += accepted + 1;
            time += drafting + run;
            runs += 1;
        }
        (made as f64 * (machine.runs)(1) / time, runs)
    }

    fn flat(tokens: usize) -> f64 {
        1e-3 * (1.0 + 0.05 * (tokens - 1) as f64)
    }

    /// As measured where two rows had no kernel of their own.
    fn uneven(tokens: usize) -> f64 {
        1e-3 * [1.0, 1.65, 1.5, 1.9, 2.9][tokens.ilog2() as usize]
    }

    fn steep(tokens: usize) -> f64 {
        1e-3 * tokens as f64
    }

    #[test]
    fn where_nothing_is_accepted_little_is_lost() {
        for runs in [flat, uneven, steep] {
            for drafting in [0.0, 1e-4, 5e-4] {
                for tokens in [150, 300, 3000] {
                    let mut pace = Pace::new(SIZES.into());
                    let (speed, _) = simulate(&mut pace, &Machine { runs, drafting }, tokens, |_| 0.0);
                    assert!(speed >= 0.97, "{speed} with {tokens} tokens, drafting {drafting}");
                }
            }
        }
    }

    #[test]
    fn where_all_is_accepted_drafts_get_long() {
        let mut pace = Pace::new(SIZES.into());
        let (speed, runs) = simulate(&mut pace, &Machine { runs: uneven, drafting: 0.0 }, 1000, |_| 1.0);
        assert!(runs <= 1000 / 16 + 40, "{runs}");
        assert!(speed > 3.5, "{speed}");
        let mut slow = Pace::new(SIZES.into());
        let (speed, _) = simulate(&mut slow, &Machine { runs: steep, drafting: 0.0 }, 400, |_| 1.0);
        assert!(speed >= 0.97, "{speed} where verifying is as slow as generating");
    }

    #[test]
    fn the_length_follows_the_share_that_is_accepted() {
        let machine = Machine { runs: uneven, drafting: 0.0 };
        let speeds = [0.0, 0.3, 0.6, 0.8, 0.95]
            .map(|share| simulate(&mut Pace::new(SIZES.into()), &machine, 2000, |_| share).0);
        assert!(speeds[0] >= 0.97 && speeds[1] >= 0.97, "{speeds:?}");
        assert!(speeds[2] > 1.1 && speeds[3] > 1.5 && speeds[4] > 2.5, "{speeds:?}");
    }

    #[test]
    fn after_a_long_time_without_success_it_starts_again() {
        let machine = Machine { runs: uneven, drafting: 0.0 };
        let mut pace = Pace::new(SIZES.into());
        let (speed, _) = simulate(&mut pace, &machine, 2000, |made| if made < 1000 { 0.0 } else { 0.95 });
        assert!(speed > 1.4, "{speed}");
        let (speed, _) = simulate(&mut pace, &machine, 1000, |_| 0.0);
        assert!(speed >= 0.97, "{speed} after success");
    }

    #[test]
    fn runs_are_no_larger_than_the_room() {
        for pace in [Pace::new(SIZES.into()), Pace::new(SIZES.into()).fixed()] {
            assert!((0..20).all(|room| pace.length(room) <= room));
        }
        let fixed = Pace::new(vec![2, 4, 6]).fixed();
        assert_eq!([0, 1, 2, 3, 4, 5, 99].map(|room| fixed.length(room)), [0, 1, 1, 3, 3, 5, 5]);
        assert_eq!([1, 2, 3, 5, 6, 7].map(|tokens| fixed.size_within(tokens)), [1, 2, 2, 4, 6, 6]);
    }
}
