//! Event files of libpfm4: C, an array of unit masks for each event, then one of all events.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::Events;

/// Event without its unit masks.
#[derive(Default)]
struct Entry<'a> {
    name: &'a str,
    code: u64,
    /// Name of the array of its unit masks.
    masks: Option<&'a str>,
}

/// Parses a file. An event with unit masks gives an event for each: `EVENT.MASK`.
///
/// # Errors
/// If a number or an array of unit masks cannot be found.
pub(super) fn parse(text: &str, is_amd: bool) -> Result<Events> {
    let mut masks: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut array = "";
    for line in text.lines() {
        if let Some(name) = array_name(line) {
            array = name;
            continue;
        }
        let Some((key, value)) = field(line) else { continue };
        let (entry, all) = (entries.last_mut(), masks.entry(array).or_default());
        match (key, entry, all.last_mut()) {
            ("uname", ..) => all.push((value, 0)),
            ("ucode", _, Some((_, code))) => *code = number(value)?,
            ("name", ..) => entries.push(Entry { name: value, ..Entry::default() }),
            ("code", Some(entry), _) => entry.code = number(value)?,
            ("umasks", Some(entry), _) => entry.masks = Some(value),
            _ => {}
        }
    }
    let mut events = Events::new();
    for Entry { name, code, masks: array } in entries {
        let config = if is_amd { amd(code) } else { code };
        let Some(array) = array else {
            events.insert(name.to_owned(), [config, 0]);
            continue;
        };
        let masks = masks.get(array).filter(|masks| !masks.is_empty());
        for (mask, bits) in masks.with_context(|| format!("{name}: no array {array}"))? {
            events.insert(format!("{name}.{mask}"), [config | bits << 8, 0]);
        }
    }
    Ok(events)
}

/// Places the upper four bits of an event code of AMD. Source: AMD PPR, `PERF_CTL`.
const fn amd(code: u64) -> u64 {
    code & 0xff | (code >> 8 & 0xf) << 32
}

/// Returns the name of the array that a line begins.
fn array_name(line: &str) -> Option<&str> {
    let (before, _) = line.strip_prefix("static const ")?.split_once("[]")?;
    before.split(' ').next_back()
}

/// Returns name and value of a line `.name = value,`.
fn field(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches(['{', ' ', '\t']).strip_prefix('.')?;
    let (key, value) = line.split_once('=')?;
    let value = value.trim();
    let value = match value.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => value.split([',', ' ', '}']).next(),
    };
    Some((key.trim(), value?))
}

fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("{text:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::is_in_committed;
    use super::*;

    const AMD: &str = r#"
static const amd64_umask_t amd64_x_cycles_no_retire[]={
  { .uname  = "EMPTY",
    .udesc  = "a = b, .ucode = 0x7",
    .ucode  = 0x1,
  },
  { .uname  = "NOT_COMPLETE_MISSING_LOAD",
    .ucode  = 0xa2,
    .uflags = AMD64_FL_NCOMBO,
  }
};

static const amd64_umask_t amd64_x_dispatch_stalls_1[]={
  { .uname  = "BE_STALLS",
    .ucode  = 0x1e,
  },
};

static const amd64_entry_t amd64_x_pe[]={
  { .name   = "CYCLES_NOT_IN_HALT",
    .desc   = "Core cycles",
    .code    = 0x76,
  },
  { .name   = "CYCLES_NO_RETIRE",
    .code    = 0xd6,
    .umasks = amd64_x_cycles_no_retire,
  },
  { .name   = "DISPATCH_STALLS_1",
    .code    = 0x1a0,
    .umasks = amd64_x_dispatch_stalls_1, /* shared */
  },
};
"#;
    const ARM: &str = "static const arm_entry_t arm_x_pe[]={\n\t{.name = \"STALL_BACKEND_MEM\",\n\
                       \t .modmsk = ARMV8_ATTRS,\n\t .code = 0x4005,\n\t},\n};\n";

    #[test]
    fn excerpts_give_lines_of_the_committed_tables() {
        let events = parse(AMD, true).unwrap();
        let names: Vec<_> = events.keys().map(String::as_str).collect();
        let wanted = [
            "CYCLES_NOT_IN_HALT",
            "CYCLES_NO_RETIRE.EMPTY",
            "CYCLES_NO_RETIRE.NOT_COMPLETE_MISSING_LOAD",
            "DISPATCH_STALLS_1.BE_STALLS",
        ];
        assert_eq!(names, wanted);
        is_in_committed("zen4", &events);
        let events = parse(ARM, false).unwrap();
        assert_eq!(events["STALL_BACKEND_MEM"], [0x4005, 0]);
        is_in_committed("neoverse_v1", &events);
    }

    #[test]
    fn what_is_missing_is_an_error_and_other_text_has_no_events() {
        let error = |text: String| format!("{:#}", parse(&text, true).unwrap_err());
        let renamed = error(AMD.replace("amd64_x_dispatch_stalls_1[]", "other[]"));
        assert_eq!(renamed, "DISPATCH_STALLS_1: no array amd64_x_dispatch_stalls_1");
        let damaged = error(AMD.replace("0x76", "CODE"));
        assert!(damaged.starts_with("\"CODE\" is not a number"), "{damaged}");
        assert!(parse("int main(void) { return 0; }\n.ucode = 1\n", true).unwrap().is_empty());
    }
}
