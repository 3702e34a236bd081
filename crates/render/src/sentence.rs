//! Lines and JSON of sentences.

pub use hugepilot_record::Sentence;
use serde::Serialize;
use serde_json::Value;

/// Lines for people: `warning: <text>` and a `help:` line for each suggestion.
pub fn warning_lines(warnings: &[impl Sentence]) -> String {
    warnings.iter().map(|warning| lines("warning", warning)).collect()
}

/// `<label>: <text>` and a `help:` line for each suggestion.
pub fn lines(label: &str, sentence: &impl Sentence) -> String {
    let help: String = sentence.help().iter().map(|help| format!("help: {help}\n")).collect();
    format!("{label}: {}\n{help}", sentence.text())
}

/// Adds `text` and, if there is any, `help` to the object that `sentence` was serialised to at
/// `pointer` (RFC 6901) of `json`.
pub fn explain(json: &mut Value, pointer: &str, sentence: &impl Sentence) {
    let Some(Value::Object(object)) = json.pointer_mut(pointer) else { return };
    object.insert("text".to_owned(), sentence.text().into());
    let help = sentence.help();
    if !help.is_empty() {
        object.insert("help".to_owned(), help.into());
    }
}

/// [`explain`] for each element of the array at `pointer`.
pub fn explain_all(json: &mut Value, pointer: &str, sentences: &[impl Sentence]) {
    for (index, sentence) in sentences.iter().enumerate() {
        explain(json, &format!("{pointer}/{index}"), sentence);
    }
}

/// `sentences` serialised, each with its text and help.
///
/// # Errors
/// Never for plain data.
pub fn explained(sentences: &[impl Sentence + Serialize]) -> serde_json::Result<Vec<Value>> {
    let explained = |sentence| {
        let mut value = serde_json::to_value(sentence)?;
        explain(&mut value, "", sentence);
        Ok(value)
    };
    sentences.iter().map(explained).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    #[serde(tag = "code", rename_all = "snake_case")]
    enum Fact {
        FewSamples { samples: u64 },
        Idle,
    }

    impl Sentence for Fact {
        fn text(&self) -> String {
            match self {
                Self::FewSamples { samples } => format!("{samples} samples are few"),
                Self::Idle => "the target is idle".to_owned(),
            }
        }
        fn help(&self) -> Vec<String> {
            match self {
                Self::FewSamples { .. } => vec!["--observe 10s".to_owned()],
                Self::Idle => Vec::new(),
            }
        }
    }

    #[test]
    fn json_carries_code_facts_text_and_help() {
        let facts = [Fact::FewSamples { samples: 3 }, Fact::Idle];
        let mut value = json!({ "warnings": facts });
        explain_all(&mut value, "/warnings", &facts);
        let few = json!({
            "code": "few_samples", "samples": 3,
            "text": "3 samples are few", "help": ["--observe 10s"],
        });
        let idle = json!({ "code": "idle", "text": "the target is idle" });
        assert_eq!(value, json!({ "warnings": [few, idle] }));
    }

    #[test]
    fn people_get_a_line_for_each() {
        let facts = [Fact::FewSamples { samples: 3 }, Fact::Idle];
        assert_eq!(
            warning_lines(&facts),
            "warning: 3 samples are few\nhelp: --observe 10s\nwarning: the target is idle\n"
        );
    }
}
