//! Performance monitoring unit, as sysfs describes it.
//!
//! `/sys/bus/event_source/devices/NAME` holds the unit's `type`; in `format/`, the bits and config
//! word of each term; and in `events/`, named events made of such terms.

use std::collections::BTreeMap;

use crate::{Root, cpu};

const DEVICES: &str = "sys/bus/event_source/devices";

/// Unit with the terms that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pmu {
    /// `perf_event_attr.type`.
    pub(crate) kind: u32,
    name: String,
    terms: BTreeMap<String, Term>,
}

/// Bits of a term: in `config`, `config1` or `config2`, lowest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    word: usize,
    bits: Vec<u32>,
}

/// `config`, `config1`, `config2`.
pub(crate) type Words = [u64; 3];

impl Pmu {
    /// Reads the unit of that name, such as `cpu` or `ibs_op`; `None` if the kernel shows none.
    pub(crate) fn read(root: &Root, name: &str) -> Option<Self> {
        let kind = root.read_text(format!("{DEVICES}/{name}/type")).ok()?.parse().ok()?;
        let formats = std::fs::read_dir(root.join(format!("{DEVICES}/{name}/format")));
        let terms = formats.into_iter().flatten().flatten().filter_map(|entry| {
            let term = entry.file_name().into_string().ok()?;
            let text = root.read_text(format!("{DEVICES}/{name}/format/{term}")).ok()?;
            Some((term, parse_term(&text)?))
        });
        Some(Self { kind, name: name.to_owned(), terms: terms.collect() })
    }
    /// Reads the unit of that name, and those with an index: `uncore_imc_0`, `uncore_imc_1`.
    pub(crate) fn instances(root: &Root, name: &str) -> Vec<Self> {
        let is_one = |other: &String| {
            let index = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('_'));
            other == name
                || index.is_some_and(|index| index.bytes().all(|digit| digit.is_ascii_digit()))
        };
        let entries = std::fs::read_dir(root.join(DEVICES)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(is_one).collect();
        names.sort();
        names.iter().filter_map(|name| Self::read(root, name)).collect()
    }
    /// Returns the processors on which its events are opened, one for each socket; processor 0 if
    /// the kernel does not list them.
    pub(crate) fn cpus(&self, root: &Root) -> Vec<i32> {
        let text = root.read_text(format!("{DEVICES}/{}/cpumask", self.name)).unwrap_or_default();
        let cpus = cpu::parse_list(&text).filter(|cpus| !cpus.is_empty());
        cpus.unwrap_or_else(|| vec![0]).into_iter().map(u32::cast_signed).collect()
    }
    /// Whether the unit knows `term`.
    pub(crate) fn knows(&self, term: &str) -> bool {
        self.terms.contains_key(term)
    }
    /// Returns the text of a named event, such as `event=0xcd,umask=0x1,ldlat=3`.
    pub(crate) fn event(&self, root: &Root, name: &str) -> Option<String> {
        root.read_text(format!("{DEVICES}/{}/events/{name}", self.name)).ok()
    }
    /// Returns the bytes of one named event, by its scale and unit; `None` without such an event,
    /// or without a scale in bytes.
    pub(crate) fn event_bytes(&self, root: &Root, name: &str) -> Option<f64> {
        self.event(root, name)?;
        let scale: f64 = self.event(root, &format!("{name}.scale"))?.parse().ok()?;
        let unit = match self.event(root, &format!("{name}.unit"))?.as_str() {
            "Bytes" => 1.0,
            "KiB" => 1024.0,
            "MiB" => 1024.0 * 1024.0,
            _ => return None,
        };
        Some(scale * unit).filter(|bytes| bytes.is_finite() && *bytes > 0.0)
    }
    /// Returns the config words of a text such as `event=0xcd,umask=0x1,ldlat=3`; a term without a
    /// value is 1. `None` if the unit does not know a term, or a value does not fit.
    pub(crate) fn encode(&self, text: &str) -> Option<Words> {
        let mut words = Words::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (term, value) = part.split_once('=').unwrap_or((part, "1"));
            let value = match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok()?,
                None => value.parse().ok()?,
            };
            let word = ["config", "config1", "config2"].iter().position(|word| *word == term);
            if let Some(word) = word {
                words[word] |= value;
                continue;
            }
            let term = self.terms.get(term)?;
            if value.checked_shr(u32::try_from(term.bits.len()).ok()?).is_some_and(|rest| rest != 0)
            {
                return None;
            }
            for (i, &bit) in term.bits.iter().enumerate() {
                words[term.word] |= (value >> i & 1) << bit;
            }
        }
        Some(words)
    }
}

/// Parses a term such as `config:0-7,32-35`.
fn parse_term(text: &str) -> Option<Term> {
    let (word, ranges) = text.split_once(':')?;
    let word = match word {
        "config" => 0,
        "config1" => 1,
        "config2" => 2,
        _ => return None,
    };
    let mut bits = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > 63 {
            return None;
        }
        bits.extend(first..=last);
    }
    Some(Term { word, bits })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates the files of one unit.
    pub(crate) fn unit(dir: &std::path::Path, name: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = dir.join(DEVICES).join(name).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn terms_set_the_bits_of_their_format() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("type", "4"),
            ("format/event", "config:0-7,32-35"),
            ("format/umask", "config:8-15"),
            ("format/cmask", "config:24-31"),
            ("format/edge", "config:18"),
            ("format/ldlat", "config1:0-15"),
            ("format/odd", "config9:0"),
            ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
        ];
        unit(dir.path(), "cpu", &files);
        let root = Root::at(dir.path());
        let pmu = Pmu::read(&root, "cpu").unwrap();
        assert_eq!(pmu.kind, 4);
        assert_eq!(pmu.encode(&pmu.event(&root, "mem-loads").unwrap()), Some([0x1cd, 3, 0]));
        assert_eq!(
            pmu.encode("event=0x1d0,umask=0x20,cmask=1,edge"),
            Some([0x0000_0001_0104_20d0, 0, 0])
        );
        assert_eq!(pmu.encode("umask=0x100"), None, "too large");
        assert_eq!(pmu.encode("odd=1"), None, "an unknown word");
        assert_eq!(pmu.encode("event=zero"), None);
        assert!(pmu.knows("ldlat") && !pmu.knows("swfilt"));
        assert!(Pmu::read(&root, "ibs_op").is_none());
    }

    #[test]
    fn an_event_has_bytes_if_its_scale_and_unit_are_known() {
        let bytes = |scale, unit_of| {
            let dir = tempfile::tempdir().unwrap();
            let files = [("type", "9"), ("events/r", "event=1"), ("events/r.scale", scale)];
            unit(dir.path(), "imc", &files);
            unit(dir.path(), "imc", &[("events/r.unit", unit_of)]);
            let root = Root::at(dir.path());
            Pmu::read(&root, "imc").unwrap().event_bytes(&root, "r")
        };
        assert_eq!(bytes("6.103515625e-5", "MiB"), Some(64.0));
        assert_eq!(bytes("64", "Bytes"), Some(64.0));
        assert_eq!(bytes("0.0625", "KiB"), Some(64.0));
        for (scale, unit) in
            [("1", "Joules"), ("x", "MiB"), ("-1", "MiB"), ("nan", "MiB"), ("0", "MiB")]
        {
            assert_eq!(bytes(scale, unit), None, "{scale} {unit}");
        }
    }
}
