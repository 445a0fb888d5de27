//! `/v1/embeddings` and `/v1/rerank`, of models that make embeddings or scores.

use serde_json::{Value as Json, json};

use crate::support::{model, reranker, start, start_embedder};

#[test]
fn embeddings_are_those_of_the_model_in_both_encodings() {
    let (server, mut embedder) = start_embedder(model());
    let texts = ["A cat sat on the mat.", "A dog lay on the rug."];
    let expected = embedder.embed(&texts).unwrap();
    let ask = |fields: Json| server.post("/v1/embeddings", &fields);
    let answer = ask(json!({ "input": texts })).ok();
    assert_eq!(answer["usage"]["prompt_tokens"], expected.tokens);
    let rows = |answer: &Json| -> Vec<Vec<f32>> {
        let data = answer["data"].as_array().unwrap().iter();
        data.map(|one| serde_json::from_value(one["embedding"].clone()).unwrap()).collect()
    };
    assert_eq!(rows(&answer), expected.rows);
    let tokens = embedder.tokenizer().unwrap().prompt(texts[0], orlop_llm::Special::Parse);
    let alone = embedder.embed_tokens(&[&tokens]).unwrap().rows;
    assert_eq!(rows(&ask(json!({ "input": texts[0] })).ok()), alone);
    assert_eq!(rows(&ask(json!({ "input": tokens, "dimensions": alone[0].len() })).ok()), alone);
    assert_eq!(rows(&ask(json!({ "input": [tokens] })).ok()), alone);
    let encoded = ask(json!({ "input": texts[0], "encoding_format": "base64" })).ok();
    let encoded = encoded["data"][0]["embedding"].as_str().unwrap().to_owned();
    // Four digits are three bytes.
    assert_eq!(encoded.len(), (4 * alone[0].len()).div_ceil(3) * 4);
}

#[test]
fn what_cannot_be_embedded_is_refused() {
    let (server, _) = start_embedder(model());
    for (fields, param) in [
        (json!({}), json!("input")),
        (json!({ "input": [] }), json!("input")),
        (json!({ "input": {} }), json!("input")),
        (json!({ "input": [[400]] }), json!("input")),
        (json!({ "input": "word ".repeat(300) }), Json::Null),
        (json!({ "input": vec!["a"; 2049] }), json!("input")),
        (json!({ "input": "a", "encoding_format": "hex" }), json!("encoding_format")),
        (json!({ "input": "a", "dimensions": 3 }), json!("dimensions")),
    ] {
        let answer = server.post("/v1/embeddings", &fields);
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &param), "{}", answer.text());
    }
    let rank = json!({ "query": "a", "documents": ["b"] });
    for (path, body) in [("/v1/rerank", rank), ("/v1/completions", json!({ "prompt": "a" }))] {
        let answer = server.post(path, &body);
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (400, &json!("unsupported")));
    }
    let refused = start().post("/v1/embeddings", &json!({ "input": "a" }));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("unsupported")));
}

#[test]
fn documents_are_ranked_by_their_scores() {
    let (server, mut ranker) = start_embedder(reranker());
    let (query, documents) = ("a query", ["one", "another one", "a third"]);
    let scores = ranker.rerank(query, &documents).unwrap();
    let mut expected: Vec<(usize, f32)> = scores.into_iter().enumerate().collect();
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    let ask = |fields: Json| {
        let mut body = json!({ "query": query, "documents": documents });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.post("/v1/rerank", &body).ok()["results"].as_array().unwrap().clone()
    };
    let ranked: Vec<(usize, f32)> = ask(json!({}))
        .iter()
        .map(|one| (one["index"].as_u64().unwrap() as usize, one["relevance_score"].as_f64().unwrap() as f32))
        .collect();
    assert_eq!(ranked, expected);
    let first = ask(json!({ "top_n": 1, "return_documents": true }));
    assert_eq!(first.len(), 1);
    assert_eq!(first[0]["document"]["text"], documents[expected[0].0]);
    let texts = json!({ "documents": documents.map(|text| json!({ "text": text })) });
    assert_eq!(ask(texts).len(), 3);
    let refused = server.post("/v1/embeddings", &json!({ "input": "a" }));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("unsupported")));
    assert_eq!(server.post("/v1/rerank", &json!({ "query": "a", "documents": [] })).status, 400);
}
