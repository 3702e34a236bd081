//! One JSON object, as `--json` prints it.

use serde::Serialize;

/// `record` as indented JSON with a newline at its end.
///
/// # Panics
/// Never: records hold only numbers, texts, lists and maps with text keys.
pub fn json(record: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(record).expect("records are plain data");
    text.push('\n');
    text
}
