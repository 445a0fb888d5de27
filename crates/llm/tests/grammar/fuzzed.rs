//! The check of the fuzz target, on its corpus and on a fixed count of spoiled copies.

#[path = "../../fuzz/checks/grammar.rs"]
mod check;

use orlop_testkit::Random;

use crate::spoiled::{corpus, spoiled};

#[test]
fn grammars_and_schemas() {
    let compiler = check::compiler();
    let (mut random, mut good, mut refused) = (Random::new(1), 0, 0);
    for seed in corpus("grammar", 4) {
        check::follow(&compiler, &seed).expect("a grammar");
        for _ in 0..150 {
            match check::follow(&compiler, &spoiled(&seed, &mut random)) {
                Ok(()) => good += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(good > 100 && refused > 100, "{good} followed, {refused} refused");
}
