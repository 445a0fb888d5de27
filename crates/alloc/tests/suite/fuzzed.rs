//! The checks of the fuzz targets, on their corpora and on a fixed count of spoiled copies.

#[path = "../../fuzz/checks/graph.rs"]
mod graph;
#[path = "../../fuzz/checks/plan.rs"]
mod plan;

use orlop_alloc::{PlanOptions, SavedMemoryPlan, plan_memory};
use orlop_graph::{DType, GraphBuilder};
use orlop_testkit::Random;

/// Words that stand in the texts, and numbers at limits.
const PIECES: [&str; 12] = [
    "null",
    "-1",
    "18446744073709551615",
    "1e30",
    "[]",
    "{}",
    "0",
    "\"input\"",
    ",",
    "[0,1]",
    "\"clamp\"",
    "\"f32\"",
];

/// A text with one to three changes.
fn spoiled(text: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = random.index(bytes.len());
        let end =
            bytes[at..].iter().position(|byte| b",]}".contains(byte)).map_or(bytes.len(), |end| at + end);
        match random.below(4) {
            0 => bytes[at] = b'0' + random.below(10) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            // A whole value, mostly.
            2 => {
                let start =
                    bytes[..at].iter().rposition(|byte| b":[,".contains(byte)).map_or(0, |start| start + 1);
                drop(bytes.splice(start..end, PIECES[random.index(PIECES.len())].bytes()));
            }
            _ => drop(bytes.drain(at..end)),
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// A seed, written anew with UPDATE_GOLDEN=1.
fn seed(name: &str, text: String) -> Vec<u8> {
    let path = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    std::fs::read(&path).unwrap()
}

fn check(seed: &[u8], holds: impl Fn(&[u8]) -> bool) {
    assert!(holds(seed), "UPDATE_GOLDEN=1 renews the corpus");
    let mut random = Random::new(1);
    let taken = (0..2000).filter(|_| holds(&spoiled(seed, &mut random))).count();
    assert!((20..1900).contains(&taken), "{taken} spoiled ones are taken");
}

#[test]
fn graphs() {
    let mut b = GraphBuilder::new();
    let x = b.input("x", DType::F32, &[8, 2]);
    let w = b.weight("w", DType::Q4_0, &[32, 4]);
    let v = b.input("v", DType::F32, &[32, 3]);
    let y = b.clamp(x, f32::NEG_INFINITY, 0.1);
    let half = b.reshape(y, &[4, 4]);
    let product = b.mul_mat(w, v);
    let scaled = b.scale(half, 2.0);
    b.output(scaled);
    b.output(product);
    check(&seed("graph/small", b.build().unwrap().to_json().unwrap()), graph::plan);
}

#[test]
fn saved_plans() {
    let plan = plan_memory(&plan::usage(), &PlanOptions::default()).unwrap();
    let text = serde_json::to_string(&SavedMemoryPlan::new(&plan)).unwrap();
    check(&seed("plan/chain", text), plan::open);
}
