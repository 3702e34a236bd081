//! Values in the output of a command.

use std::ops::Range;

use hugepilot_stats::median;
use regex::Regex;
use serde_json::Value;

/// Printed text of a command that ended, and its cost.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// Its stdout and stderr.
    pub text: String,
    /// Bytes of the text that it printed while acts ran; none without acts.
    pub acted: Range<usize>,
    /// Time from start to end, in seconds.
    pub seconds: f64,
    /// Largest resident memory of one of its processes, in bytes.
    pub peak_bytes: f64,
}

impl Printed {
    /// The number at a place of [`is_printed`]; `None` if there is none.
    ///
    /// `wall` is the time, `peak` the peak memory. `match REGEX` is the median of the first group
    /// in all matches. `settled column N` is the median of the second half of the lines of numbers
    /// after the acts, `during column N` that of the lines while acts ran; without acts, all lines
    /// count.
    pub fn number(&self, place: &str) -> Option<f64> {
        match place.split_once(' ').unwrap_or((place, "")) {
            ("wall", _) => Some(self.seconds),
            ("peak", _) => Some(self.peak_bytes),
            ("match", pattern) => {
                let pattern = Regex::new(pattern).ok()?;
                let found = pattern.captures_iter(&self.text);
                median(found.filter_map(|groups| groups.get(1)?.as_str().parse().ok()))
            }
            ("during", column) if !self.acted.is_empty() => {
                median(numbers(self.text.get(self.acted.clone())?, column)?)
            }
            ("during", column) => median(numbers(&self.text, column)?),
            (_, column) => {
                let lines = numbers(self.text.get(self.acted.end..)?, column)?;
                median(lines[lines.len() / 2..].iter().copied())
            }
        }
    }
}

/// Whether a place is one of [`Printed::number`].
pub fn is_printed(place: &str) -> bool {
    let word = place.split(' ').next();
    ["wall", "peak"].contains(&place) || word == Some("match") || place.contains(" column ")
}

/// Checks a place.
///
/// # Errors
/// The cause.
pub fn check(place: &str) -> Result<(), String> {
    let wrong = |cause: &str| Err(format!("the place {place:?} {cause}"));
    match place.split_once(' ') {
        Some(("match", pattern)) => match Regex::new(pattern) {
            Ok(pattern) if pattern.captures_len() == 2 => Ok(()),
            Ok(_) => wrong("has not one group"),
            Err(error) => wrong(&format!("is not a regular expression: {error}")),
        },
        Some(("settled" | "during", column)) if !column.starts_with('/') => {
            index(column).map_or_else(|| wrong("names no column from 1"), |_| Ok(()))
        }
        _ if is_printed(place) && place.contains(' ') => wrong("is not `settled` or `during`"),
        _ => Ok(()),
    }
}

/// Index of `column N`, which counts from 1.
fn index(column: &str) -> Option<usize> {
    column.strip_prefix("column ")?.parse::<usize>().ok()?.checked_sub(1)
}

/// The numbers of a column in the lines of numbers.
fn numbers(text: &str, column: &str) -> Option<Vec<f64>> {
    let index = index(column)?;
    let line = |line: &str| -> Option<f64> {
        let words = line.split_whitespace().map(|word| word.parse().ok());
        words.collect::<Option<Vec<f64>>>()?.get(index).copied()
    };
    // The first line may be a part of one.
    Some(text.lines().filter_map(line).collect())
}

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
/// second half. `A over B` is the ratio of two places. `None` if there is none.
pub fn number(object: &Value, place: &str) -> Option<f64> {
    if let Some((part, whole)) = place.split_once(" over ") {
        return Some(number(object, part)? / number(object, whole)?);
    }
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
    fn numbers_are_read_from_lines_before_and_after_acts() {
        let text = "ready 7\n0.1 9\n0.2 9\n0.3 5\n0.4 5\n0.5 6\n0.6 1\n0.7 2\n0.8 8\n{\"a\": 1}\n";
        let begun = text.find("0.3").unwrap();
        let ended = text.find("0.5").unwrap();
        let mut printed =
            Printed { text: text.to_owned(), acted: begun..ended, ..Printed::default() };
        (printed.seconds, printed.peak_bytes) = (2.5, 4096.0);
        assert_eq!(printed.number("during column 2"), Some(5.0));
        assert_eq!(printed.number("settled column 2"), Some(5.0));
        assert_eq!(printed.number("settled column 3"), None);
        assert_eq!(printed.number("match (?m)^0.[12] (.*)$"), Some(9.0));
        assert_eq!((printed.number("wall"), printed.number("peak")), (Some(2.5), Some(4096.0)));
        printed.acted = 0..0;
        assert_eq!(printed.number("during column 2"), Some(5.5));
        assert_eq!(printed.number("settled column 2"), Some(4.0));
        for wrong in ["match (", "match x", "settled column 0", "sum column 2", "during column"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
        for right in ["/a/b", "sum /a/*", "settled /a/*", "wall", "match (x)", "during column 1"] {
            assert!(check(right).is_ok(), "{right}");
        }
    }

    #[test]
    fn a_place_is_one_number() {
        let object = json!({"a": 1.5, "list": [{"x": 8}, {"x": 4}, {"x": 1}, {"x": 2}], "t": null});
        let at = |place| number(&object, place);
        assert_eq!((at("/a"), at("/list/1/x")), (Some(1.5), Some(4.0)));
        assert_eq!((at("sum /list/*/x"), at("median /list/*/x")), (Some(15.0), Some(3.0)));
        assert_eq!(at("settled /list/*/x"), Some(1.5));
        assert_eq!((at("sum /list/*/x over /a"), at("/a over /none")), (Some(10.0), None));
        assert_eq!((at("/t"), at("/none"), at("/list/9/x"), at("a")), (None, None, None, None));
    }
}
