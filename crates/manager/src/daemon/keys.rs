//! Configuration file: TOML. One table of keys reads, explains and prints it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;

use hugepilot_policy::{Fairness, Order};
use toml::de::{DeTable, DeValue};

use super::config::Config;

mod error;
mod rule;

pub use error::ConfigError;
use error::{Fault, found_instead};

/// Key of the file.
struct Key {
    name: &'static str,
    /// Meaning.
    about: &'static str,
    /// Type and range.
    allowed: &'static str,
    /// Sets the value from a file; `None` if it has the wrong type.
    set: fn(&mut Config, &DeValue<'_>) -> Option<()>,
    /// Returns the value as written in a file; `None` if it is unset.
    get: fn(&Config) -> Option<String>,
}

const KEYS: [Key; 21] = [
    Key {
        name: "cgroup",
        about: "Cgroup (version 1 or 2) to watch and debloat; it must have a memory limit. \
                Unset: the system.",
        allowed: "text: the directory of a cgroup, such as \"/sys/fs/cgroup/db.slice\"",
        set: |config, value| put(&mut config.cgroup, value.as_str().map(|text| Some(text.into()))),
        get: |config| config.cgroup.as_ref().map(|path| quoted(&path.to_string_lossy())),
    },
    Key {
        name: "high",
        about: "High watermark: memory use that starts splitting.",
        allowed: "a share, 1% to 100%, above low and not above critical",
        set: |config, value| parsed(value, &mut config.high),
        get: |config| Some(quoted(&config.high)),
    },
    Key {
        name: "low",
        about: "Low watermark: splitting ends below this memory use.",
        allowed: "a share, 1% to 100% and below high",
        set: |config, value| parsed(value, &mut config.low),
        get: |config| Some(quoted(&config.low)),
    },
    Key {
        name: "critical",
        about: "Use of the limit at which processes are killed, from which the CPU budget may \
                be exceeded, and nothing is sampled.",
        allowed: "a share, from high up to 100%",
        set: |config, value| parsed(value, &mut config.critical),
        get: |config| Some(quoted(&config.critical)),
    },
    Key {
        name: "psi",
        about: "Memory pressure that starts splitting between low and high: share of the last ten \
                seconds in which tasks stalled on memory (PSI some).",
        allowed: "a share, 0.1% to 100%",
        set: |config, value| parsed(value, &mut config.psi),
        get: |config| Some(quoted(&config.psi)),
    },
    Key {
        name: "interval",
        about: "Interval between reads of memory use; shorter while it rises fast.",
        allowed: "a time, 50ms to 1min",
        set: |config, value| parsed(value, &mut config.interval),
        get: |config| Some(quoted(&config.interval)),
    },
    Key {
        name: "cpu",
        about: "CPU budget, as a share of one core; ten seconds of it are saved for a quick start.",
        allowed: "a share, 1% to 100%",
        set: |config, value| parsed(value, &mut config.cpu),
        get: |config| Some(quoted(&config.cpu)),
    },
    Key {
        name: "order",
        about: "Order in which huge pages are split. heat requires samples; if sampling is \
                impossible: exact.",
        allowed: "text: \"heat\", \"exact\", \"emd\" or \"hawkeye\"",
        set: |config, value| put(&mut config.order, order(value.as_str()?)),
        get: |config| Some(quoted(&config.order.name())),
    },
    Key {
        name: "fairness",
        about: "How processes share: alternating, by bloat, by weight, or one after the other. \
                Unset: by weight if there are weights, else by the order.",
        allowed: "text: \"round-robin\", \"bloat\", \"weight\" or \"off\"; with weights only \
                  \"weight\"",
        set: |config, value| put(&mut config.fairness, fairness(value.as_str()?).map(Some)),
        get: |config| config.fairness.map(|fairness| quoted(&fairness.name())),
    },
    Key {
        name: "quantum",
        about: "Huge pages of one process in a row. Unset: 100 for emd and hawkeye (EMD), 8 for \
                exact and heat.",
        allowed: "a number, 1 or more",
        set: |config, value| {
            put(&mut config.quantum, value.as_integer()?.as_str().parse().ok().map(Some))
        },
        get: |config| config.quantum.map(|quantum| quantum.to_string()),
    },
    Key {
        name: "observe",
        about: "Sampling time before each plan, for order heat.",
        allowed: "a time, 100ms to 1min",
        set: |config, value| parsed(value, &mut config.observe),
        get: |config| Some(quoted(&config.observe)),
    },
    Key {
        name: "min_bloat",
        about: "Minimum zero-filled share of a huge page to split. Unset: 0% for emd and hawkeye \
                (EMD), 5% for exact and heat.",
        allowed: "a share, 0% to 100%",
        set: |config, value| put(&mut config.min_bloat, value.as_str()?.parse().ok().map(Some)),
        get: |config| config.min_bloat.as_ref().map(quoted),
    },
    Key {
        name: "min_huge",
        about: "Minimum memory in huge pages of a process to debloat, and minimum resident memory \
                of one to promote.",
        allowed: "a size such as \"64MiB\"",
        set: |config, value| parsed(value, &mut config.min_huge),
        get: |config| Some(quoted(&config.min_huge)),
    },
    Key {
        name: "reserve",
        about: "Memory that the daemon keeps on huge pages of its own while memory is plentiful \
                and a rule allows promotion. It frees 32 MiB each time a hot region lacks a huge \
                page.",
        allowed: "a size up to 1GiB",
        set: |config, value| parsed(value, &mut config.reserve),
        get: |config| Some(quoted(&config.reserve)),
    },
    Key {
        name: "protect",
        about: "Processes to exclude, by pid or name.",
        allowed: "a list of texts such as [\"postgres\", \"4711\"], of at most 15 bytes, as the \
                  kernel truncates names",
        set: |config, value| put(&mut config.protect, texts(value)),
        get: |config| Some(list(&config.protect)),
    },
    Key {
        name: "prefer",
        about: "Processes to debloat first, by pid or name.",
        allowed: "a list of texts such as [\"batch\"], of at most 15 bytes, as the kernel \
                  truncates names",
        set: |config, value| put(&mut config.prefer, texts(value)),
        get: |config| Some(list(&config.prefer)),
    },
    Key {
        name: "weight",
        about: "Weights: twice the weight frees twice the bytes. Other processes weigh 1.",
        allowed: "a table of numbers above 0 such as { redis-server = 2.0 }, with names of at \
                  most 15 bytes, as the kernel truncates names",
        set: |config, value| put(&mut config.weight, numbers(value)),
        get: |config| Some(table(&config.weight)),
    },
    Key {
        name: "cool_down",
        about: "Rest of a region after a split or a promotion; doubles with each re-collapse. Rest \
                of a process after it was tuned; doubles without a gain.",
        allowed: "a time, 1s to 7 days (10080min)",
        set: |config, value| parsed(value, &mut config.cool_down),
        get: |config| Some(quoted(&config.cool_down)),
    },
    Key {
        name: "max_recollapses",
        about: "Re-collapses after which a region is excluded.",
        allowed: "a number, 1 to 20",
        set: |config, value| {
            put(&mut config.max_recollapses, value.as_integer()?.as_str().parse().ok())
        },
        get: |config| Some(config.max_recollapses.to_string()),
    },
    Key {
        name: "dry_run",
        about: "Decide and log, but change nothing.",
        allowed: "true or false",
        set: |config, value| put(&mut config.dry_run, value.as_bool()),
        get: |config| Some(config.dry_run.to_string()),
    },
    Key {
        name: "rule",
        about: "Processes to promote while memory is plentiful; the first rule that matches \
                decides. Unset: none. Each rule is a table [[rule]]. Without cgroup, user and \
                command, it matches every process.",
        allowed: rule::ALLOWED,
        // `parse` reads the rules, whose errors are those of their own keys.
        set: |_, _| None,
        get: |config| (!config.rules.is_empty()).then(|| rule::print_all(&config.rules)),
    },
];

impl Config {
    /// Reads `text`, the contents of `file`, over the defaults, then applies `change` (the flags),
    /// then checks the values. `is_user` decides whether a name is that of a user.
    ///
    /// # Errors
    /// [`ConfigError`] with the line, the key, the value and the allowed values.
    pub fn read(
        text: &str,
        file: &str,
        is_user: &dyn Fn(&str) -> bool,
        change: &dyn Fn(&mut Self),
    ) -> Result<Self, ConfigError> {
        let (mut config, lines) =
            parse(text, is_user).map_err(|Fault { key, span, what, allowed }| {
                let place = Some((file.to_owned(), line_at(text, span.start)));
                let found = || format!("found {}", text.get(span).unwrap_or_default());
                ConfigError { place, key, what: what.unwrap_or_else(found), allowed }
            })?;
        let of_file = config.clone();
        change(&mut config);
        let located = |error: ConfigError| {
            let key = KEYS.iter().find(|key| error.key.as_deref() == Some(key.name));
            let unchanged = key.is_some_and(|key| (key.get)(&of_file) == (key.get)(&config));
            let line = key.and_then(|key| lines.get(key.name)).filter(|_| unchanged);
            ConfigError { place: line.map(|&line| (file.to_owned(), line)), ..error }
        };
        config.check().map_err(located)?;
        Ok(config)
    }

    /// Prints the configuration as a file, each key with its meaning, type, range and default.
    pub fn print(&self) -> String {
        let mut text = "# hugepilot daemon --config FILE\n".to_owned();
        let default = Self::default();
        for key in &KEYS {
            let usual = (key.get)(&default).unwrap_or_else(|| "unset".to_owned());
            let _ = write!(text, "\n# {}\n# {}; default: {usual}\n", key.about, key.allowed);
            let _ = match (key.get)(self) {
                Some(value) => writeln!(text, "{} = {value}", key.name),
                None => writeln!(text, "# {} =", key.name),
            };
        }
        text
    }
}

/// Returns the number of the line at byte `at`, from 1.
fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

/// Parses `text` over the defaults; also returns the line of each key.
fn parse(
    text: &str,
    is_user: &dyn Fn(&str) -> bool,
) -> Result<(Config, BTreeMap<&'static str, usize>), Fault> {
    let parsed = DeTable::parse(text)
        .map_err(|syntax| not_toml(text, syntax.span().unwrap_or_default(), syntax.message()))?;
    let (mut config, mut lines) = (Config::default(), BTreeMap::new());
    for (name, value) in parsed.get_ref() {
        let Some(key) = KEYS.iter().find(|key| key.name == name.get_ref().as_ref()) else {
            let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            return Err(Fault::of_unknown(name.get_ref().to_string(), name.span(), &names));
        };
        if key.name == "rule" {
            config.rules = rule::parse_all(value, is_user)?;
        } else if (key.set)(&mut config, value.get_ref()).is_none() {
            return Err(Fault::of_value(key.name.to_owned(), value.span(), key.allowed));
        }
        lines.insert(key.name, line_at(text, name.span().start));
    }
    Ok((config, lines))
}

/// Describes an error of the syntax at `span`: by the key, if its value is the cause.
fn not_toml(text: &str, span: Range<usize>, message: &str) -> Fault {
    let (before, after) = text.split_at_checked(span.start).unwrap_or((text, ""));
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let end = after.find('\n').map_or(text.len(), |newline| span.start + newline);
    let line = text.get(start..end).unwrap_or_default();
    let (name, value) = line.split_once('=').map_or((line, ""), |(name, value)| (name, value));
    let (name, value) = (name.trim(), value.trim());
    let is_in_rule = before.lines().map(str::trim).any(|line| line.starts_with("[[rule]]"));
    let key = if is_in_rule {
        rule::allowed(name).map(|allowed| (rule::named(name), allowed))
    } else {
        KEYS.iter().find(|key| key.name == name).map(|key| (key.name.to_owned(), key.allowed))
    };
    let is_of_value = before.get(start..).is_some_and(|before| before.contains('='));
    let (what, allowed) = match &key {
        Some((_, allowed)) if is_of_value => {
            (format!("found {}", found_instead(value, message)), Some(*allowed))
        }
        Some(_) if message == "duplicate key" => {
            ("found a second value".to_owned(), Some("one value"))
        }
        _ => (format!("not TOML: {message}"), None),
    };
    let (key, allowed) = (key.map(|(key, _)| key), allowed.map(str::to_owned));
    Fault { key, span, what: Some(what), allowed }
}

/// Parses a value that is written as text, as on the command line.
fn parsed<T: std::str::FromStr>(value: &DeValue<'_>, into: &mut T) -> Option<()> {
    put(into, value.as_str()?.parse().ok())
}

/// Sets a value, if there is one.
fn put<T>(into: &mut T, value: Option<T>) -> Option<()> {
    *into = value?;
    Some(())
}

fn order(name: &str) -> Option<Order> {
    [Order::Heat, Order::Exact, Order::EMD, Order::Hawkeye]
        .into_iter()
        .find(|order| order.name() == name)
}

fn fairness(name: &str) -> Option<Fairness> {
    [Fairness::RoundRobin, Fairness::Bloat, Fairness::Weight, Fairness::Off]
        .into_iter()
        .find(|fairness| fairness.name() == name)
}

fn texts(value: &DeValue<'_>) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| Some(text.get_ref().as_str()?.to_owned())).collect()
}

fn numbers(value: &DeValue<'_>) -> Option<BTreeMap<String, f64>> {
    let number = |value: &DeValue<'_>| {
        let whole = || value.as_integer()?.as_str().parse().ok();
        value.as_float().map_or_else(whole, |float| float.as_str().parse().ok())
    };
    let pairs = value.as_table()?.iter();
    pairs
        .map(|(name, value)| Some((name.get_ref().to_string(), number(value.get_ref())?)))
        .collect()
}

/// Prints `value` as a TOML text.
fn quoted(value: &impl fmt::Display) -> String {
    let mut text = String::from('"');
    for c in value.to_string().chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04x}", c as u32);
            }
            c => text.push(c),
        }
    }
    text + "\""
}

fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(quoted).collect::<Vec<_>>().join(", "))
}

fn table(numbers: &BTreeMap<String, f64>) -> String {
    let pairs: Vec<_> =
        numbers.iter().map(|(name, number)| format!("{} = {number:?}", quoted(name))).collect();
    if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
}

#[cfg(test)]
mod tests;
