//! A validator for the keywords of [`super::generator`], which shares no code with what is tested.

use serde_json::Value as Json;

/// Whether a value is valid for a part of a schema.
pub(super) fn check(root: &Json, schema: &Json, value: &Json) -> Result<(), String> {
    let Json::Object(keywords) = schema else {
        return if *schema == true { Ok(()) } else { Err(format!("{value} is not allowed")) };
    };
    for (keyword, rule) in keywords {
        let valid = match keyword.as_str() {
            "$defs" | "properties" | "additionalProperties" | "prefixItems" | "items" => true,
            "$ref" => {
                let target = rule.as_str().and_then(|target| root.pointer(target.strip_prefix('#')?));
                check(root, target.ok_or("a reference to nothing")?, value)?;
                true
            }
            "anyOf" => options(rule).iter().any(|option| check(root, option, value).is_ok()),
            "allOf" => options(rule).iter().all(|option| check(root, option, value).is_ok()),
            "type" => match rule {
                Json::Array(kinds) => kinds.iter().any(|kind| is_a(kind, value)),
                kind => is_a(kind, value),
            },
            "enum" => options(rule).contains(value),
            "const" => rule == value,
            "minimum" => number(value, |value| value >= bound(rule)),
            "maximum" => number(value, |value| value <= bound(rule)),
            "exclusiveMinimum" => number(value, |value| value > bound(rule)),
            "exclusiveMaximum" => number(value, |value| value < bound(rule)),
            "multipleOf" => number(value, |value| (value / bound(rule)).fract() == 0.0),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as f64 >= bound(rule)),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as f64 <= bound(rule)),
            "pattern" => value.as_str().is_none_or(|text| fits_pattern(rule, text)),
            "format" => value.as_str().is_none_or(|text| has_format(rule, text)),
            "minItems" => value.as_array().is_none_or(|items| items.len() as f64 >= bound(rule)),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as f64 <= bound(rule)),
            "required" => value.as_object().is_none_or(|members| {
                options(rule).iter().all(|name| members.contains_key(name.as_str().unwrap()))
            }),
            other => return Err(format!("the validator does not know `{other}`")),
        };
        if !valid {
            return Err(format!("{value} breaks `{keyword}: {rule}`"));
        }
    }
    check_members(root, schema, value)?;
    check_items(root, schema, value)
}

fn check_members(root: &Json, schema: &Json, value: &Json) -> Result<(), String> {
    for (name, member) in value.as_object().into_iter().flatten() {
        let rule = schema.get("properties").and_then(|properties| properties.get(name));
        if let Some(rule) = rule.or(schema.get("additionalProperties")) {
            check(root, rule, member)?;
        }
    }
    Ok(())
}

fn check_items(root: &Json, schema: &Json, value: &Json) -> Result<(), String> {
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        let rule = schema.get("prefixItems").and_then(|rules| rules.get(at)).or(schema.get("items"));
        if let Some(rule) = rule {
            check(root, rule, item)?;
        }
    }
    Ok(())
}

fn options(rule: &Json) -> &[Json] {
    rule.as_array().map_or(&[], Vec::as_slice)
}

fn is_a(kind: &Json, value: &Json) -> bool {
    match kind.as_str().unwrap() {
        "string" => value.is_string(),
        "integer" => number(value, |value| value.fract() == 0.0) && value.is_number(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    }
}

fn bound(rule: &Json) -> f64 {
    rule.as_f64().unwrap()
}

fn number(value: &Json, fits: impl Fn(f64) -> bool) -> bool {
    value.as_f64().is_none_or(fits)
}

fn fits_pattern(pattern: &Json, text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match pattern.as_str().unwrap() {
        "^[a-z]{2,5}$" => (2..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase()),
        "^\\d+-\\d{2}$" => text.split_once('-').is_some_and(|(a, b)| digits(a) && digits(b) && b.len() == 2),
        "^(yes|no)$" => text == "yes" || text == "no",
        other => panic!("{other}"),
    }
}

fn has_format(format: &Json, text: &str) -> bool {
    let numbers = |text: &str, mark: char| -> Vec<u32> {
        text.split(mark).filter_map(|part| part.parse().ok()).collect()
    };
    match format.as_str().unwrap() {
        "date" => text.len() == 10 && matches!(numbers(text, '-')[..], [_, 1..=12, 1..=31]),
        "time" => text.len() >= 9 && matches!(numbers(&text[..8], ':')[..], [0..=23, 0..=59, 0..=60]),
        "ipv4" => matches!(numbers(text, '.')[..], [0..=255, 0..=255, 0..=255, 0..=255]),
        "uuid" => text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12]),
        other => panic!("{other}"),
    }
}
