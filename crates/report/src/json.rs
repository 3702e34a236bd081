//! One JSON object, as `--json` prints it.

use hugepilot_record::debloat::DebloatReport;
use hugepilot_record::doctor::DoctorReport;
use hugepilot_record::shrink::ShrinkReport;
use hugepilot_record::status::StatusReport;
use hugepilot_record::tune::TuneReport;
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
}

impl JsonReport for DebloatReport {}
impl JsonReport for DoctorReport {}
impl JsonReport for ShrinkReport {}
impl JsonReport for StatusReport {}
impl JsonReport for TuneReport {}

/// `record` as indented JSON with a newline at its end. Fields keep their order. A record with a
/// number beyond 64 bits, which [`Value`] cannot hold, has no sentences.
///
/// # Panics
/// Never: records hold only numbers, texts, lists and maps with text keys.
pub fn json<R: JsonReport>(record: &R) -> String {
    // A copy of a record with 100,000 mappings takes 200 MiB.
    let explained = R::EXPLAINS.then(|| serde_json::to_value(record).ok()).flatten();
    let text = match explained {
        Some(mut value) => {
            record.explain(&mut value);
            serde_json::to_string_pretty(&value)
        }
        None => serde_json::to_string_pretty(record),
    };
    let mut text = text.expect("records are plain data");
    text.push('\n');
    text
}
