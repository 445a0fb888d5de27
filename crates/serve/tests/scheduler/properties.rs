//! Whatever happens: no page is lost, all requests end, and each gives the tokens that it gives alone.

use orlop_serve::{PagedEngine, RequestEnd, Scheduler};
use proptest::prelude::*;

use super::fake::*;

#[derive(Clone, Debug)]
enum Event {
    Submit { family: u32, shared: usize, own: u32, length: usize, most: usize },
    Cancel(usize),
    Pause(usize, bool),
    Steps(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0u32..3, 0usize..30, 0u32..3, 1usize..12, 0usize..60)
            .prop_map(|(family, shared, own, length, most)| Event::Submit { family, shared, own, length, most }),
        1 => (0usize..40).prop_map(Event::Cancel),
        1 => (0usize..40, any::<bool>()).prop_map(|(which, paused)| Event::Pause(which, paused)),
        4 => (1usize..12).prop_map(Event::Steps),
    ];
    prop::collection::vec(event, 1..60)
}

proptest! {
    #[test]
    fn all_requests_end_with_the_tokens_that_they_give_alone_and_no_page_is_lost(
        events in events(),
        pages in 11usize..40,
        parallel in 1usize..8,
        kept in 0usize..6,
        drafts in prop::option::of((1usize..6, 0usize..6)),
    ) {
        let engine = FakeEngine::new(pages, parallel, parallel + kept).with_drafts(drafts);
        let mut scheduler = Scheduler::new(engine);
        let mut submitted = Vec::new();
        for event in &events {
            match event {
                Event::Submit { family, shared, own, length, most } => {
                    let prefix = (0..*shared as u32).map(|index| 1000 * (family + 1) + index);
                    let prompt: Vec<u32> = prefix.chain((0..*length as u32).map(|index| 60 + own + index)).collect();
                    let (id, outcome) = submit(&mut scheduler, &prompt, *most);
                    submitted.push((id, prompt, *most, outcome, false));
                }
                Event::Cancel(which) => {
                    if let Some(one) = submitted.get_mut(*which) {
                        one.4 |= scheduler.cancel(one.0);
                    }
                }
                Event::Pause(which, paused) => {
                    if let Some(one) = submitted.get(*which) {
                        one.3.borrow_mut().paused = *paused;
                    }
                }
                Event::Steps(count) => (0..*count).for_each(|_| {
                    step(&mut scheduler);
                }),
            }
        }
        submitted.iter().for_each(|one| one.3.borrow_mut().paused = false);
        finish(&mut scheduler);
        for (_, prompt, most, outcome, cancelled) in submitted {
            let outcome = outcome.borrow();
            let expected = alone(&prompt, most, pages * PAGE);
            if cancelled {
                prop_assert_eq!(&outcome.end, &Some(RequestEnd::Cancelled));
                prop_assert!(expected.starts_with(&outcome.tokens));
            } else {
                prop_assert_eq!(&outcome.tokens, &expected);
                let end = if expected.last() == Some(&END) { RequestEnd::Done } else { RequestEnd::Length };
                prop_assert_eq!(&outcome.end, &Some(end));
            }
        }
        scheduler.clear_cache();
        prop_assert_eq!(scheduler.engine().drafting.len(), 0, "drafts of requests that have ended");
        prop_assert_eq!((scheduler.engine().free_pages(), scheduler.engine().live()), (pages, 0));
    }
}
