//! JSON of records, as `--json` prints it.

use serde::Serialize;
use serde_json::Value;

/// A record that `--json` prints.
pub trait JsonReport: Serialize {
    /// Whether [`JsonReport::explain`] adds anything. Without it, [`json`] needs no copy.
    const EXPLAINS: bool = false;
    /// Adds sentences to the facts of the record, already serialised in `json`.
    fn explain(&self, json: &mut Value) {
        let _ = json;
    }
    /// The record with its sentences; `None` if it has none.
    fn explained(&self) -> Option<Value> {
        // A copy of a record with 100,000 mappings takes 200 MiB.
        let mut value = Self::EXPLAINS.then(|| serde_json::to_value(self).ok()).flatten()?;
        self.explain(&mut value);
        Some(value)
    }
    /// The record as indented JSON, with its sentences.
    ///
    /// # Errors
    /// Never for a record of plain data.
    fn pretty(&self) -> serde_json::Result<String> {
        match self.explained() {
            Some(value) => serde_json::to_string_pretty(&value),
            None => serde_json::to_string_pretty(self),
        }
    }
    /// The record as JSON in one line, with its sentences.
    ///
    /// # Errors
    /// Never for a record of plain data.
    fn line(&self) -> serde_json::Result<String> {
        match self.explained() {
            Some(value) => serde_json::to_string(&value),
            None => serde_json::to_string(self),
        }
    }
}

/// `records` as NDJSON: a line for each, as [`json`] has it.
///
/// # Panics
/// Never, as [`json`].
pub fn json_lines<R: JsonReport>(records: &[R]) -> String {
    let line = |record: &R| record.line().expect("records are plain data") + "\n";
    records.iter().map(line).collect()
}

/// `record` as indented JSON with a newline at its end. Fields keep their order. A record with a
/// number beyond 64 bits, which [`Value`] cannot hold, has no sentences.
///
/// # Panics
/// Never: records hold only numbers, texts, lists and maps with text keys.
pub fn json<R: JsonReport>(record: &R) -> String {
    let mut text = record.pretty().expect("records are plain data");
    text.push('\n');
    text
}
