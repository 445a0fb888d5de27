//! Random schemas that can be met.

use serde_json::{Map, Value as Json, json};

use orlop_testkit::Random;

use crate::support::one_of;

/// A schema with definitions, some of which refer to themselves.
pub(super) fn schema(random: &mut Random) -> Json {
    let mut schema = part(random, 4);
    let definitions: Map<String, Json> =
        (0..DEFINITIONS).map(|at| (format!("d{at}"), definition(random))).collect();
    schema["$defs"] = definitions.into();
    schema
}

const DEFINITIONS: usize = 3;

/// What refers to itself is optional, so that it can end.
fn definition(random: &mut Random) -> Json {
    let (value, other) = (part(random, 1), random.index(DEFINITIONS));
    json!({
        "type": "object",
        "properties": {"value": value, "next": {"$ref": format!("#/$defs/d{other}")}},
        "required": ["value"],
        "additionalProperties": false,
    })
}

fn part(random: &mut Random, depth: usize) -> Json {
    match random.index(if depth == 0 { 6 } else { 11 }) {
        0 => string(random),
        1 => number(random, "integer"),
        2 => number(random, "number"),
        3 => json!({"type": one_of(random, &["boolean", "null"])}),
        4 => json!({"enum": [random.index(100), "a \"word\"", null, [1, "é"], {"k": true}]}),
        5 => json!({"const": one_of(random, &[json!("always"), json!({"a": [1.5, "/"]}), json!(-7)])}),
        6 => array(random, depth),
        7 => json!({"anyOf": [part(random, depth - 1), part(random, depth - 1)]}),
        8 => json!({"$ref": format!("#/$defs/d{}", random.index(DEFINITIONS))}),
        _ => object(random, depth),
    }
}

fn string(random: &mut Random) -> Json {
    let least = random.index(4);
    match random.index(4) {
        0 => {
            json!({"type": "string", "pattern": one_of(random, &["^[a-z]{2,5}$", "^\\d+-\\d{2}$", "^(yes|no)$"])})
        }
        1 => json!({"type": "string", "format": one_of(random, &["date", "time", "ipv4", "uuid"])}),
        2 => json!({"type": ["string", "null"], "maxLength": 6}),
        _ => json!({"type": "string", "minLength": least, "maxLength": least + random.index(9)}),
    }
}

fn number(random: &mut Random, kind: &str) -> Json {
    let least = random.index(200) as i64 - 100;
    let most = least + 1 + random.index(300) as i64;
    match random.index(3) {
        0 => json!({"type": kind, "minimum": least, "maximum": most}),
        1 => json!({"type": kind, "exclusiveMinimum": least, "exclusiveMaximum": most + 1}),
        _ => json!({"type": kind, "minimum": 0, "maximum": 1000, "multipleOf": 1 + random.index(20)}),
    }
}

fn array(random: &mut Random, depth: usize) -> Json {
    let least = random.index(3);
    match random.index(2) {
        0 => {
            json!({"type": "array", "items": part(random, depth - 1), "minItems": least, "maxItems": least + 2})
        }
        _ => {
            json!({"type": "array", "prefixItems": [part(random, depth - 1), part(random, 0)], "items": false, "minItems": 2})
        }
    }
}

fn object(random: &mut Random, depth: usize) -> Json {
    let mut properties = Map::new();
    for at in 0..1 + random.index(4) {
        let name = one_of(random, &["name", "two words", "é", "\"quoted\"", "x"]);
        properties.insert(format!("{name}{at}"), part(random, depth - 1));
    }
    let required_again = properties.keys().next().cloned().into_iter().collect::<Vec<_>>();
    let required: Vec<&String> = properties.keys().filter(|_| random.index(2) == 0).collect();
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    match random.index(3) {
        0 => schema["additionalProperties"] = json!({"type": "integer", "minimum": 0, "maximum": 9}),
        _ => schema["additionalProperties"] = false.into(),
    }
    match random.index(3) {
        0 => json!({"allOf": [schema, {"required": required_again}]}),
        _ => schema,
    }
}
