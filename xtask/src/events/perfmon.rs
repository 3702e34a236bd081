//! Event files of intel/perfmon: JSON, a file for each design.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Events;

/// Codes of events with a counter of their own: the kernel has no other code for them, while
/// perfmon has pseudo-codes.
const FIXED: [(&str, u64); 3] = [
    ("INST_RETIRED.ANY", 0xc0),
    ("CPU_CLK_UNHALTED.THREAD", 0x3c),
    ("CPU_CLK_UNHALTED.THREAD_ANY", 0x20_003c),
];
/// Registers of load latency, and of responses from outside the core: not events by themselves,
/// but a threshold, and a mask of requests.
const OTHER_REGISTERS: [u64; 3] = [0x3f6, 0x1a6, 0x1a7];

/// Unit of the memory controllers, in upper or lower case.
const MEMORY: &str = "imc";
/// Code of the fixed counter of such a unit. Source: Linux, `UNCORE_FIXED_EVENT`.
const FIXED_OF_UNIT: u64 = 0xff;

/// Events of a file.
pub(super) struct Parsed {
    pub(super) version: String,
    pub(super) events: Events,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    header: Header,
    events: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Header {
    version: String,
}

/// Numbers are texts: `0x0F`, `1`, or several for an event with several codes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    event_name: String,
    event_code: String,
    #[serde(rename = "UMask")]
    unit_mask: String,
    #[serde(default)]
    edge_detect: String,
    #[serde(default)]
    any_thread: String,
    #[serde(default)]
    invert: String,
    #[serde(default)]
    counter_mask: String,
    #[serde(default, rename = "MSRIndex")]
    register: String,
    #[serde(default, rename = "MSRValue")]
    register_value: String,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    counter: String,
    #[serde(default)]
    counter_type: String,
}

/// Parses a file.
///
/// # Errors
/// If it is not a file of perfmon.
pub(super) fn parse(text: &str) -> Result<Parsed> {
    let file: File = serde_json::from_str(text)?;
    let mut events = Events::new();
    for event in file.events {
        let name = event.event_name.clone();
        if let Some(configs) = configs(&event).with_context(|| name.clone())? {
            events.insert(name, configs);
        }
    }
    Ok(Parsed { version: file.header.version, events })
}

/// Parses the events of the memory controllers in a file of units outside the cores: code and unit
/// mask of each. The kernel has another unit for the counters that always run.
///
/// # Errors
/// As [`parse`].
pub(super) fn parse_memory(text: &str) -> Result<Parsed> {
    let file: File = serde_json::from_str(text)?;
    let of_memory =
        |event: &Event| event.unit.eq_ignore_ascii_case(MEMORY) && event.counter_type != "FREERUN";
    let mut events = Events::new();
    for event in file.events.into_iter().filter(of_memory) {
        let codes = match &event.counter[..] {
            "FIXED" => [FIXED_OF_UNIT, 0],
            _ => [first(&event.event_code)?, first(&event.unit_mask)?],
        };
        events.insert(event.event_name, codes);
    }
    Ok(Parsed { version: file.header.version, events })
}

/// Returns the configs of an event; `None` if its name alone does not determine them.
///
/// Source of the bits: Intel SDM, volume 3, `IA32_PERFEVTSELx`.
fn configs(event: &Event) -> Result<Option<[u64; 2]>> {
    let has_codes = |text: &str| text.contains(',');
    if has_codes(&event.event_code) || OTHER_REGISTERS.contains(&first(&event.register)?) {
        return Ok(None);
    }
    if let Some((_, config)) = FIXED.iter().find(|(name, _)| *name == event.event_name) {
        return Ok(Some([*config, 0]));
    }
    let config = first(&event.event_code)?
        | first(&event.unit_mask)? << 8
        | first(&event.edge_detect)? << 18
        | first(&event.any_thread)? << 21
        | first(&event.invert)? << 23
        | first(&event.counter_mask)? << 24;
    Ok(Some([config, first(&event.register_value)?]))
}

/// Returns the first number of a text; 0 for an empty one.
fn first(text: &str) -> Result<u64> {
    let number = text.split(',').next().unwrap_or_default().trim();
    let parsed = match number.strip_prefix("0x").or_else(|| number.strip_prefix("0X")) {
        _ if number.is_empty() => return Ok(0),
        Some(hex) => u64::from_str_radix(hex, 16),
        None => number.parse(),
    };
    parsed.with_context(|| format!("{number:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_in_committed;
    use super::*;

    /// The fields of a few events, with the texts of perfmon.
    const EXCERPT: &str = r#"{
        "Header": { "Version": "1.25" },
        "Events": [
            { "EventName": "INST_RETIRED.ANY", "EventCode": "0x00", "UMask": "0x01" },
            { "EventName": "CYCLE_ACTIVITY.STALLS_L3_MISS", "EventCode": "0xA3", "UMask": "0x06",
              "CounterMask": "6", "Invert": "0", "EdgeDetect": "0", "AnyThread": "0",
              "MSRIndex": "0", "MSRValue": "0" },
            { "EventName": "CPU_CLK_UNHALTED.THREAD_P_ANY", "EventCode": "0x3C", "UMask": "0x00",
              "AnyThread": "1" },
            { "EventName": "RS_EVENTS.EMPTY_END", "EventCode": "0x5E", "UMask": "0x01",
              "CounterMask": "1", "Invert": "1", "EdgeDetect": "1" },
            { "EventName": "FRONTEND_RETIRED.STLB_MISS", "EventCode": "0xC6", "UMask": "0x01",
              "MSRIndex": "0x3F7", "MSRValue": "0x15" },
            { "EventName": "MEM_TRANS_RETIRED.LOAD_LATENCY_GT_4", "EventCode": "0xcd",
              "UMask": "0x01", "MSRIndex": "0x3F6", "MSRValue": "0x4" },
            { "EventName": "OFFCORE_RESPONSE.X", "EventCode": "0xB7, 0xBB", "UMask": "0x01",
              "MSRIndex": "0x1a6,0x1a7", "MSRValue": "0x1" }
        ]
    }"#;

    #[test]
    fn an_excerpt_gives_lines_of_the_committed_table() {
        let parsed = parse(EXCERPT).unwrap();
        assert_eq!(parsed.version, "1.25");
        assert_eq!(parsed.events.len(), 5, "{:?}", parsed.events.keys());
        assert_eq!(parsed.events["RS_EVENTS.EMPTY_END"], [0x184_015e, 0]);
        assert_eq!(parsed.events["FRONTEND_RETIRED.STLB_MISS"], [0x1c6, 0x15]);
        is_in_committed("skylake", &parsed.events);
    }

    #[test]
    fn events_of_the_memory_controllers_are_lines_of_a_table_of_their_own() {
        let event = |name: &str, unit: &str, counter: &str, more: &str| {
            format!(
                r#"{{ "EventName": "{name}", "EventCode": "0x04", "UMask": "0x3f", "Unit": "{unit}",
                     "Counter": "{counter}"{more} }}"#
            )
        };
        let events = [
            event("UNC_M_CAS_COUNT.ALL", "iMC", "0,1,2,3", ""),
            event("UNC_M_HCLOCKTICKS", "iMC", "FIXED", ""),
            event("UNC_M_CLOCKTICKS_FREERUN", "iMC", "4", r#", "CounterType": "FREERUN""#),
            event("UNC_CHA_CLOCKTICKS", "CHA", "0,1,2,3", ""),
        ];
        let text =
            format!(r#"{{ "Header": {{ "Version": "1" }}, "Events": [{}] }}"#, events.join(","));
        let parsed = parse_memory(&text).unwrap();
        assert_eq!(parsed.events["UNC_M_CAS_COUNT.ALL"], [0x4, 0x3f]);
        assert_eq!(parsed.events["UNC_M_HCLOCKTICKS"], [0xff, 0]);
        assert_eq!(parsed.events.len(), 2);
        is_in_committed("ice_lake_memory", &parsed.events);
    }

    #[test]
    fn other_files_and_numbers_are_errors() {
        assert!(parse("[]").is_err() && parse("{").is_err());
        let damaged = EXCERPT.replace("\"0xA3\"", "\"0xG3\"");
        let error = format!("{:#}", parse(&damaged).err().unwrap());
        assert!(error.contains("CYCLE_ACTIVITY.STALLS_L3_MISS: \"0xG3\" is not"), "{error}");
    }
}
