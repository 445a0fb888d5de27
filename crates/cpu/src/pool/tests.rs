use super::*;

#[test]
fn every_number_is_called_once_per_run() {
    let pool = ThreadPool::new(5).unwrap();
    for threads in [1, 2, 5, 9] {
        let calls: Vec<AtomicUsize> = (0..5).map(|_| AtomicUsize::new(0)).collect();
        pool.run(threads, &|index| {
            calls[index].fetch_add(1, Ordering::Relaxed);
        });
        let calls: Vec<usize> = calls.iter().map(|calls| calls.load(Ordering::Relaxed)).collect();
        let expected: Vec<usize> = (0..5).map(|index| usize::from(index < threads)).collect();
        assert_eq!(calls, expected);
    }
}

#[test]
fn callers_on_several_threads_take_turns() {
    let pool = ThreadPool::new(3).unwrap();
    let total = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    pool.run(3, &|_| {
                        total.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(total.load(Ordering::Relaxed), 4 * 200 * 3);
}

#[test]
fn a_phase_begins_when_all_items_of_the_one_before_are_done() {
    let pool = ThreadPool::new(4).unwrap();
    let count = AtomicUsize::new(0);
    let mut team = pool.team(4);
    for round in 0..2_000 {
        team.phase(7, &|_, _| {
            let seen = count.fetch_add(1, Ordering::Relaxed);
            assert!((7 * round..7 * round + 7).contains(&seen), "{seen} in round {round}");
        });
    }
    assert_eq!(count.load(Ordering::Relaxed), 14_000);
}

#[test]
fn a_phase_ends_though_no_helper_ever_runs() {
    let pool = ThreadPool::without_helpers(8);
    let calls: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
    let mut team = pool.team(8);
    assert_eq!(team.threads(), 8);
    team.phase(100, &|item, thread| {
        assert_eq!(thread, 0);
        calls[item].fetch_add(1, Ordering::Relaxed);
    });
    assert!(calls.iter().all(|calls| calls.load(Ordering::Relaxed) == 1));
}

#[test]
fn a_helper_that_is_held_up_holds_up_one_item() {
    let pool = ThreadPool::new(2).unwrap();
    let (came, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    pool.team(2).phase(50, &|_, thread| {
        if thread == 0 {
            while !came.load(Ordering::SeqCst) {
                pool.wake(2);
                std::thread::yield_now();
            }
            done.fetch_add(1, Ordering::SeqCst);
        } else {
            came.store(true, Ordering::SeqCst);
            // Until the caller has done all the others.
            while done.load(Ordering::SeqCst) < 49 {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), 49);
}

#[test]
fn a_thread_has_one_item_at_a_time() {
    let pool = ThreadPool::new(3).unwrap();
    let busy: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    let mut team = pool.team(3);
    for _ in 0..300 {
        team.phase(9, &|_, thread| {
            assert_eq!(busy[thread].fetch_add(1, Ordering::SeqCst), 0, "thread {thread}");
            std::thread::yield_now();
            busy[thread].fetch_sub(1, Ordering::SeqCst);
        });
    }
}

#[test]
fn threads_outside_a_team_do_not_help() {
    let pool = ThreadPool::new(4).unwrap();
    for members in [2, 4, 3, 1] {
        let mut team = pool.team(members);
        for _ in 0..200 {
            team.phase(8, &|_, thread| assert!(thread < members));
        }
    }
}

#[test]
fn an_idle_pool_does_nothing() {
    let pool = ThreadPool::new(4).unwrap();
    for _ in 0..3 {
        pool.run(4, &|_| std::thread::yield_now());
        while pool.shared.asleep.load(Ordering::SeqCst) < 3 {
            std::thread::yield_now();
        }
        let rounds = pool.shared.rounds.load(Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_eq!(pool.shared.rounds.load(Ordering::SeqCst), rounds, "helpers have looked for work");
        assert_eq!(pool.shared.asleep.load(Ordering::SeqCst), 3);
    }
}

#[test]
fn a_panic_on_any_thread_reaches_the_caller_and_leaves_the_pool_usable() {
    let pool = ThreadPool::new(3).unwrap();
    for thread in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.run(3, &|index| assert!(index != thread, "on purpose"));
        }));
        assert!(panicked.is_err(), "thread {thread}");
        let calls = AtomicUsize::new(0);
        pool.run(3, &|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn workers_that_are_left_out_many_times_can_still_be_called() {
    let pool = ThreadPool::new(4).unwrap();
    let calls = AtomicUsize::new(0);
    for _ in 0..20_000 {
        pool.run(2, &|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
    }
    let (mut team, all_came) = (pool.team(4), AtomicUsize::new(0));
    while all_came.load(Ordering::SeqCst) != 0b1111 {
        // Otherwise the caller stays alone, once helpers have not come for a while.
        team.threads();
        team.phase(4, &|_, thread| {
            all_came.fetch_or(1 << thread, Ordering::SeqCst);
            std::thread::yield_now();
        });
    }
    assert_eq!(calls.load(Ordering::Relaxed), 40_000);
}

#[test]
fn a_pool_ends_whether_its_threads_have_worked_or_not() {
    for runs in [0, 1, 50] {
        let (pool, calls) = (ThreadPool::new(3).unwrap(), AtomicUsize::new(0));
        for _ in 0..runs {
            pool.run(3, &|_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
        }
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        assert!(shared.upgrade().is_none(), "a worker is still there");
        assert_eq!(calls.load(Ordering::Relaxed), 3 * runs);
    }
}
