//! Fields of a JSON Schema as a list, for readers.

use serde_json::Value;

/// Field of an object, value of a type that is one of several, or the meaning of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    /// Type of the object, and its variant in parentheses; empty for the root.
    pub owner: String,
    /// Name of the field, with `?` if it may be absent; empty for a value, and for the owner.
    pub name: String,
    /// JSON type, name of another type, or the value; empty for the meaning of the owner.
    pub kind: String,
    /// Description.
    pub about: String,
}

/// Lists the fields of a schema from [`super::json_schema`]: those of the root, then those of each
/// type that it uses, sorted by type. A field without a description has that of its type.
pub fn fields(schema: &Value) -> Vec<Field> {
    let mut list = List { root: schema, found: Vec::new() };
    list.add("", schema);
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        list.add(name, definition);
    }
    list.found
}

struct List<'a> {
    root: &'a Value,
    found: Vec<Field>,
}

impl List<'_> {
    fn push(&mut self, owner: &str, name: &str, kind: String, schema: &Value) {
        let mut parts =
            std::iter::once(schema).chain(schema["anyOf"].as_array().into_iter().flatten());
        let target = parts.find_map(|part| part["$ref"].as_str());
        let target = target.and_then(|target| self.root.pointer(&target[1..]));
        let own = schema["description"].as_str();
        let about = own.or_else(|| target?["description"].as_str()).unwrap_or_default();
        let [owner, name, about] = [owner, name, about].map(str::to_owned);
        self.found.push(Field { owner, name, kind, about });
    }

    fn add(&mut self, owner: &str, schema: &Value) {
        let branches = ["oneOf", "anyOf"].iter().filter_map(|&key| schema[key].as_array());
        let branches: Vec<&Value> = branches.flatten().collect();
        let is_object = schema["properties"].is_object();
        if is_object || !branches.is_empty() {
            self.push(owner, "", String::new(), schema);
        } else {
            self.push(owner, "", kind(schema), schema);
        }
        if let (true, Some(target)) = (is_object, target(schema)) {
            self.push(owner, "", format!("the fields of {target}"), &Value::Null);
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let mut required = schema["required"].as_array().into_iter().flatten();
            let may_be_absent = !required.any(|one| one.as_str() == Some(name));
            let shown = format!("{name}{}", if may_be_absent { "?" } else { "" });
            self.push(owner, &shown, kind(field), field);
            if field["properties"].is_object() {
                self.add(&format!("{owner}.{name}"), field);
            }
        }
        let (objects, values): (Vec<&Value>, Vec<&Value>) =
            branches.into_iter().partition(|branch| branch["properties"].is_object());
        for value in values {
            self.push(owner, "", kind(value), value);
        }
        for (place, branch) in (1..).zip(objects) {
            self.add(&format!("{owner}({})", variant(branch, place)), branch);
        }
    }
}

/// Names a variant by its tag, its first field or its place among the variants.
fn variant(branch: &Value, place: usize) -> String {
    let fields = || branch["properties"].as_object().into_iter().flatten();
    let mut own = fields().filter(|(name, _)| *name != "schema");
    let tag = own.find_map(|(_, field)| field["const"].as_str());
    let first = || fields().map(|(name, _)| &**name).find(|name| *name != "schema");
    tag.or_else(first).map_or_else(|| place.to_string(), str::to_owned)
}

/// Name of the type that `$ref` names.
fn target(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
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
    let parts: Vec<String> = match (&schema["const"], &schema["enum"], &schema["type"]) {
        (Value::String(_), ..) => vec![schema["const"].to_string()],
        (_, Value::Array(values), _) => values.iter().map(Value::to_string).collect(),
        (.., Value::String(name)) => vec![of_type(name)],
        (.., Value::Array(names)) => names.iter().filter_map(Value::as_str).map(of_type).collect(),
        _ => target(schema).map(str::to_owned).into_iter().collect(),
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
    fn each_field_value_and_variant_is_listed_with_its_type_and_meaning() {
        let schema = json!({
            "description": "All.",
            "required": ["schema", "causes"],
            "properties": {
                "schema": { "const": "a/1", "type": "string" },
                "share": { "type": ["number", "null"], "description": "A share." },
                "causes": { "type": "array", "items": { "$ref": "#/$defs/Cause" } },
                "at": { "anyOf": [{ "$ref": "#/$defs/Bytes" }, { "type": "null" }] },
                "size": { "$ref": "#/$defs/Bytes" },
                "by": { "type": "object", "additionalProperties": { "type": "integer" } },
                "range": { "type": "array", "prefixItems": [{ "type": "number" }, {}] },
                "inner": { "type": "object", "properties": { "x": { "type": "integer" } } },
            },
            "$defs": {
                "Bytes": { "type": "integer", "description": "Bytes." },
                "Cause": { "description": "A cause.", "oneOf": [
                    { "description": "Too low.", "$ref": "#/$defs/Low", "properties": {
                        "schema": { "const": "a/1" },
                        "code": { "const": "low" },
                    } },
                    { "properties": { "schema": { "const": "a/1" }, "of": {} } },
                    { "const": "none", "description": "Nothing." },
                ] },
            },
        });
        let mut listed: Vec<String> = fields(&schema)
            .into_iter()
            .map(|field| format!("{}.{}: {} {}", field.owner, field.name, field.kind, field.about))
            .collect();
        let mut expected = [
            ".:  All.",
            ".schema: \"a/1\" ",
            ".share?: number | null A share.",
            ".causes: [Cause] ",
            ".at?: Bytes | null Bytes.",
            ".size?: Bytes Bytes.",
            ".by?: {name: integer} ",
            ".range?: [number, any] ",
            ".inner?: object ",
            ".inner.:  ",
            ".inner.x?: integer ",
            "Bytes.: integer Bytes.",
            "Cause.:  A cause.",
            "Cause.: \"none\" Nothing.",
            "Cause(low).:  Too low.",
            "Cause(low).: the fields of Low ",
            "Cause(low).schema?: \"a/1\" ",
            "Cause(low).code?: \"low\" ",
            "Cause(of).:  ",
            "Cause(of).schema?: \"a/1\" ",
            "Cause(of).of?: any ",
        ]
        .map(str::to_owned);
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
    }
}
