//! `/v1/embeddings` and `/v1/rerank`, of models that make embeddings or scores.

use orlop_http::ServedEmbedder;
use serde_json::{Value as Json, json};

use crate::support::{cpu, embedder, model, options, reranker, served, start, start_all, start_embedder};

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

#[test]
fn models_of_all_kinds_are_served_together_and_each_request_reaches_one_that_can_answer() {
    let (text, ranker) = (model(), reranker());
    let embeds = |name, model| ServedEmbedder::new(name, embedder(model), model).unwrap();
    let texts = vec![served("text", cpu(), &text, 4, 256)];
    let server = start_all(options(), texts, vec![embeds("vectors", &text), embeds("scores", &ranker)]);
    let list = server.get("/v1/models").ok();
    let tasks = list["data"].as_array().unwrap().iter().map(|model| (&model["id"], &model["task"]));
    assert_eq!(
        json!(tasks.collect::<Vec<_>>()),
        json!([["text", "generate"], ["vectors", "embed"], ["scores", "rerank"],])
    );
    let [write, embed, rank] = [
        ("/v1/completions", json!({ "prompt": "a", "max_tokens": 2 })),
        ("/v1/embeddings", json!({ "input": "a" })),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"] })),
    ];
    let ask = |(path, body): &(&str, Json), model: &str| {
        let mut body = body.clone();
        body["model"] = model.into();
        server.post(path, &body)
    };
    // Without a name, it is the first that can.
    for (path, body) in [&write, &embed, &rank] {
        server.post(path, body).ok();
    }
    let row = |answer: Json| -> Vec<f32> {
        serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap()
    };
    let expected = embedder(&text).embed(&["a"]).unwrap().rows;
    assert_eq!(row(ask(&embed, "vectors").ok()), expected[0]);
    ask(&write, "text").ok();
    ask(&rank, "scores").ok();
    for (request, model, words) in [
        (&write, "vectors", "The model `vectors` makes embeddings, and no text"),
        (&write, "scores", "The model `scores` makes embeddings, and no text"),
        (&embed, "text", "The model `text` makes text, and no embeddings"),
        (&rank, "text", "The model `text` makes text, and no embeddings"),
        (&embed, "scores", "scores of pairs"),
        (&rank, "vectors", "embeddings"),
    ] {
        let answer = ask(request, model);
        let error = &answer.json()["error"];
        assert_eq!(
            (answer.status, &error["param"], &error["code"]),
            (400, &json!("model"), &json!("unsupported"))
        );
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    let unknown = ask(&embed, "text-embedding-3-small");
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("`text`") && unknown.text().contains("`vectors`"), "{}", unknown.text());
    server.join(std::time::Duration::from_secs(30));
}
