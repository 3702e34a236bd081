//! Fields of a JSON Schema as a list, for readers.

use serde_json::{Map, Value};

/// Field of an object, or value of a type that is one of several values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    /// Type of the object, and the `code` of its variant in parentheses; empty for the root.
    pub owner: String,
    /// Name of the field; empty for a value.
    pub name: String,
    /// JSON type, name of another type, or the value.
    pub kind: String,
    /// Description.
    pub about: String,
}

/// Lists the fields of a schema from [`super::json_schema`]: those of the root, then those of each
/// type that it uses, sorted by type.
pub fn fields(schema: &Value) -> Vec<Field> {
    let mut found = Vec::new();
    add_type("", schema, &mut found);
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        add_type(name, definition, &mut found);
    }
    found
}

fn add_type(owner: &str, schema: &Value, found: &mut Vec<Field>) {
    let mut push = |name: &str, kind: String, about: &Value| {
        let [owner, name] = [owner, name].map(str::to_owned);
        found.push(Field { owner, name, kind, about: about.as_str().unwrap_or_default().into() });
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        push(name, kind(field), &field["description"]);
    }
    let branches = ["oneOf", "anyOf"].iter().filter_map(|&key| schema[key].as_array()).flatten();
    for branch in branches.clone().filter(|branch| !branch["properties"].is_object()) {
        push("", kind(branch), &branch["description"]);
    }
    if schema["properties"].is_null() && branches.clone().next().is_none() {
        push("", kind(schema), &schema["description"]);
    }
    for branch in branches.filter(|branch| branch["properties"].is_object()) {
        let properties = branch["properties"].as_object();
        let tag = properties.into_iter().flat_map(Map::values).find_map(|of| of["const"].as_str());
        add_type(&format!("{owner}({})", tag.unwrap_or_default()), branch, found);
    }
}

/// Names the type of a value: `integer`, `[Bytes]` for an array, `"gain"` for a fixed text.
fn kind(schema: &Value) -> String {
    let of_type = |name: &str| match name {
        "array" if schema["items"].is_object() => format!("[{}]", kind(&schema["items"])),
        "array" => {
            let items = schema["prefixItems"].as_array().into_iter().flatten().map(kind);
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        "object" if schema["additionalProperties"].is_object() => {
            format!("{{name: {}}}", kind(&schema["additionalProperties"]))
        }
        other => other.to_owned(),
    };
    let target = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next());
    let parts: Vec<String> = match (&schema["const"], &schema["enum"], &schema["type"]) {
        (Value::String(_), ..) => vec![schema["const"].to_string()],
        (_, Value::Array(values), _) => values.iter().map(Value::to_string).collect(),
        (.., Value::String(name)) => vec![of_type(name)],
        (.., Value::Array(names)) => names.iter().filter_map(Value::as_str).map(of_type).collect(),
        _ => target.map(str::to_owned).into_iter().collect(),
    };
    let branches = ["anyOf", "oneOf"].iter().filter_map(|&key| schema[key].as_array()).flatten();
    let all: Vec<String> = parts.into_iter().chain(branches.map(kind)).collect();
    if all.is_empty() { "any".to_owned() } else { all.join(" | ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_value_and_variant_is_listed_with_its_type() {
        let schema = json!({
            "properties": {
                "schema": { "const": "a/1", "type": "string" },
                "share": { "type": ["number", "null"], "description": "A share." },
                "causes": { "type": "array", "items": { "$ref": "#/$defs/Cause" } },
                "at": { "anyOf": [{ "$ref": "#/$defs/Bytes" }, { "type": "null" }] },
                "by": { "type": "object", "additionalProperties": { "type": "integer" } },
                "range": { "type": "array", "prefixItems": [{ "type": "number" }, {}] },
            },
            "$defs": {
                "Bytes": { "type": "integer", "description": "Bytes." },
                "Cause": { "oneOf": [
                    { "properties": {
                        "code": { "const": "low" },
                        "of": { "$ref": "#/$defs/Bytes" },
                    } },
                    { "const": "none", "description": "Nothing." },
                ] },
            },
        });
        let listed: Vec<String> = fields(&schema)
            .into_iter()
            .map(|field| format!("{}.{}: {} {}", field.owner, field.name, field.kind, field.about))
            .collect();
        let expected = [
            ".at: Bytes | null ",
            ".by: {name: integer} ",
            ".causes: [Cause] ",
            ".range: [number, any] ",
            ".schema: \"a/1\" ",
            ".share: number | null A share.",
            "Bytes.: integer Bytes.",
            "Cause.: \"none\" Nothing.",
            "Cause(low).code: \"low\" ",
            "Cause(low).of: Bytes ",
        ];
        let sorted = |mut lines: Vec<String>| {
            lines.sort();
            lines
        };
        assert_eq!(sorted(listed), sorted(expected.map(str::to_owned).to_vec()));
    }
}
