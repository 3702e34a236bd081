//! JSON Schemas (draft 2020-12) of printed records.
//!
//! Fields and descriptions come from the records and their doc comments. This module adds what
//! printing adds: the value of `schema`, and the sentences beside each `code`.

mod fields;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

pub use fields::{Field, fields};

/// Shape of an output: a record type.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    make: Make,
    /// Field and its value that distinguish this shape from others of the same output.
    constant: Option<(&'static str, &'static str)>,
    /// Fields that printing adds to the record, and their types.
    added: [Option<(&'static str, Make)>; 3],
}

type Make = fn(&mut SchemaGenerator) -> Schema;

impl Shape {
    /// Shape of records of type `R`.
    pub const fn of<R: JsonSchema>() -> Self {
        Self { make: R::json_schema, constant: None, added: [None; 3] }
    }

    /// Shape of records of type `R` with a fixed `field`.
    pub const fn with<R: JsonSchema>(field: &'static str, value: &'static str) -> Self {
        Self { constant: Some((field, value)), ..Self::of::<R>() }
    }

    /// This shape with one more `field` of type `V`, which printing adds.
    pub const fn and<V: JsonSchema>(self, field: &'static str) -> Self {
        let added = Some((field, SchemaGenerator::subschema_for::<V> as Make));
        let added = match self.added {
            [None, ..] => [added, None, None],
            [first, None, _] => [first, added, None],
            [first, second, _] => [first, second, added],
        };
        Self { added, ..self }
    }

    fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        let mut schema = (self.make)(generator);
        if let Some((field, value)) = self.constant {
            let _ = fix(&mut schema, field, value);
        }
        for (field, make) in self.added.into_iter().flatten() {
            add(&mut schema, field, make(generator).to_value());
        }
        schema
    }
}

/// JSON Schema of an output of one or more shapes. `id` is the value of its field `schema`.
pub fn json_schema(id: &str, description: &str, shapes: &[Shape]) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let meta_schema = settings.meta_schema.clone();
    let mut generator = settings.into_generator();
    let shapes: Vec<Schema> = shapes.iter().map(|shape| shape.schema(&mut generator)).collect();
    let mut root = match <[Schema; 1]>::try_from(shapes) {
        Ok([shape]) => shape,
        Err(shapes) => schemars::json_schema!({ "oneOf": shapes }),
    };
    root.insert("$schema".to_owned(), json!(meta_schema));
    root.insert("title".to_owned(), json!(id));
    root.insert("description".to_owned(), json!(description));
    let definitions = generator.take_definitions(false);
    if !definitions.is_empty() {
        root.insert("$defs".to_owned(), definitions.into());
    }
    RecursiveTransform(|schema: &mut Schema| {
        if let Some(field) = fix(schema, "schema", id) {
            field.insert("description".to_owned(), json!("Name and version of this format."));
        }
        add_sentences(schema);
        simplify(schema);
    })
    .transform(&mut root);
    // Serialised, keywords are in their customary order.
    serde_json::to_value(&root).unwrap_or_default()
}

fn properties(schema: &mut Schema) -> Option<&mut Map<String, Value>> {
    schema.get_mut("properties")?.as_object_mut()
}

/// Adds a required `field` to an object.
fn add(schema: &mut Schema, field: &str, value: Value) {
    properties(schema).and_then(|all| all.insert(field.to_owned(), value));
    let required = schema.get_mut("required").and_then(Value::as_array_mut);
    required.into_iter().for_each(|names| names.push(json!(field)));
}

/// Restricts the text `field` of an object to `value`, and returns the field's schema.
fn fix<'a>(schema: &'a mut Schema, field: &str, value: &str) -> Option<&'a mut Map<String, Value>> {
    let field = properties(schema)?.get_mut(field)?.as_object_mut()?;
    let is_text = field.get("type") == Some(&json!("string"));
    is_text.then(|| field.insert("const".to_owned(), json!(value)));
    is_text.then_some(field)
}

/// Adds the sentences of [`crate::Sentence`] to an object with a `code`, and to one whose type has
/// the attribute `#[schemars(extend("sentence" = true))]`.
fn add_sentences(schema: &mut Schema) {
    let is_marked = schema.remove("sentence").is_some();
    let Some(properties) = properties(schema) else { return };
    let has_code = properties.get("code").is_some_and(|code| code.get("const").is_some());
    if !is_marked && !has_code {
        return;
    }
    let text = "One sentence; absent if an enclosing object has one.";
    let help = "Suggested actions, if any; the likeliest first.";
    properties.insert("text".to_owned(), json!({ "description": text, "type": "string" }));
    let items = json!({ "type": "string" });
    let help = json!({ "description": help, "type": "array", "items": items });
    properties.insert("help".to_owned(), help);
}

/// Makes descriptions of doc comments, and drops keywords that say nothing of outputs: `default`,
/// and `format`, whose values are those of Rust's types.
fn simplify(schema: &mut Schema) {
    schema.remove("default");
    schema.remove("format");
    let Some(Value::String(description)) = schema.get_mut("description") else { return };
    let text = description.replace("[`", "`").replace("`]", "`").replace("`None`", "`null`");
    let paragraphs: Vec<_> =
        text.split("\n\n").map(|lines| lines.split('\n').collect::<Vec<_>>().join(" ")).collect();
    *description = paragraphs.join("\n\n");
}

#[cfg(test)]
mod tests {
    #![expect(dead_code, reason = "the schemas of these types are made, and no values")]

    use super::*;

    /// A record.
    #[derive(JsonSchema)]
    struct Record {
        schema: String,
        /// `None` without
        /// [`Fact`].
        format: Option<u32>,
        fact: Fact,
    }

    #[derive(JsonSchema)]
    #[serde(tag = "code", rename_all = "snake_case")]
    enum Fact {
        FewSamples { samples: u64 },
    }

    #[derive(JsonSchema)]
    #[schemars(extend("sentence" = true))]
    struct Other {
        schema: String,
        kind: String,
    }

    #[test]
    fn a_schema_has_the_sentences_and_the_value_of_the_field_schema() {
        let schema = json_schema("hugepilot.x/1", "A test.", &[Shape::of::<Record>()]);
        let expected = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "hugepilot.x/1",
            "description": "A test.",
            "type": "object",
            "properties": {
                "schema": {
                    "description": "Name and version of this format.",
                    "type": "string",
                    "const": "hugepilot.x/1",
                },
                "format": {
                    "description": "`null` without `Fact`.",
                    "type": ["integer", "null"],
                    "minimum": 0,
                },
                "fact": { "$ref": "#/$defs/Fact" },
            },
            "required": ["schema", "format", "fact"],
            "$defs": {
                "Fact": {
                    "oneOf": [{
                        "type": "object",
                        "properties": {
                            "samples": { "type": "integer", "minimum": 0 },
                            "code": { "type": "string", "const": "few_samples" },
                            "text": {
                                "description":
                                    "One sentence; absent if an enclosing object has one.",
                                "type": "string",
                            },
                            "help": {
                                "description":
                                    "Suggested actions, if any; the likeliest first.",
                                "type": "array",
                                "items": { "type": "string" },
                            },
                        },
                        "required": ["code", "samples"],
                    }],
                },
            },
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn shapes_of_one_output_are_alternatives() {
        let other = Shape::with::<Other>("kind", "other").and::<Fact>("fact");
        let shapes = [Shape::of::<Record>(), other];
        let schema = json_schema("hugepilot.x/1", "A test.", &shapes);
        let ids = [0, 1].map(|n| &schema["oneOf"][n]["properties"]["schema"]["const"]);
        assert_eq!(ids, ["hugepilot.x/1"; 2]);
        assert_eq!(schema["oneOf"][1]["properties"]["kind"]["const"], "other");
        assert_eq!(schema["oneOf"][1]["required"], json!(["schema", "kind", "fact"]));
        assert_eq!(schema["oneOf"][1]["properties"]["text"]["type"], "string");
        assert_eq!(schema["oneOf"][1]["sentence"], Value::Null);
        assert_eq!(schema["$defs"].as_object().unwrap().len(), 1);
    }
}
