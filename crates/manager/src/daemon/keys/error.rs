//! Errors of the configuration.

use std::fmt;
use std::ops::Range;

use hugepilot_policy::daemon::Rule;

use super::super::config::Config;
use super::{KEYS, quoted, rule};

/// Error of one key, or of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// File and line, if the value is from a file.
    pub(super) place: Option<(String, usize)>,
    /// Key; `None` for the file.
    pub(super) key: Option<String>,
    /// Fault, such as `found 80`.
    pub(super) what: String,
    /// Allowed values; `None` if none can be named.
    pub(super) allowed: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, line)) = &self.place {
            write!(f, "{file}:{line}: ")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.what)?;
        self.allowed.as_ref().map_or(Ok(()), |allowed| write!(f, ", allowed: {allowed}"))
    }
}

impl ConfigError {
    /// Describes the value of `key` in `config`, which is out of its range.
    pub(in crate::daemon) fn of(config: &Config, key: &'static str) -> Self {
        let known = KEYS.iter().find(|known| known.name == key);
        let found = known.and_then(|known| (known.get)(config));
        Self::of_value(key.to_owned(), found, known.map(|known| known.allowed))
    }

    /// Describes the name of `rule`, which no process can have.
    pub(in crate::daemon) fn of_command(rule: &Rule) -> Self {
        let found = rule.command.as_ref().map(quoted);
        Self::of_value(rule::named("command"), found, rule::allowed("command"))
    }

    fn of_value(key: String, found: Option<String>, allowed: Option<&str>) -> Self {
        let what = format!("found {}", found.unwrap_or_default());
        Self { place: None, key: Some(key), what, allowed: allowed.map(str::to_owned) }
    }
}

/// Error of a key, with its place in the text.
pub(super) struct Fault {
    /// Key; `None` for the file.
    pub(super) key: Option<String>,
    pub(super) span: Range<usize>,
    /// The fault; `None` if it is the text at `span`.
    pub(super) what: Option<String>,
    /// Allowed values; `None` if none can be named.
    pub(super) allowed: Option<String>,
}

impl Fault {
    /// Describes a value of a wrong type or out of its range.
    pub(super) fn of_value(key: String, span: Range<usize>, allowed: &str) -> Self {
        Self { key: Some(key), span, what: None, allowed: Some(allowed.to_owned()) }
    }

    /// Describes a key that does not exist beside `known` ones.
    pub(super) fn of_unknown(key: String, span: Range<usize>, known: &[&str]) -> Self {
        let what = Some("unknown key".to_owned());
        Self { key: Some(key), span, what, allowed: Some(known.join(", ")) }
    }
}

/// Describes a value that is not valid TOML.
pub(super) fn found_instead(value: &str, message: &str) -> String {
    match value {
        _ if value.is_empty() || value.starts_with('#') => "no value".to_owned(),
        _ if message.starts_with("string values must be quoted") => {
            format!("{value} without quotes")
        }
        _ => format!("{value} ({message})"),
    }
}
