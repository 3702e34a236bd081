//! Validation of JSON against a JSON Schema, stricter than the standard: a schema must also
//! describe every field. It knows the keywords that schemas of this project use.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use hugepilot_cli::schema;
use serde_json::{Map, Value};

/// Keywords without an effect on validation.
const ANNOTATIONS: [&str; 5] = ["$schema", "$defs", "title", "description", "required"];

/// Validates one JSON object by the schema that it names, and returns that schema's name.
///
/// # Errors
/// If it does not follow the schema; the message lists the violations with their places.
pub(crate) fn validate(json: &[u8]) -> Result<String, String> {
    let value: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let id = value["schema"].as_str().and_then(|id| id.strip_prefix("hugepilot."));
    let (name, _) = id.and_then(|id| id.split_once('/')).ok_or("it names no schema")?;
    let violations = violations(&*parsed(name)?, &value);
    if violations.is_empty() { Ok(name.to_owned()) } else { Err(violations.join("\n")) }
}

/// The schema of this name. Without optimisation, making one takes longer than a validation.
fn parsed(name: &str) -> Result<Arc<Value>, String> {
    static PARSED: Mutex<BTreeMap<String, Arc<Value>>> = Mutex::new(BTreeMap::new());
    let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(schema) = parsed.get(name) {
        return Ok(Arc::clone(schema));
    }
    let schema = schema::schema(name).ok_or_else(|| format!("no schema {name}"))?;
    Ok(Arc::clone(parsed.entry(name.to_owned()).or_insert(Arc::new(schema))))
}

/// Violations of `schema` by `instance`, each with its place.
fn violations(schema: &Value, instance: &Value) -> Vec<String> {
    let mut check = Check { root: schema, violations: Vec::new() };
    check.whole(schema, instance, "");
    check.violations
}

struct Check<'a> {
    root: &'a Value,
    violations: Vec<String>,
}

/// Names of the fields that a schema describes.
type Described = BTreeSet<String>;

impl<'a> Check<'a> {
    fn violation(&mut self, place: &str, what: impl AsRef<str>) {
        let place = if place.is_empty() { "/" } else { place };
        self.violations.push(format!("{place}: {}", what.as_ref()));
    }

    /// Checks `value`, and that `schema` describes each of its fields.
    fn whole(&mut self, schema: &'a Value, value: &Value, place: &str) {
        let described = self.part(schema, value, place);
        for name in value.as_object().into_iter().flat_map(Map::keys) {
            if !described.contains(name) {
                self.violation(place, format!("the schema has no field {name}"));
            }
        }
    }

    /// Checks `value`, and returns the described fields.
    fn part(&mut self, schema: &'a Value, value: &Value, place: &str) -> Described {
        let mut described = Described::new();
        let Some(schema) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                self.violation(place, "nothing is permitted here");
            }
            return described;
        };
        if schema.contains_key("properties") || schema.contains_key("additionalProperties") {
            described.extend(self.fields(schema, value, place));
        }
        self.required(schema, value, place);
        for (keyword, argument) in schema {
            match &**keyword {
                "properties" | "additionalProperties" => {}
                "$ref" => {
                    let pointer = argument.as_str().and_then(|path| path.strip_prefix('#'));
                    let target = pointer.and_then(|pointer| self.root.pointer(pointer));
                    let target = target.unwrap_or_else(|| panic!("no target of $ref {argument}"));
                    described.extend(self.part(target, value, place));
                }
                "allOf" => {
                    for branch in argument.as_array().into_iter().flatten() {
                        described.extend(self.part(branch, value, place));
                    }
                }
                "oneOf" | "anyOf" => {
                    described.extend(self.branches(keyword, argument, value, place));
                }
                "items" => {
                    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.whole(argument, item, &format!("{place}/{index}"));
                    }
                }
                keyword if ANNOTATIONS.contains(&keyword) => {}
                keyword => {
                    if !holds(keyword, argument, value) {
                        self.violation(place, format!("{value} is not {keyword} {argument}"));
                    }
                }
            }
        }
        described
    }

    fn required(&mut self, schema: &Map<String, Value>, value: &Value, place: &str) {
        let Some(object) = value.as_object() else { return };
        let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in names.filter_map(Value::as_str) {
            if !object.contains_key(name) {
                self.violation(place, format!("the field {name} is missing"));
            }
        }
    }

    fn fields(&mut self, schema: &'a Map<String, Value>, value: &Value, place: &str) -> Described {
        let mut described = Described::new();
        for (name, value) in value.as_object().into_iter().flatten() {
            let own = schema.get("properties").and_then(|properties| properties.get(name));
            if let Some(schema) = own.or_else(|| schema.get("additionalProperties")) {
                self.whole(schema, value, &format!("{place}/{name}"));
                described.insert(name.clone());
            }
        }
        described
    }

    /// Checks the alternatives of `oneOf` and `anyOf`.
    fn branches(
        &mut self,
        keyword: &str,
        branches: &'a Value,
        value: &Value,
        place: &str,
    ) -> Described {
        let (mut described, mut matches) = (Described::new(), 0);
        let mut nearest: Option<Vec<String>> = None;
        for branch in branches.as_array().into_iter().flatten() {
            let mut check = Check { root: self.root, violations: Vec::new() };
            let fields = check.part(branch, value, place);
            if check.violations.is_empty() {
                matches += 1;
                described.extend(fields);
            }
            if nearest.as_ref().is_none_or(|nearest| check.violations.len() < nearest.len()) {
                nearest = Some(check.violations);
            }
        }
        if matches == 0 || keyword == "oneOf" && matches > 1 {
            let nearest = nearest.unwrap_or_default().join("\n  ");
            self.violation(
                place,
                format!("{matches} matches of {keyword}, the nearest\n  {nearest}"),
            );
        }
        described
    }
}

/// Whether `value` fulfils a keyword that has no subschemas.
fn holds(keyword: &str, argument: &Value, value: &Value) -> bool {
    let number = |holds: fn(f64, f64) -> bool| match (value.as_f64(), argument.as_f64()) {
        (Some(value), Some(limit)) => holds(value, limit),
        _ => !value.is_number(),
    };
    let count = |holds: fn(u64, u64) -> bool| match (value.as_array(), argument.as_u64()) {
        (Some(items), Some(limit)) => holds(items.len() as u64, limit),
        _ => !value.is_array(),
    };
    match (keyword, argument) {
        ("type", Value::Array(types)) => types.iter().any(|one| is_of_type(one, value)),
        ("type", one) => is_of_type(one, value),
        ("const", constant) => value == constant,
        ("enum", constants) => {
            constants.as_array().is_some_and(|constants| constants.contains(value))
        }
        ("minimum", _) => number(|value, limit| value >= limit),
        ("maximum", _) => number(|value, limit| value <= limit),
        ("minItems", _) => count(|count, limit| count >= limit),
        ("maxItems", _) => count(|count, limit| count <= limit),
        _ => panic!("this validator does not know the keyword {keyword}"),
    }
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => panic!("no such type: {name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "bytes": { "type": "integer", "minimum": 0 },
                "facts": { "type": "array", "items": { "$ref": "#/$defs/fact" } },
                "counts": { "type": "object", "additionalProperties": { "type": "integer" } },
            },
            "required": ["bytes"],
            "$defs": { "fact": {
                "oneOf": [
                    {
                        "properties": { "code": { "const": "a" }, "n": { "type": "number" } },
                        "required": ["code", "n"],
                    },
                    { "properties": { "code": { "const": "b" } }, "required": ["code"] },
                ],
            } },
        })
    }

    #[test]
    fn an_instance_may_omit_only_optional_fields() {
        let full = json!({
            "bytes": 7,
            "facts": [{ "code": "a", "n": 0.5 }, { "code": "b" }],
            "counts": { "x": 1, "y": 2 },
        });
        assert_eq!(violations(&schema(), &full), [""; 0]);
        assert_eq!(violations(&schema(), &json!({ "bytes": 7 })), [""; 0]);
        assert_eq!(violations(&schema(), &json!({})), ["/: the field bytes is missing"]);
    }

    #[test]
    fn wrong_values_and_unknown_fields_are_violations() {
        let of = |value| violations(&schema(), &value);
        assert_eq!(of(json!({ "bytes": -1 })), ["/bytes: -1 is not minimum 0"]);
        assert_eq!(of(json!({ "bytes": 0.5 })), [r#"/bytes: 0.5 is not type "integer""#]);
        assert_eq!(of(json!({ "bytes": 1, "x": 2 })), ["/: the schema has no field x"]);
        let counts = json!({ "bytes": 1, "counts": { "x": "1" } });
        assert_eq!(of(counts), [r#"/counts/x: "1" is not type "integer""#]);
        let fact = |fact| of(json!({ "bytes": 1, "facts": [fact] }));
        assert_eq!(fact(json!({ "code": "b", "n": 1 })), ["/facts/0: the schema has no field n"]);
        assert!(fact(json!({ "code": "c" }))[0].starts_with("/facts/0: 0 matches of oneOf"));
    }

    #[test]
    #[should_panic(expected = "does not know the keyword pattern")]
    fn an_unknown_keyword_is_refused() {
        violations(&json!({ "pattern": "a" }), &json!("a"));
    }
}
