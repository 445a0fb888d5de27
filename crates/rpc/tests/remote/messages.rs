//! The codec on bytes of any kind: the body of the fuzz target, a bounded number of times.

#[path = "../../fuzz/check.rs"]
mod check;

use orlop_rpc::codec::{Dialect, RequestLength, request_length};
use orlop_testkit::Random;

#[test]
fn random_messages_are_refused_or_survive_being_written_again() {
    let mut random = Random::new(8);
    let mut parsed = 0;
    for _ in 0..20_000 {
        let dialect = random.index(Dialect::all().len());
        let command = random.index(19) as u8;
        let length = match request_length(&Dialect::all()[dialect], command) {
            Ok(RequestLength::Exactly(bytes)) => bytes,
            Ok(RequestLength::AtLeast(bytes)) => bytes + random.index(40) as u64,
            Err(_) => 4,
        };
        let spoiled = random.index(4) == 0;
        let length = if spoiled { random.index(700) as u64 } else { length };
        let mut bytes = vec![dialect as u8, command];
        // Mostly zeros, so that counts and ids are small.
        bytes.extend((0..length).map(|_| if random.index(8) == 0 { random.next() as u8 } else { 0 }));
        parsed += usize::from(check::read(&bytes));
    }
    assert!(parsed > 5000, "{parsed}");
}

#[test]
fn graphs_survive_being_written_again() {
    let mut random = Random::new(9);
    for nodes in 0..20u32 {
        let records = random.index(6) as u32;
        let mut bytes = vec![6, 10, 0, 0, 0, 0];
        bytes.extend(nodes.to_le_bytes());
        bytes.extend((0..8 * nodes).map(|_| random.next() as u8));
        bytes.extend(records.to_le_bytes());
        bytes.extend((0..296 * records).map(|_| random.next() as u8));
        assert!(check::read(&bytes), "{nodes} nodes, {records} records");
        bytes.push(0);
        assert!(!check::read(&bytes));
    }
}
