//! Objects that have the properties which a schema lists, and no others: the schema allows others, but its author
//! rarely wants them, and a model that may always add another property ends late.

use serde_json::Value as Json;

/// Keywords by which several schemas say something about one object: what one of them does not list, another one may.
const COMBINE: [&str; 10] = [
    "allOf",
    "if",
    "then",
    "else",
    "not",
    "dependentSchemas",
    "dependencies",
    "unevaluatedProperties",
    "$dynamicRef",
    "$recursiveRef",
];

/// Keywords that combine only where the same schema lists properties, too.
const COMBINE_WITH_PROPERTIES: [&str; 3] = ["$ref", "anyOf", "oneOf"];

/// Forbids other properties in all objects whose properties are listed, unless schemas are combined somewhere.
pub(super) fn close(schema: &mut Json) {
    if !combines(schema) {
        close_objects(schema);
    }
}

fn combines(schema: &mut Json) -> bool {
    let has = |key: &&str| schema.get(key).is_some();
    COMBINE.iter().any(has)
        || has(&"properties") && COMBINE_WITH_PROPERTIES.iter().any(has)
        || parts(schema).into_iter().any(combines)
}

fn close_objects(schema: &mut Json) {
    if may_close(schema) {
        schema["additionalProperties"] = false.into();
    }
    parts(schema).into_iter().for_each(close_objects);
}

/// Whether a schema lists properties, says nothing about others, and needs none.
fn may_close(schema: &Json) -> bool {
    let Some(properties) = schema.get("properties").and_then(Json::as_object) else { return false };
    let listed = |name: &Json| name.as_str().is_some_and(|name| properties.contains_key(name));
    let required = schema.get("required").and_then(Json::as_array);
    let least = schema.get("minProperties").and_then(Json::as_u64).unwrap_or(0);
    !properties.is_empty()
        && ["additionalProperties", "patternProperties"].iter().all(|key| schema.get(key).is_none())
        && required.is_none_or(|required| required.iter().all(listed))
        && least <= properties.len() as u64
}

/// The schemas in a schema.
fn parts(schema: &mut Json) -> Vec<&mut Json> {
    let Json::Object(keywords) = schema else { return Vec::new() };
    let mut parts = Vec::new();
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Json::Object(schemas)) => {
                parts.extend(schemas.values_mut());
            }
            ("items" | "prefixItems" | "anyOf" | "oneOf", Json::Array(schemas)) => parts.extend(schemas),
            ("items" | "additionalProperties" | "additionalItems" | "contains", schema) => parts.push(schema),
            _ => {}
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn closed(mut schema: Json) -> Json {
        close(&mut schema);
        schema
    }

    #[test]
    fn objects_at_every_depth_have_the_listed_properties_alone() {
        let point = json!({"properties": {"x": {"type": "integer"}}, "required": ["x"]});
        let schema = closed(json!({
            "properties": {"additionalProperties": point, "const": {"const": {"properties": {}}}},
            "$defs": {"all": {"type": "array", "items": {"anyOf": [point, {"type": "null"}]}}},
        }));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["additionalProperties"]["additionalProperties"], false);
        assert_eq!(schema["properties"]["const"], json!({"const": {"properties": {}}}));
        assert_eq!(schema["$defs"]["all"]["items"]["anyOf"][0]["additionalProperties"], false);
        assert_eq!(schema["$defs"]["all"]["items"]["anyOf"][1], json!({"type": "null"}));
    }

    #[test]
    fn what_needs_or_names_other_properties_stays_open() {
        let x = json!({"x": {"type": "integer"}});
        for open in [
            json!({"type": "object"}),
            json!({"properties": {}}),
            json!({"properties": x, "additionalProperties": true}),
            json!({"properties": x, "patternProperties": {"^y": {}}}),
            json!({"properties": x, "required": ["x", "y"]}),
            json!({"properties": x, "minProperties": 2}),
            json!({"properties": x, "$ref": "#/$defs/y", "$defs": {"y": {"properties": x}}}),
            json!({"allOf": [{"properties": x}, {"properties": {"y": {}}}]}),
            json!({"items": {"anyOf": [{"properties": x, "oneOf": [{"required": ["x"]}]}]}}),
        ] {
            assert_eq!(closed(open.clone()), open);
        }
    }
}
