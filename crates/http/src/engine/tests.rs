//! Rings and mailboxes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::generation::Generation;
use super::mailbox::{Key, Mailbox, NotTaken, Room, Taken};
use super::ring::{Event, Generated, Ring};
use crate::bounds;

#[test]
fn a_ring_that_was_read_has_all_its_room_however_its_texts_were_joined() {
    let mailbox = Arc::<Mailbox>::default();
    let ring = Ring::new(1, mailbox);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pushed = [(); 3].map(|()| {
        let mut pushed = 0;
        while ring.has_room() {
            ring.push(0, Event::Text(Generated { text: "a".to_owned(), tokens: 1, scores: Vec::new() }));
            pushed += 1;
        }
        let mut tokens = 0;
        while tokens < pushed {
            let (_, event) = runtime.block_on(ring.next()).unwrap();
            let Event::Text(text) = event else { panic!("{event:?}") };
            tokens += text.tokens;
        }
        assert_eq!(tokens, pushed);
        pushed
    });
    assert!(pushed[0] > bounds::RING_EVENTS && pushed == [pushed[0]; 3], "{pushed:?}");
}

fn submit(mailbox: &Arc<Mailbox>, tokens: usize, answers: usize) -> Result<Key, NotTaken> {
    let generation = Generation { prompts: vec![vec![0; tokens]], answers, ..Generation::default() };
    let ring = Arc::new(Ring::new(answers, Arc::clone(mailbox)));
    mailbox.submit(0, generation, ring, Room { requests: 3, tokens: 100 })
}

#[test]
fn tokens_are_bounded_in_all_and_counted_for_each_answer() {
    let mailbox = Arc::<Mailbox>::default();
    let large = submit(&mailbox, 200, 2).unwrap();
    assert_eq!(submit(&mailbox, 1, 1), Err(NotTaken::Tokens(400)));
    mailbox.release(large);
    submit(&mailbox, 20, 4).unwrap();
    assert_eq!(submit(&mailbox, 7, 3), Err(NotTaken::Tokens(80)));
    submit(&mailbox, 20, 1).unwrap();
    assert_eq!(submit(&mailbox, 1, 1), Err(NotTaken::Tokens(100)));
    submit(&mailbox, 0, 1).unwrap();
    assert_eq!(submit(&mailbox, 0, 1), Err(NotTaken::Full(3)));
}

#[test]
fn an_end_that_is_seen_comes_with_all_that_was_submitted_before() {
    let mailbox = Arc::<Mailbox>::default();
    submit(&mailbox, 1, 1).unwrap();
    mailbox.end_within(Duration::MAX);
    let Taken { messages, ends } = mailbox.take();
    assert_eq!(messages.len(), 1);
    assert!(ends.unwrap() > Instant::now());
    assert_eq!(submit(&mailbox, 1, 1), Err(NotTaken::Ending));
    mailbox.end_within(Duration::ZERO);
    assert!(mailbox.take().ends.unwrap() <= Instant::now());
}
