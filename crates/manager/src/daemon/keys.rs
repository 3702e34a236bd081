//! The configuration file: TOML with these keys and no others. One table reads it, explains it and prints it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use hugepilot_policy::{Fairness, Order};
use toml::de::{DeTable, DeValue};

use super::config::Config;

/// One key.
struct Key {
    name: &'static str,
    /// What it decides.
    about: &'static str,
    /// Its type and range.
    allowed: &'static str,
    /// Takes the value from a file; `None` when it is not of the type.
    set: fn(&mut Config, &DeValue<'_>) -> Option<()>,
    /// The value as it stands in a file; `None` where there is none.
    get: fn(&Config) -> Option<String>,
}

/// Why a configuration is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Wrong {
    /// The file and the line, where it stands in one.
    place: Option<(String, usize)>,
    key: String,
    found: String,
    allowed: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, line)) = &self.place {
            write!(f, "{file}:{line}: ")?;
        }
        write!(f, "{}: found {}, allowed: {}", self.key, self.found, self.allowed)
    }
}

impl Wrong {
    /// The value of `key` in `config` is out of its range.
    pub(super) fn of(config: &Config, key: &'static str) -> Self {
        let known = KEYS.iter().find(|known| known.name == key);
        let found = known.and_then(|known| (known.get)(config)).unwrap_or_default();
        let allowed = known.map_or("", |known| known.allowed).to_owned();
        Self { place: None, key: key.to_owned(), found, allowed }
    }
}

const KEYS: [Key; 19] = [
    Key {
        name: "cgroup",
        about: "Watch this cgroup (version 1 or 2, with a memory limit) and take from its processes; without it, the system.",
        allowed: "text, the directory of a cgroup such as \"/sys/fs/cgroup/db.slice\"",
        set: |config, value| {
            config.cgroup = Some(value.as_str()?.into());
            Some(())
        },
        get: |config| config.cgroup.as_ref().map(|path| quoted(&path.to_string_lossy())),
    },
    Key {
        name: "high",
        about: "Work begins when so much of the memory is in use.",
        allowed: "a share, 1% to 100%, above low and not above critical",
        set: |config, value| parsed(value, &mut config.high),
        get: |config| Some(quoted(&config.high)),
    },
    Key {
        name: "low",
        about: "And ends when less than this is in use.",
        allowed: "a share, 1% to 100% and below high",
        set: |config, value| parsed(value, &mut config.low),
        get: |config| Some(quoted(&config.low)),
    },
    Key {
        name: "critical",
        about: "From here on, of the limit at which processes are killed, hurry: the CPU budget may be exceeded, and nobody waits for samples.",
        allowed: "a share, from high up to 100%",
        set: |config, value| parsed(value, &mut config.critical),
        get: |config| Some(quoted(&config.critical)),
    },
    Key {
        name: "psi",
        about: "Between low and high, work begins too when tasks waited for memory in so much of the last ten seconds (PSI some).",
        allowed: "a share, 0.1% to 100%",
        set: |config, value| parsed(value, &mut config.psi),
        get: |config| Some(quoted(&config.psi)),
    },
    Key {
        name: "interval",
        about: "Time between two looks at memory use; they come sooner while it rises fast.",
        allowed: "a time, 50ms to 1min",
        set: |config, value| parsed(value, &mut config.interval),
        get: |config| Some(quoted(&config.interval)),
    },
    Key {
        name: "cpu",
        about: "CPU time of the daemon, in parts of one core; what ten seconds leave unused is saved for a quick start.",
        allowed: "a share, 1% to 100%",
        set: |config, value| parsed(value, &mut config.cpu),
        get: |config| Some(quoted(&config.cpu)),
    },
    Key {
        name: "order",
        about: "Which huge pages go first. heat needs samples; where they may not be taken, exact.",
        allowed: "text, \"heat\", \"exact\", \"emd\" or \"hawkeye\"",
        set: |config, value| {
            config.order = order(value.as_str()?)?;
            Some(())
        },
        get: |config| Some(quoted(&config.order.name())),
    },
    Key {
        name: "fairness",
        about: "How processes share what is taken: in turns, by bloat, by weight, or one after the other. Without it: by weight where there are weights, else in turns.",
        allowed: "text, \"round-robin\", \"bloat\", \"weight\" or \"off\"; with weights only \"weight\"",
        set: |config, value| {
            config.fairness = Some(fairness(value.as_str()?)?);
            Some(())
        },
        get: |config| config.fairness.map(|fairness| quoted(&fairness.name())),
    },
    Key {
        name: "quantum",
        about: "So many huge pages of one process in a row. Without it 100 for emd and hawkeye, as EMD has it, and 8 for exact and heat.",
        allowed: "a number of 1 or more",
        set: |config, value| {
            config.quantum = Some(value.as_integer()?.as_str().parse().ok()?);
            Some(())
        },
        get: |config| config.quantum.map(|quantum| quantum.to_string()),
    },
    Key {
        name: "observe",
        about: "How long to sample before each plan, for order heat.",
        allowed: "a time, 100ms to 1min",
        set: |config, value| parsed(value, &mut config.observe),
        get: |config| Some(quoted(&config.observe)),
    },
    Key {
        name: "min_bloat",
        about: "Minimum zero-filled part of a huge page to split. Without it 0% for emd and hawkeye, as EMD has it, and 5% for exact and heat.",
        allowed: "a share, 0% to 100%",
        set: |config, value| {
            config.min_bloat = Some(value.as_str()?.parse().ok()?);
            Some(())
        },
        get: |config| config.min_bloat.as_ref().map(quoted),
    },
    Key {
        name: "min_huge",
        about: "Leave processes alone that have less memory in huge pages.",
        allowed: "a size such as \"64MiB\"",
        set: |config, value| parsed(value, &mut config.min_huge),
        get: |config| Some(quoted(&config.min_huge)),
    },
    Key {
        name: "protect",
        about: "Leave these processes alone: numbers or names.",
        allowed: "a list of texts such as [\"postgres\", \"4711\"], of at most 15 bytes: more of a name the kernel does not keep",
        set: |config, value| {
            config.protect = texts(value)?;
            Some(())
        },
        get: |config| Some(list(&config.protect)),
    },
    Key {
        name: "prefer",
        about: "Take from these processes before all others: numbers or names.",
        allowed: "a list of texts such as [\"batch\"], of at most 15 bytes: more of a name the kernel does not keep",
        set: |config, value| {
            config.prefer = texts(value)?;
            Some(())
        },
        get: |config| Some(list(&config.prefer)),
    },
    Key {
        name: "weight",
        about: "Twice the weight gives twice the bytes. Processes that are not named weigh 1; without any, turns are equal.",
        allowed: "a table of numbers above 0 such as { redis-server = 2.0 }, the names of at most 15 bytes: the kernel keeps no more",
        set: |config, value| {
            config.weight = numbers(value)?;
            Some(())
        },
        get: |config| Some(table(&config.weight)),
    },
    Key {
        name: "cool_down",
        about: "Leave a region alone so long after it was split; twice as long each time it was made huge again.",
        allowed: "a time, 1s to 7 days (10080min)",
        set: |config, value| parsed(value, &mut config.cool_down),
        get: |config| Some(quoted(&config.cool_down)),
    },
    Key {
        name: "max_recollapses",
        about: "Leave a region alone for good once it was made huge again so many times.",
        allowed: "a number, 1 to 20",
        set: |config, value| {
            config.max_recollapses = value.as_integer()?.as_str().parse().ok()?;
            Some(())
        },
        get: |config| Some(config.max_recollapses.to_string()),
    },
    Key {
        name: "dry_run",
        about: "Decide and log, but split nothing.",
        allowed: "true or false",
        set: |config, value| {
            config.dry_run = value.as_bool()?;
            Some(())
        },
        get: |config| Some(config.dry_run.to_string()),
    },
];

impl Config {
    /// Reads `text`, the contents of `file`, over the defaults; lets `change` have the last word, as flags do; and checks.
    ///
    /// # Errors
    /// [`Wrong`] names the line, the key, what was found and what is allowed.
    pub fn read(text: &str, file: &str, change: &dyn Fn(&mut Self)) -> Result<Self, Wrong> {
        let line_at = |at: usize| text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1;
        let wrong = |at: usize, key: &str, found: String, allowed: String| Wrong {
            place: Some((file.to_owned(), line_at(at))),
            key: key.to_owned(),
            found,
            allowed,
        };
        let parsed = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            wrong(
                at,
                "the file",
                error.message().to_owned(),
                "TOML, as --print-config shows it".to_owned(),
            )
        })?;
        let (mut config, mut lines) = (Self::default(), BTreeMap::new());
        for (name, value) in parsed.get_ref() {
            let Some(key) = KEYS.iter().find(|key| key.name == name.get_ref().as_ref()) else {
                let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
                let found = "a key that is not known".to_owned();
                return Err(wrong(name.span().start, name.get_ref(), found, names.join(", ")));
            };
            if (key.set)(&mut config, value.get_ref()).is_none() {
                let found = text.get(value.span()).unwrap_or_default().to_owned();
                return Err(wrong(value.span().start, key.name, found, key.allowed.to_owned()));
            }
            lines.insert(key.name, line_at(name.span().start));
        }
        let of_file = config.clone();
        change(&mut config);
        let located = |wrong: Wrong| {
            let key = KEYS.iter().find(|key| key.name == wrong.key);
            let unchanged = key.is_some_and(|key| (key.get)(&of_file) == (key.get)(&config));
            let line = lines.get(wrong.key.as_str()).filter(|_| unchanged);
            Wrong { place: line.map(|&line| (file.to_owned(), line)), ..wrong }
        };
        config.check().map_err(located)?;
        Ok(config)
    }

    /// As a file, each key with what it means, its type, range and default.
    pub fn print(&self) -> String {
        let mut text = "# hugepilot daemon --debloat --config FILE\n".to_owned();
        let default = Self::default();
        for key in &KEYS {
            let usual = (key.get)(&default).unwrap_or_else(|| "none".to_owned());
            let _ = write!(text, "\n# {}\n# {}; default: {usual}\n", key.about, key.allowed);
            let _ = match (key.get)(self) {
                Some(value) => writeln!(text, "{} = {value}", key.name),
                None => writeln!(text, "# {} =", key.name),
            };
        }
        text
    }
}

/// A value that is written as text, in the way of the command line.
fn parsed<T: std::str::FromStr>(value: &DeValue<'_>, into: &mut T) -> Option<()> {
    *into = value.as_str()?.parse().ok()?;
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

/// As a TOML text.
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
