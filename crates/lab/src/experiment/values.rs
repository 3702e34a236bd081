//! Values in the output of a command.

use hugepilot_stats::median;
use serde_json::Value;

/// The JSON objects in the output of a program, among other lines: each begins a line.
pub fn objects(output: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut rest = output;
    while let Some(at) = object_start(rest) {
        rest = &rest[at..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                rest = &rest[values.byte_offset()..];
                found.push(value);
            }
            _ => rest = &rest[1..],
        }
    }
    found
}

/// Offset of the first `{` that begins a line.
fn object_start(text: &str) -> Option<usize> {
    if text.starts_with('{') { Some(0) } else { text.find("\n{").map(|at| at + 1) }
}

/// The last object with this schema.
pub fn with_schema<'a>(objects: &'a [Value], schema: &str) -> Option<&'a Value> {
    objects.iter().rev().find(|object| object["schema"] == schema)
}

/// The number at `place`: a pointer, in which `*` stands for all elements, behind `sum`, `median`
/// or `settled`, which makes one number of several: the sum, the median, or the median of the
/// second half. `None` if there is none.
pub fn number(object: &Value, place: &str) -> Option<f64> {
    let (reduce, pointer) = place.split_once(' ').unwrap_or(("median", place));
    let mut values = Vec::new();
    collect(object, pointer.strip_prefix('/')?, &mut values);
    if values.is_empty() {
        return None;
    }
    match reduce {
        "sum" => Some(values.iter().sum()),
        "settled" => median(values[values.len() / 2..].iter().copied()),
        _ => median(values.iter().copied()),
    }
}

fn collect(value: &Value, path: &str, into: &mut Vec<f64>) {
    let (key, rest) = path.split_once('/').map_or((path, None), |(key, rest)| (key, Some(rest)));
    let mut child = |child: &Value| match rest {
        Some(rest) => collect(child, rest, into),
        None => into.extend(child.as_f64()),
    };
    match (value, key) {
        (Value::Array(all), "*") => all.iter().for_each(child),
        (Value::Object(all), "*") => all.values().for_each(child),
        (Value::Array(all), index) => {
            index.parse().ok().and_then(|index: usize| all.get(index)).into_iter().for_each(child);
        }
        (Value::Object(all), key) => all.get(key).into_iter().for_each(&mut child),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_found_among_other_lines() {
        let output = "a note {\"x\": 1}\n{\n  \"schema\": \"a\"\n}\nprogress\n{ broken\n\
                      {\"schema\":\"b\"}{\"c\":2}\n";
        let found = objects(output);
        assert_eq!(found, [json!({"schema": "a"}), json!({"schema": "b"}), json!({"c": 2})]);
        assert_eq!(with_schema(&found, "b"), Some(&json!({"schema": "b"})));
        assert_eq!(with_schema(&found, "d"), None);
    }

    #[test]
    fn a_place_is_one_number() {
        let object = json!({"a": 1.5, "list": [{"x": 8}, {"x": 4}, {"x": 1}, {"x": 2}], "t": null});
        let at = |place| number(&object, place);
        assert_eq!((at("/a"), at("/list/1/x")), (Some(1.5), Some(4.0)));
        assert_eq!((at("sum /list/*/x"), at("median /list/*/x")), (Some(15.0), Some(3.0)));
        assert_eq!(at("settled /list/*/x"), Some(1.5));
        assert_eq!((at("/t"), at("/none"), at("/list/9/x"), at("a")), (None, None, None, None));
    }
}
