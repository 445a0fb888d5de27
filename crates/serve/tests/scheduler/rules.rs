//! Facts about single situations.

use orlop_serve::{PagedEngine, Refused, RequestEnd, Scheduler, Submission, WaitReason};

use super::fake::*;

/// A prompt of `len` tokens that begins with `first`.
fn prompt(first: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|index| if index == 0 { first } else { 100 + index }).collect()
}

#[test]
fn a_shared_prefix_is_computed_once_and_counted_exactly() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 8, 16));
    let outcomes: Vec<_> = (0..8)
        .map(|own| {
            let mut prompt = prompt(7, 20);
            prompt.push(own);
            submit(&mut scheduler, &prompt, 1).1
        })
        .collect();
    finish(&mut scheduler);
    let cached: Vec<usize> = outcomes.iter().map(|outcome| outcome.borrow().usage.cached).collect();
    assert_eq!(cached, [0, 20, 20, 20, 20, 20, 20, 20]);
    let sizes = &scheduler.engine().sizes;
    assert_eq!(sizes.iter().sum::<usize>(), 21 + 7, "each token of the prefix is fed once: {sizes:?}");
}

#[test]
fn a_second_turn_feeds_only_what_is_new() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 8));
    let first = prompt(1, 10);
    let (_, outcome) = submit(&mut scheduler, &first, 6);
    finish(&mut scheduler);
    let answer = outcome.borrow().tokens.clone();
    let second = [first, answer, vec![90, 91]].concat();
    let (_, outcome) = submit(&mut scheduler, &second, 3);
    finish(&mut scheduler);
    // The last token of the answer was not fed.
    assert_eq!(outcome.borrow().usage.cached, second.len() - 3);
}

#[test]
fn requests_that_can_never_run_are_refused() {
    let mut scheduler = Scheduler::<_, FakeRequest>::new(FakeEngine::new(8, 4, 8).with_context(30));
    let refused = |scheduler: &mut Fake, prompt: Vec<u32>| {
        let submission = Submission { prompt, max_tokens: 5, salt: 0 };
        scheduler.submit(submission, FakeRequest::default()).map_err(|(refused, _)| refused)
    };
    assert_eq!(refused(&mut scheduler, vec![]), Err(Refused::EmptyPrompt));
    assert_eq!(refused(&mut scheduler, prompt(1, 31)), Err(Refused::TooLong { prompt: 31, context: 30 }));
    assert!(refused(&mut scheduler, prompt(1, 30)).is_ok());
    finish(&mut scheduler);
}

#[test]
fn a_request_without_tokens_to_generate_ends_at_once() {
    let mut scheduler = Scheduler::new(FakeEngine::new(8, 4, 8));
    let (_, outcome) = submit(&mut scheduler, &[1, 2], 0);
    assert_eq!(outcome.borrow().end, Some(RequestEnd::Length));
    assert!(scheduler.is_idle());
}

#[test]
fn moderate_requests_are_promised_all_they_need_and_queue_for_it() {
    // 16 pages; each request may need 8 tokens, 2 pages: an eighth.
    let mut scheduler = Scheduler::new(FakeEngine::new(16, 16, 32));
    let outcomes: Vec<_> = (0..16).map(|own| submit(&mut scheduler, &[own + 1, 60, 61, 62], 5).1).collect();
    step(&mut scheduler);
    assert_eq!((scheduler.running(), scheduler.waiting()), (8, 8));
    let snapshot = scheduler.snapshot();
    assert_eq!(snapshot.queue[0].reason, WaitReason::Pages { needed: 2, available: 0 });
    finish(&mut scheduler);
    assert_eq!(scheduler.counts().parked, 0);
    for (own, outcome) in (0..).zip(outcomes) {
        assert_eq!(outcome.borrow().tokens, alone(&[own + 1, 60, 61, 62], 5, 64));
    }
}

#[test]
fn a_snapshot_shows_shared_pages_counts_and_the_beginning_of_a_long_queue() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 2, 8));
    let shared = prompt(7, 9);
    (0..202).for_each(|_| drop(submit(&mut scheduler, &shared, 3)));
    while scheduler.running() < 2 {
        step(&mut scheduler);
    }
    let snapshot = scheduler.snapshot();
    assert_eq!((snapshot.running.len(), snapshot.queue.len(), snapshot.waiting), (2, 64, 200));
    let ids: Vec<_> = snapshot.running.iter().map(|view| view.id).collect();
    let common: Vec<_> = snapshot.uses.iter().filter(|page| page.requests == ids).collect();
    // Two whole pages of four rows; the rest of the prompt is each one's own.
    assert_eq!(common.iter().map(|page| page.rows).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(snapshot.counts, scheduler.counts());
    finish(&mut scheduler);
}

#[test]
fn a_huge_maximum_does_not_reserve_the_cache_and_parking_loses_nothing() {
    let mut scheduler = Scheduler::new(FakeEngine::new(24, 8, 16));
    let prompts: Vec<Vec<u32>> = (0..8).map(|own| prompt(200 + own, 5)).collect();
    let outcomes: Vec<_> = prompts.iter().map(|prompt| submit(&mut scheduler, prompt, 10_000).1).collect();
    step(&mut scheduler);
    assert!(scheduler.running() >= 6, "{}", scheduler.running());
    finish(&mut scheduler);
    assert!(scheduler.counts().parked > 0);
    for (prompt, outcome) in prompts.iter().zip(outcomes) {
        let outcome = outcome.borrow();
        assert_eq!(outcome.tokens, alone(prompt, 10_000, 96));
        assert!(matches!(outcome.end, Some(RequestEnd::Done | RequestEnd::Length)));
    }
}

#[test]
fn a_small_request_passes_one_that_waits_for_pages_but_not_for_ever() {
    let mut scheduler = Scheduler::new(FakeEngine::new(40, 40, 80));
    let (_, long) = submit(&mut scheduler, &prompt(300, 100), 1);
    step(&mut scheduler);
    let (_, large) = submit(&mut scheduler, &prompt(301, 100), 1);
    let mut before = 0;
    for own in 0..60 {
        let (_, small) = submit(&mut scheduler, &[own + 400], 9);
        step(&mut scheduler);
        if large.borrow().end.is_none() && small.borrow().tokens.len() == 1 {
            before += 1;
        }
    }
    finish(&mut scheduler);
    assert!(long.borrow().end.is_some() && large.borrow().end.is_some());
    assert!((1..=17).contains(&before), "{before}");
}

#[test]
fn cancelling_works_in_the_queue_in_the_prompt_and_while_generating() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 1, 4));
    let (first, one) = submit(&mut scheduler, &prompt(1, 100), 50);
    let (second, two) = submit(&mut scheduler, &prompt(2, 5), 50);
    step(&mut scheduler);
    assert!(scheduler.cancel(second), "in the queue");
    assert!(scheduler.cancel(first), "in its prompt");
    assert!(!scheduler.cancel(first));
    assert_eq!(
        [&one, &two].map(|one| one.borrow().end.clone()),
        [Some(RequestEnd::Cancelled), Some(RequestEnd::Cancelled)]
    );
    // What was computed is not lost.
    let (third, three) = submit(&mut scheduler, &prompt(1, 100), 50);
    for _ in 0..5 {
        step(&mut scheduler);
    }
    assert_eq!(three.borrow().usage.cached, 0);
    assert!(!three.borrow().tokens.is_empty());
    assert!(scheduler.cancel(third), "while it generates");
    assert_eq!(three.borrow().usage.cached, 32);
    assert!(scheduler.is_idle());
    scheduler.clear_cache();
    assert_eq!((scheduler.engine().free_pages(), scheduler.engine().live()), (64, 0));
}

#[test]
fn a_reader_that_waits_holds_up_no_other() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 8));
    let (_, slow) = submit(&mut scheduler, &prompt(500, 6), 20);
    let (_, other) = submit(&mut scheduler, &prompt(501, 6), 20);
    slow.borrow_mut().paused = true;
    for _ in 0..40 {
        step(&mut scheduler);
    }
    assert!(other.borrow().end.is_some());
    assert!(slow.borrow().tokens.is_empty());
    assert!(step(&mut scheduler).is_idle());
    slow.borrow_mut().paused = false;
    finish(&mut scheduler);
    assert_eq!(slow.borrow().tokens, alone(&prompt(500, 6), 20, 256));
}

/// Runs five requests, two at a time, of which a step fails; says which of them failed.
fn failures(change: impl FnOnce(&mut FakeEngine)) -> Vec<bool> {
    let mut engine = FakeEngine::new(64, 2, 8);
    change(&mut engine);
    let mut scheduler = Scheduler::new(engine);
    let prompts: Vec<Vec<u32>> = (0..5).map(|own| prompt(own + 1, 6)).collect();
    let outcomes: Vec<_> = prompts.iter().map(|prompt| submit(&mut scheduler, prompt, 5).1).collect();
    finish(&mut scheduler);
    let failed = prompts.iter().zip(outcomes).map(|(prompt, outcome)| {
        let outcome = outcome.borrow();
        let failed = outcome.end == Some(RequestEnd::Failed("the device is lost".to_owned()));
        assert!(failed || outcome.tokens == alone(prompt, 5, 256), "{outcome:?}");
        failed
    });
    let failed = failed.collect();
    scheduler.clear_cache();
    assert_eq!((scheduler.engine().free_pages(), scheduler.engine().live()), (64, 0));
    failed
}

#[test]
fn a_failed_step_ends_only_the_requests_that_lost_tokens() {
    for damage in [Damage::Nothing, Damage::FirstIsFed] {
        for step in 1..6 {
            let failed = failures(|engine| (engine.fails_at, engine.damage) = (Some(step), damage));
            assert_eq!(failed, [false; 5], "{damage:?} at step {step}");
        }
    }
    let failed = failures(|engine| (engine.fails_at, engine.damage) = (Some(2), Damage::First));
    assert_eq!(failed, [true, false, false, false, false]);
    let failed = failures(|engine| (engine.fails_at, engine.damage) = (Some(2), Damage::All));
    assert_eq!(failed, [true, true, false, false, false]);
}

#[test]
fn a_request_that_makes_every_step_fail_ends_alone() {
    assert_eq!(failures(|engine| engine.poison = Some(2)), [false, true, false, false, false]);
}

#[test]
fn a_lost_engine_is_replaced_and_the_queue_keeps_its_order() {
    let mut engine = FakeEngine::new(64, 2, 8);
    (engine.fails_at, engine.damage) = (Some(2), Damage::Lost);
    let mut scheduler = Scheduler::new(engine);
    let prompts: Vec<Vec<u32>> = (0..6).map(|own| prompt(own + 1, 6 + 10 * own as usize)).collect();
    let outcomes: Vec<_> = prompts.iter().map(|prompt| submit(&mut scheduler, prompt, 5).1).collect();
    step(&mut scheduler);
    step(&mut scheduler);
    assert_eq!((scheduler.running(), scheduler.waiting()), (0, 4));
    assert!(step(&mut scheduler).is_idle(), "nothing runs on a lost engine");
    assert_eq!((scheduler.running(), scheduler.waiting()), (0, 4));
    let mut scheduler = scheduler.suspend().1.resume(FakeEngine::new(64, 2, 8).with_context(50));
    finish(&mut scheduler);
    let failed = |place: usize| matches!(outcomes[place].borrow().end, Some(RequestEnd::Failed(_)));
    assert_eq!([0, 1, 2, 3, 4, 5].map(failed), [true, true, false, false, false, true]);
    for place in 2..5 {
        assert_eq!(outcomes[place].borrow().tokens, alone(&prompts[place], 5, 50));
    }
}

#[test]
fn a_replaced_engine_goes_on_with_what_was_generated() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 2, 8));
    let (_, outcome) = submit(&mut scheduler, &prompt(9, 6), 30);
    steps(&mut scheduler, 4);
    assert!(!outcome.borrow().tokens.is_empty());
    let mut scheduler = scheduler.suspend().1.resume(FakeEngine::new(64, 2, 8));
    finish(&mut scheduler);
    assert_eq!(outcome.borrow().tokens, alone(&prompt(9, 6), 30, 256));
}

#[test]
fn a_lost_device_ends_requests_that_were_not_fed_too_and_nothing_kept_is_used_again() {
    let mut engine = FakeEngine::new(64, 4, 8);
    (engine.fails_at, engine.damage) = (Some(6), Damage::All);
    let mut scheduler = Scheduler::new(engine);
    let (_, kept) = submit(&mut scheduler, &prompt(1, 12), 1);
    finish(&mut scheduler);
    assert!(kept.borrow().end.is_some());
    let (_, paused) = submit(&mut scheduler, &prompt(2, 6), 90);
    let (_, fed) = submit(&mut scheduler, &prompt(3, 6), 90);
    step(&mut scheduler);
    paused.borrow_mut().paused = true;
    while fed.borrow().end.is_none() {
        step(&mut scheduler);
    }
    for outcome in [paused, fed] {
        assert!(matches!(outcome.borrow().end, Some(RequestEnd::Failed(_))), "{:?}", outcome.borrow());
    }
    let (_, again) = submit(&mut scheduler, &prompt(1, 12), 1);
    finish(&mut scheduler);
    assert_eq!(again.borrow().usage.cached, 0);
    assert_eq!(again.borrow().tokens, alone(&prompt(1, 12), 1, 256));
}

#[test]
fn a_failure_that_spares_the_cache_leaves_it() {
    let mut engine = FakeEngine::new(64, 4, 8);
    engine.fails_at = Some(2);
    let mut scheduler = Scheduler::new(engine);
    submit(&mut scheduler, &prompt(1, 12), 1);
    finish(&mut scheduler);
    submit(&mut scheduler, &prompt(2, 12), 1);
    finish(&mut scheduler);
    let (_, again) = submit(&mut scheduler, &prompt(1, 12), 1);
    finish(&mut scheduler);
    assert_eq!(again.borrow().usage.cached, 11);
}

#[test]
fn a_request_without_a_fitting_token_ends_alone() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 8));
    let (_, stuck) = submit(&mut scheduler, &prompt(2, 6), 9);
    let (_, other) = submit(&mut scheduler, &prompt(3, 6), 9);
    stuck.borrow_mut().stuck = true;
    finish(&mut scheduler);
    assert_eq!(stuck.borrow().end, Some(RequestEnd::Refused("no token fits".to_owned())));
    assert_eq!(other.borrow().tokens, alone(&prompt(3, 6), 9, 256));
}

#[test]
fn a_prefix_that_the_engine_cannot_go_back_to_is_not_counted_as_pages() {
    let mut scheduler = Scheduler::new(FakeEngine::new(8, 4, 8).with_window(3));
    let first = prompt(7, 16);
    let (_, one) = submit(&mut scheduler, &first, 5);
    step(&mut scheduler);
    // It shares three pages by its tokens, but needs four of its own, and four are free, of which one is promised.
    let second = [&first[..12], &[90]].concat();
    let (_, two) = submit(&mut scheduler, &second, 3);
    finish(&mut scheduler);
    assert_eq!(one.borrow().tokens, alone(&first, 5, 32));
    assert_eq!(two.borrow().tokens, alone(&second, 3, 32));
}

#[test]
fn a_reader_that_takes_nothing_gives_its_place_to_those_that_wait() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 1, 4));
    let (_, slow) = submit(&mut scheduler, &prompt(500, 6), 20);
    steps(&mut scheduler, 3);
    slow.borrow_mut().paused = true;
    let (_, other) = submit(&mut scheduler, &prompt(501, 6), 20);
    for _ in 0..40 {
        step(&mut scheduler);
    }
    assert_eq!(other.borrow().tokens, alone(&prompt(501, 6), 20, 256));
    assert_eq!((scheduler.running(), scheduler.waiting()), (0, 1));
    slow.borrow_mut().paused = false;
    finish(&mut scheduler);
    assert_eq!(slow.borrow().tokens, alone(&prompt(500, 6), 20, 256));
}

#[test]
fn a_new_request_waits_for_nothing_while_a_place_is_free() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 2, 8));
    let (first, _) = submit(&mut scheduler, &prompt(1, 20), 100);
    steps(&mut scheduler, 4);
    assert_eq!(scheduler.running(), 1);
    assert_eq!(scheduler.wait(), Some(0.0));
    submit(&mut scheduler, &prompt(2, 20), 50);
    steps(&mut scheduler, 4);
    let both = scheduler.wait().expect("speeds are known");
    assert!(both > 0.0);
    // Behind one that waits it takes longer.
    submit(&mut scheduler, &prompt(3, 20), 50);
    step(&mut scheduler);
    assert!(scheduler.wait() > Some(both), "{:?}", scheduler.wait());
    assert!(scheduler.cancel(first));
    step(&mut scheduler);
    assert_eq!(scheduler.snapshot().queue, []);
}

#[test]
fn an_engine_that_cannot_go_back_shares_nothing() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 4).without_sharing());
    let outcomes: Vec<_> = (0..6).map(|_| submit(&mut scheduler, &prompt(1, 9), 5).1).collect();
    finish(&mut scheduler);
    for outcome in outcomes {
        assert_eq!(outcome.borrow().usage.cached, 0);
        assert_eq!(outcome.borrow().tokens, alone(&prompt(1, 9), 5, 256));
    }
    assert_eq!(scheduler.engine().free_pages(), 64);
}

#[test]
fn a_long_prompt_is_cut_into_chunks_while_others_generate() {
    let mut scheduler = Scheduler::new(FakeEngine::new(128, 4, 8));
    let (_, short) = submit(&mut scheduler, &prompt(502, 4), 60);
    for _ in 0..3 {
        step(&mut scheduler);
    }
    let (_, long) = submit(&mut scheduler, &prompt(1, 300), 4);
    let mut between = 0;
    while long.borrow().tokens.is_empty() {
        let before = short.borrow().tokens.len();
        step(&mut scheduler);
        between += 1;
        assert!(short.borrow().end.is_some() || short.borrow().tokens.len() == before + 1, "no stall");
    }
    assert!(between >= 300 / 32, "{between}");
    finish(&mut scheduler);
}

#[test]
fn salts_keep_prefixes_apart() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 8));
    let mut cached = Vec::new();
    for salt in [1, 2, 1] {
        let outcome = FakeRequest::default();
        let seen = outcome.outcome();
        let submission = Submission { prompt: prompt(1, 9), max_tokens: 1, salt };
        scheduler.submit(submission, outcome).expect("it can run");
        finish(&mut scheduler);
        cached.push(seen.borrow().usage.cached);
    }
    assert_eq!(cached, [0, 0, 8]);
}

#[test]
fn drafts_save_steps_and_change_no_token() {
    let run = |drafts: Option<(usize, usize)>| {
        let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 8).with_drafts(drafts));
        let (_, outcome) = submit(&mut scheduler, &prompt(3, 6), 12);
        finish(&mut scheduler);
        let outcome = outcome.borrow().clone();
        assert_eq!(outcome.tokens, alone(&prompt(3, 6), 12, 256));
        let counts = scheduler.counts();
        assert_eq!(counts.drafted_tokens, outcome.usage.drafted as u64);
        assert_eq!(counts.accepted_tokens, outcome.usage.accepted as u64);
        assert_eq!(counts.generated_tokens, 12);
        (counts.steps, outcome.usage.drafted, outcome.usage.accepted)
    };
    assert_eq!(run(None), (12, 0, 0));
    // One token with the prompt, two runs of four, and the rest: no more is drafted than is wanted.
    assert_eq!(run(Some((3, 3))), (4, 8, 8));
    assert_eq!(run(Some((3, 1))), (7, 14, 5));
    assert_eq!(run(Some((3, 0))).2, 0);
}

#[test]
fn nothing_is_drafted_beside_prompts() {
    let mut scheduler = Scheduler::new(FakeEngine::new(64, 4, 8).with_drafts(Some((3, 3))));
    let _first = submit(&mut scheduler, &prompt(1, 5), 40);
    steps(&mut scheduler, 2);
    assert_eq!(scheduler.counts().drafted_tokens, 3);
    let _second = submit(&mut scheduler, &prompt(2, 40), 40);
    let mut prompts = 0;
    while scheduler.running() > 0 {
        let before = scheduler.counts().drafted_tokens;
        let report = step(&mut scheduler);
        prompts += report.prompt;
        assert!(report.prompt == 0 || scheduler.counts().drafted_tokens == before, "{report:?}");
    }
    assert_eq!(prompts, 40);
}

#[test]
fn where_the_engine_cannot_go_back_behind_a_draft_tokens_are_computed_again() {
    let engine = FakeEngine::new(64, 4, 8).with_window(1).with_drafts(Some((3, 0)));
    let mut scheduler = Scheduler::new(engine);
    let prompts = [prompt(1, 5), prompt(2, 7)];
    let outcomes = prompts.each_ref().map(|prompt| submit(&mut scheduler, prompt, 9).1);
    finish(&mut scheduler);
    assert!(scheduler.counts().admitted > 2);
    for (prompt, outcome) in prompts.iter().zip(outcomes) {
        assert_eq!(outcome.borrow().tokens, alone(prompt, 9, 256));
    }
}

#[test]
fn a_step_that_fails_with_a_draft_is_done_again_without() {
    for damage in [Damage::Nothing, Damage::FirstIsFed] {
        let mut engine = FakeEngine::new(64, 4, 8).with_drafts(Some((3, 1)));
        (engine.fails_at, engine.damage) = (Some(3), damage);
        let mut scheduler = Scheduler::new(engine);
        let (_, outcome) = submit(&mut scheduler, &prompt(1, 5), 9);
        steps(&mut scheduler, 3);
        let drafted = scheduler.counts().drafted_tokens;
        step(&mut scheduler);
        assert_eq!(scheduler.counts().drafted_tokens, drafted, "one whose step failed is fed alone");
        finish(&mut scheduler);
        assert_eq!(outcome.borrow().tokens, alone(&prompt(1, 5), 9, 256), "{damage:?}");
    }
}
