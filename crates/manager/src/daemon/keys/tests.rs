//! Tests of the configuration file.

use hugepilot_policy::daemon::Rule;
use hugepilot_units::Share;

use super::*;

fn read(text: &str) -> Result<Config, String> {
    Config::read(text, "d.toml", &|_| true, &|_| {}).map_err(|error| error.to_string())
}

#[test]
fn a_printed_configuration_is_read_again() {
    assert_eq!(read(&Config::default().print()).unwrap(), Config::default());
    let odd = Config {
        cgroup: Some("/sys/fs/cgroup/a \"b\"\\c\n".into()),
        protect: vec!["postgres".into(), "47".into()],
        weight: BTreeMap::from([("redis-server".into(), 2.0), ("a.b".into(), 0.5)]),
        order: Order::EMD,
        fairness: Some(Fairness::Weight),
        quantum: Some(7),
        max_recollapses: 7,
        dry_run: true,
        ..Config::default()
    };
    assert_eq!(read(&odd.print()).unwrap(), odd);
}

#[test]
fn a_name_that_never_matches_is_an_error() {
    let long = "a-very-long-process-name";
    for text in [
        format!("protect = [\"{long}\"]"),
        format!("prefer = [\"{long}\"]"),
        format!("weight = {{ {long} = 2 }}"),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.starts_with("d.toml:1: ") && error.contains("most 15 bytes"), "{error}");
    }
    assert!(read("protect = [\"fifteen-bytes-x\"]").is_ok());
    let flag = Config::read("", "", &|_| true, &|config| config.protect.push(long.into()))
        .unwrap_err()
        .to_string();
    assert!(flag.starts_with("protect: ") && flag.contains(long), "{flag}");
}

#[test]
fn a_rule_that_names_no_process_is_an_error_of_its_command() {
    let long = "a-very-long-process-name";
    let rule = Rule { command: Some(long.into()), ..Rule::default() };
    let of_flag = |config: &mut Config| config.rules.push(rule.clone());
    let error = Config::read("", "", &|_| true, &of_flag).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("rule.command: found \"{long}\", allowed: text: the")),
        "{error}"
    );
}

#[test]
fn every_key_is_explained_with_its_default() {
    let text = Config::default().print();
    for key in &KEYS {
        let at = text.find(&format!("{} =", key.name)).unwrap();
        let before: Vec<&str> = text[..at].lines().rev().take(2).collect();
        assert!(before.iter().all(|line| line.starts_with('#')), "{}: {before:?}", key.name);
    }
    assert!(text.contains("not above critical; default: \"80%\"\nhigh = \"80%\""), "{text}");
}

#[test]
fn errors_name_line_key_found_and_allowed() {
    let table = [
        ("\nhihg = \"80%\"", "d.toml:2: hihg: unknown key, allowed: cgroup, high, low"),
        (
            "high = 80",
            "d.toml:1: high: found 80, allowed: a share, 1% to 100%, above low and not above",
        ),
        ("low = \"1GiB\"", "d.toml:1: low: found \"1GiB\", allowed: a share"),
        (
            "# x\nhigh = \"60%\"",
            "d.toml:2: high: found \"60%\", allowed: a share, 1% to 100%, above low and not",
        ),
        ("low = \"90%\"", "d.toml:1: low: found \"90%\", allowed: a share"),
        (
            "high = \"95%\"",
            "d.toml:1: high: found \"95%\", allowed: a share, 1% to 100%, above low",
        ),
        ("interval = \"1ms\"", "d.toml:1: interval: found \"1ms\", allowed: a time, 50ms to 1min"),
        ("cpu = \"0%\"", "d.toml:1: cpu: found \"0%\""),
        ("order = \"hot\"", "d.toml:1: order: found \"hot\", allowed: text: \"heat\""),
        ("protect = [1]", "d.toml:1: protect: found [1], allowed: a list of texts"),
        (
            "weight = { a = 0 }",
            "d.toml:1: weight: found { \"a\" = 0.0 }, allowed: a table of numbers above 0",
        ),
        (
            "fairness = \"turns\"",
            "d.toml:1: fairness: found \"turns\", allowed: text: \"round-robin\"",
        ),
        (
            "fairness = \"bloat\"\nweight = { a = 2 }",
            "d.toml:1: fairness: found \"bloat\", allowed: text: \"round-robin\", \"bloat\",",
        ),
        ("quantum = 0", "d.toml:1: quantum: found 0, allowed: a number, 1 or more"),
        ("max_recollapses = 0", "d.toml:1: max_recollapses: found 0, allowed: a number, 1 to 20"),
        (
            "high = \"80%\"\nhigh = \"81%\"",
            "d.toml:2: high: found a second value, allowed: one value",
        ),
        ("high 80", "d.toml:1: not TOML: "),
        ("high", "d.toml:1: high: not TOML: "),
        ("[[rule]", "d.toml:1: not TOML: unclosed array table, expected `]`"),
        ("high =", "d.toml:1: high: found no value, allowed: a share, 1% to 100%, above low"),
        ("\nhigh = # 80%\nlow = \"9%\"", "d.toml:2: high: found no value, allowed: a share"),
        ("high = 80%", "d.toml:1: high: found 80% without quotes, allowed: a share, 1% to 100%"),
        ("high = \"80%\nlow = \"9%\"", "d.toml:1: high: found \"80% (invalid basic string"),
        ("protect = [\"a\"\n", "d.toml:1: protect: found [\"a\" (unclosed array"),
    ];
    for (text, error) in table {
        let found = read(text).unwrap_err();
        assert!(found.starts_with(error), "{text:?}: {found}");
    }
}

#[test]
fn flags_override_the_file_and_their_errors_name_no_line() {
    let with = |share: f64| {
        Config::read("high = \"70%\"", "d.toml", &|_| true, &|config| {
            config.high = Share::percent(share)
        })
    };
    assert_eq!(with(90.0).unwrap().high, Share::percent(90.0));
    let error = with(10.0).unwrap_err().to_string();
    assert!(error.starts_with("high: found \"10%\""), "{error}");
}
