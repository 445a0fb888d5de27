use crate::rerankers::reranker;
use crate::support::Folder;
use crate::with_model::{json, orlop};

fn row(answer: &serde_json::Value, index: usize) -> Vec<f64> {
    serde_json::from_value(answer["embeddings"][index].clone()).unwrap()
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn embeddings_have_length_one_and_like_texts_are_nearer() {
    let texts = ["The ship sails to the harbour.", "A boat goes into the port.", "def f(x): return x"];
    let answer = json(&[&["embed", "--json", "--pooling", "mean", "--"], &texts[..]].concat());
    assert_eq!((answer["dimensions"].as_u64(), answer["tokens"].as_u64()), (Some(576), Some(21)), "{answer}");
    let rows: Vec<Vec<f64>> = (0..3).map(|index| row(&answer, index)).collect();
    assert!(rows.iter().all(|row| (product(row, row) - 1.0).abs() < 1e-5));
    assert!(product(&rows[0], &rows[1]) > product(&rows[0], &rows[2]));
    // The last token stands for a text if nothing is said.
    let last = json(&["embed", "--json", texts[0]]);
    let same = json(&["embed", "--json", "--pooling", "last", texts[0]]);
    assert_eq!(last["embeddings"], same["embeddings"]);
    assert!(product(&row(&last, 0), &rows[0]) < 0.999);
}

#[test]
fn texts_that_are_too_long_and_models_without_a_classifier_are_refused() {
    let long = orlop(&["embed", "-c", "8", &"word ".repeat(9)]);
    assert_eq!(long.status, Some(3), "{long:?}");
    assert!(long.stderr.contains("text number 0 has 10 tokens, and at most 8 fit"), "{long:?}");
    let rank = orlop(&["rerank", "query", "document"]);
    assert_eq!(rank.status, Some(2), "{rank:?}");
    assert!(rank.stderr.contains("cls.output.weight"), "{rank:?}");
}

#[test]
fn documents_are_printed_by_their_scores() {
    let folder = Folder::new();
    let model = folder.path("reranker.gguf");
    reranker(&model);
    let documents = ["The lowest deck of a ship.", "A kind of cheese.", "Ropes"];
    let arguments = ["-m", &model, "What is an orlop?"];
    let answer = json(&[&["rerank", "--json"], &arguments[..], &documents[..]].concat());
    let answers = answer.as_array().unwrap();
    let score = |at: usize| answers[at]["score"].as_f64().unwrap();
    assert!(score(0) > score(1) && score(1) > score(2), "{answer}");
    let printed = orlop(&[&["rerank"], &arguments[..], &documents[..]].concat()).result();
    for (line, answer) in printed.lines().zip(answers) {
        let document = documents[answer["index"].as_u64().unwrap() as usize];
        let expected = format!("{:>9.4}  {document}", answer["score"].as_f64().unwrap());
        assert_eq!(line, expected);
    }
    // A document's score is its own: the others do not change it, but for the last bits.
    let alone = json(&[&["rerank", "--json"], &arguments[..], &documents[..1]].concat());
    let together = answers.iter().find(|answer| answer["index"] == 0).unwrap();
    assert!((alone[0]["score"].as_f64().unwrap() - together["score"].as_f64().unwrap()).abs() < 1e-3);
}

#[test]
fn lines_are_tokenized_one_by_one() {
    let folder = Folder::new();
    let file = folder.path("texts.jsonl");
    std::fs::write(&file, "\"a\\nb\"\n\"The capital of France is\"\n").unwrap();
    let run = orlop(&["tokenize", "--lines", "-f", &file]);
    assert_eq!(run.stdout.lines().nth(1), Some("504 3575 282 4649 314"), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 2);
    std::fs::write(&file, "\"a\"\nb\n").unwrap();
    let run = orlop(&["tokenize", "--lines", "-f", &file]);
    assert!(run.stderr.contains("line 2 is not a JSON string"), "{run:?}");
}

#[test]
fn importance_data_is_written_and_used() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name);
    let text = include_str!("../../../../docs/src/guide/plan.md");
    std::fs::write(path("text.txt"), &text[..text.floor_char_boundary(900)]).unwrap();
    let (text, data) = (path("text.txt"), path("data.gguf"));
    let answer = json(&["imatrix", "--json", "-f", &text, "-o", &data, "-c", "64"]);
    assert_eq!(answer["matrices"], 210, "seven in each of 30 layers: {answer}");
    assert!(answer["chunks"].as_u64() >= Some(2), "{answer}");
    let file = orlop::gguf::GgufFile::open(&data).unwrap();
    assert_eq!(file.metadata().u32("imatrix.chunk_size").unwrap(), 64);
    assert_eq!(file.tensors().len(), 420);
    let inspected = orlop(&["imatrix", "-f", &text, "-o", &path("no/such/folder"), "-c", "64"]);
    assert_eq!(inspected.status, Some(2), "{inspected:?}");
}
