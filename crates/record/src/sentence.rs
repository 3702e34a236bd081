//! Sentences: the text and the help of a fact.
//!
//! A record holds a warning, a verdict or a cause as an enum with its facts, serialised with a
//! stable `code` (`#[serde(tag = "code", rename_all = "snake_case")]`). Text and help stand beside
//! each variant, by the derive macro [`macro@Sentence`]. JSON carries all three:
//! `{"code": "few_samples", "samples": 12, "text": "…", "help": ["…"]}`. Only
//! [`crate::Unsupported`] has its help by hand, because it depends on the machine.

pub use hugepilot_sentence::Sentence;

/// A fact in words.
pub trait Sentence {
    /// Returns one sentence, lower case, without a period.
    fn text(&self) -> String;
    /// Returns suggested actions, as commands if possible; the likeliest first.
    fn help(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Formats a share in whole percent: `3 %`.
pub fn whole_percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// Formats a number with its noun.
pub fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { several })
}

/// Formats a number with its noun, without separators: readers copy it to a setting.
pub fn numbered(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Formats a count with separated thousands: `12,345`.
#[allow(clippy::cast_precision_loss)]
pub fn number(count: u64) -> String {
    grouped(count as f64)
}

/// Formats a value with separated thousands, rounded.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn grouped(value: f64) -> String {
    let digits = (value.max(0.0).round() as u64).to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the sentence for an invisible memory limit of `cgroup`.
pub fn hidden_limit(cgroup: &str) -> String {
    format!(
        "the memory limit of cgroup {cgroup} is not visible here; only the available memory of \
         the system limits huge pages"
    )
}

/// Help for [`hidden_limit`].
pub const HIDDEN_LIMIT_HELP: &str =
    "run hugepilot on the host, or mount the cgroup hierarchy under /sys/fs/cgroup";
