//! Whether helpers are worth their cost. On a busy machine the system suspends a helper in the middle of an item for
//! milliseconds, while a token has hundreds of phases of microseconds. A caller that loses too much time this way works
//! alone for a multiple of that time, then invites helpers again. As long as that goes wrong, it waits twice as long each
//! time, and likewise where helpers do not come, as dividing work costs something, too
//! ([exponential back-off](https://en.wikipedia.org/wiki/Exponential_backoff)).

use std::time::{Duration, Instant};

/// Phases without help after which helpers are not expected any more, and the time that counts as lost.
const UNHELPED: u32 = 64;
const UNHELPED_LOSS: Duration = Duration::from_micros(500);
/// Time over which losses are added up; what lies further back counts less and less.
const WINDOW: Duration = Duration::from_millis(64);
/// Helpers stay as long as they make work this many times as fast. Of two threads' time, an eighth may be lost; of sixteen
/// threads' time, nine tenths, as the caller alone would be slower still.
const LEAST_GAIN: f64 = 1.75;
/// Time alone, as a multiple of the time that was lost: the first, and the longest.
const ALONE: [u32; 2] = [8, 64];
/// Helpers that stay for this many times the last time alone have come back for good.
const SETTLED: u32 = 4;

/// The history of one pool. Time passes during runs only.
#[derive(Debug)]
pub(super) struct HelperPolicy {
    /// Until when the caller works alone.
    alone_until: Option<Instant>,
    /// Begin of the current run.
    began: Instant,
    /// Time with helpers in the window, up to the current run, and what of it was lost.
    together: Duration,
    lost: Duration,
    /// Time with helpers since they were invited, up to the current run.
    settled: Duration,
    /// The last time alone, and the multiple that it was.
    alone: Duration,
    multiple: u32,
    /// Phases since a helper last ran an item.
    unhelped: u32,
}

impl HelperPolicy {
    pub(super) fn new(now: Instant) -> HelperPolicy {
        HelperPolicy {
            alone_until: None,
            began: now,
            together: Duration::ZERO,
            lost: Duration::ZERO,
            settled: Duration::ZERO,
            alone: Duration::ZERO,
            multiple: ALONE[0],
            unhelped: 0,
        }
    }

    /// A run begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// A run ends.
    pub(super) fn end(&mut self, now: Instant) {
        if self.alone_until.is_none() {
            self.pass(now);
        }
    }

    /// Whether the caller works alone, as it was decided last.
    pub(super) fn is_alone(&self) -> bool {
        self.alone_until.is_some()
    }

    /// Whether helpers are invited, now that this can be decided anew.
    pub(super) fn invites(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let Some(until) = self.alone_until else { return true };
        let now = now();
        if now < until {
            return false;
        }
        *self = HelperPolicy { alone: self.alone, multiple: self.multiple, ..HelperPolicy::new(now) };
        true
    }

    /// The caller, one of some threads, has lost time in waiting for the others.
    pub(super) fn lose(&mut self, lost: Duration, threads: usize, now: Instant) {
        self.pass(now);
        self.lost += lost;
        let tolerated = (1.0 - LEAST_GAIN / threads as f64).max(0.0);
        if self.lost > self.together.mul_f64(tolerated) {
            self.leave(self.lost, now);
        }
    }

    /// A phase is over, in which helpers ran items or did not.
    pub(super) fn phase(&mut self, helped: bool, now: impl FnOnce() -> Instant) {
        self.unhelped = if helped { 0 } else { self.unhelped + 1 };
        if self.unhelped >= UNHELPED {
            let now = now();
            self.pass(now);
            self.leave(UNHELPED_LOSS, now);
        }
    }

    /// Works alone from now on.
    fn leave(&mut self, lost: Duration, now: Instant) {
        let settled = self.settled > self.alone * SETTLED;
        self.multiple = if settled { ALONE[0] } else { (2 * self.multiple).min(ALONE[1]) };
        self.alone = lost * self.multiple;
        self.alone_until = Some(now + self.alone);
    }

    /// Time with helpers passes.
    fn pass(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.began);
        self.began = now;
        self.settled += passed;
        self.together += passed;
        if self.together > WINDOW {
            let kept = WINDOW.as_secs_f64() / self.together.as_secs_f64();
            (self.together, self.lost) = (WINDOW, self.lost.mul_f64(kept));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs of 3 ms each that lose `lost` while helpers are invited: the share of runs with helpers, and of time lost.
    fn share(runs: u32, lost: Duration, policy: &mut HelperPolicy, now: &mut Instant) -> (f64, f64) {
        let (start, mut with, mut total) = (*now, 0, Duration::ZERO);
        for _ in 0..runs {
            policy.begin(*now);
            *now += 3 * MS;
            if policy.invites(|| *now) {
                with += 1;
                if !lost.is_zero() {
                    *now += lost;
                    total += lost;
                    policy.lose(lost, 2, *now);
                }
            }
            policy.end(*now);
        }
        (f64::from(with) / f64::from(runs), total.as_secs_f64() / (*now - start).as_secs_f64())
    }

    #[test]
    fn helpers_that_always_cost_more_than_they_bring_are_rarely_invited() {
        let mut now = Instant::now();
        let mut policy = HelperPolicy::new(now);
        let (with, lost) = share(1_000, 6 * MS, &mut policy, &mut now);
        assert!(with < 0.05 && lost < 0.06, "{with} {lost}");
    }

    #[test]
    fn small_losses_are_tolerated() {
        let mut now = Instant::now();
        let mut policy = HelperPolicy::new(now);
        share(30, Duration::ZERO, &mut policy, &mut now);
        assert_eq!(share(1_000, MS / 4, &mut policy, &mut now).0, 1.0);
    }

    #[test]
    fn many_helpers_stay_where_a_caller_alone_would_be_slower() {
        // Half of the time is lost: two threads are as fast as one, sixteen are as fast as eight.
        for (threads, stay) in [(2, false), (3, false), (4, true), (16, true)] {
            let mut now = Instant::now();
            let mut policy = HelperPolicy::new(now);
            for _ in 0..100 {
                policy.begin(now);
                now += 2 * MS;
                policy.lose(MS, threads, now);
                policy.end(now);
            }
            assert_eq!(!policy.is_alone(), stay, "{threads} threads");
        }
    }

    #[test]
    fn helpers_come_back_once_the_machine_is_free() {
        let mut now = Instant::now();
        let mut policy = HelperPolicy::new(now);
        share(1_000, 6 * MS, &mut policy, &mut now);
        // The longest time alone.
        share(ALONE[1] * 6 / 3 + 1, Duration::ZERO, &mut policy, &mut now);
        assert_eq!(share(1_000, Duration::ZERO, &mut policy, &mut now).0, 1.0);
        // One delay after that costs the shortest time alone.
        share(1, 21 * MS, &mut policy, &mut now);
        assert_eq!(share(ALONE[0] * 21 / 3 - 1, Duration::ZERO, &mut policy, &mut now).0, 0.0);
        assert_eq!(share(100, Duration::ZERO, &mut policy, &mut now).0, 1.0);
    }

    #[test]
    fn helpers_that_do_not_come_are_not_expected() {
        let mut now = Instant::now();
        let mut policy = HelperPolicy::new(now);
        let (mut expected, phases) = (0, 100_000);
        for phase in 0..phases {
            now += MS / 100;
            if policy.invites(|| now) {
                expected += 1;
                // From then on, they come.
                policy.phase(phase > phases / 2, || now);
            }
        }
        assert!((phases * 4 / 10..phases * 6 / 10).contains(&expected), "{expected} of {phases}");
    }

    #[test]
    fn time_between_runs_does_not_count() {
        let mut now = Instant::now();
        let mut policy = HelperPolicy::new(now);
        for _ in 0..20 {
            policy.begin(now);
            now += MS;
            policy.lose(MS / 2, 2, now);
            policy.end(now);
            if policy.is_alone() {
                return;
            }
            now += 10_000 * MS;
        }
        panic!("half of the time was lost, and helpers are still invited");
    }
}
