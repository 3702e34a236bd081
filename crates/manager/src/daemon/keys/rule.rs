//! Key `rule`: the tables of the configuration that say what is promoted.

use std::ops::Range;

use hugepilot_policy::daemon::{Permission, Rule};
use hugepilot_policy::tune::Policy;
use hugepilot_record::PolicyName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Fault, put, quoted};
use crate::names::can_match;

/// Keys of a rule, with their types.
pub(super) const ALLOWED: &str = "tables [[rule]] with promote (\"allow\" or \"deny\") and any of: \
    cgroup (text, \"/db.slice\", also below it), user (text: a name or number), command (text: the \
    name), budget (an amount, such as \"4GiB\" or \"10%\"), policy (\"heat\", \"pcc\", \
    \"linux\", \"khugepaged\", \"hawkeye\", \"all\" or \"never\"), forks (\"rest\" or \"ignore\")";

/// Key of a rule.
struct RuleKey {
    name: &'static str,
    /// Type and range.
    allowed: &'static str,
    /// Sets the value from a text; `None` if it is out of range.
    set: fn(&mut Rule, &str) -> Option<()>,
}

const KEYS: [RuleKey; 7] = [
    RuleKey {
        name: "promote",
        allowed: "text: \"allow\" or \"deny\"",
        set: |rule, text| {
            put(
                &mut rule.promote,
                one_of(text, [("allow", Permission::Allow), ("deny", Permission::Deny)]),
            )
        },
    },
    RuleKey {
        name: "cgroup",
        allowed: "text: a path below the cgroup root, such as \"/db.slice\"",
        set: |rule, text| put(&mut rule.cgroup, below_root(text).map(|path| Some(path.to_owned()))),
    },
    RuleKey {
        name: "user",
        allowed: "text: the name of a user in /etc/passwd, or a number such as \"999\"",
        set: |rule, text| put(&mut rule.user, Some(Some(text.to_owned()))),
    },
    RuleKey {
        name: "command",
        allowed: "text: the name of a process (`ps -o comm`), of at most 15 bytes, as the kernel \
                  truncates names",
        set: |rule, text| put(&mut rule.command, can_match(text).then(|| Some(text.to_owned()))),
    },
    RuleKey {
        name: "budget",
        allowed: "text: an amount, such as \"4GiB\" or \"10%\"",
        set: |rule, text| put(&mut rule.budget, text.parse().ok().map(Some)),
    },
    RuleKey {
        name: "policy",
        allowed: "text: \"heat\", \"pcc\", \"linux\", \"khugepaged\", \"hawkeye\", \"all\" or \
                  \"never\"",
        set: |rule, text| {
            let named = PolicyName::ALL.into_iter().find(|policy| policy.as_str() == text);
            // The orders of `debloat` promote nothing.
            put(&mut rule.policy, named.and_then(Policy::of))
        },
    },
    RuleKey {
        name: "forks",
        allowed: "text: \"rest\" or \"ignore\"",
        set: |rule, text| {
            put(&mut rule.despite_forks, one_of(text, [("rest", false), ("ignore", true)]))
        },
    },
];

fn one_of<T>(text: &str, values: [(&str, T); 2]) -> Option<T> {
    values.into_iter().find_map(|(word, value)| (word == text).then_some(value))
}

/// Allowed values of key `name` of a rule, if there is such a key.
pub(super) fn allowed(name: &str) -> Option<&'static str> {
    KEYS.iter().find(|key| key.name == name).map(|key| key.allowed)
}

/// Name of a key of a rule in an error.
pub(super) fn named(key: &str) -> String {
    format!("rule.{key}")
}

/// Parses all rules. `is_user` decides whether a name is that of a user.
pub(super) fn parse_all(
    rules: &Spanned<DeValue<'_>>,
    is_user: &dyn Fn(&str) -> bool,
) -> Result<Vec<Rule>, Fault> {
    let is_table = |rule: &&Spanned<DeValue<'_>>| rule.get_ref().as_table().is_some();
    let tables =
        rules.get_ref().as_array().filter(|rules| rules.iter().all(|rule| is_table(&rule)));
    let Some(tables) = tables else {
        return Err(Fault::of_value("rule".to_owned(), rules.span(), ALLOWED));
    };
    let tables = tables.iter().filter_map(|rule| Some((rule.get_ref().as_table()?, rule.span())));
    tables.map(|(rule, span)| parse(rule, &span, is_user)).collect()
}

/// Parses the rule at `span`.
fn parse(
    table: &DeTable<'_>,
    span: &Range<usize>,
    is_user: &dyn Fn(&str) -> bool,
) -> Result<Rule, Fault> {
    let mut rule = Rule::default();
    for (name, value) in table {
        let Some(key) = KEYS.iter().find(|key| key.name == name.get_ref().as_ref()) else {
            let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
            return Err(Fault::of_unknown(named(name.get_ref()), name.span(), &names));
        };
        let fault = || Fault::of_value(named(key.name), value.span(), key.allowed);
        let text = value.get_ref().as_str().ok_or_else(fault)?;
        (key.set)(&mut rule, text).ok_or_else(fault)?;
        if key.name == "user" && text.parse::<u32>().is_err() && !is_user(text) {
            let found = format!("found {}, which /etc/passwd does not have", quoted(&text));
            return Err(Fault { what: Some(found), ..fault() });
        }
    }
    if !table.iter().any(|(name, _)| name.get_ref() == "promote") {
        return Err(Fault {
            what: Some("missing".to_owned()),
            ..Fault::of_value(named("promote"), span.clone(), KEYS[0].allowed)
        });
    }
    Ok(rule)
}

/// Path of a cgroup below the cgroup root, also if it was written as a directory.
fn below_root(path: &str) -> Option<&str> {
    let is_below = |rest: &&str| rest.starts_with('/');
    let Some(below) = path.strip_prefix("/sys/fs/cgroup").filter(is_below) else {
        return Some(path).filter(is_below);
    };
    // Version 1 has a hierarchy for memory.
    Some(below.strip_prefix("/memory").filter(is_below).unwrap_or(below))
}

/// Prints all rules as an array of tables.
pub(super) fn print_all(rules: &[Rule]) -> String {
    let rules: Vec<String> = rules.iter().map(print).collect();
    format!("[{}]", rules.join(", "))
}

fn print(rule: &Rule) -> String {
    let promote = if rule.promote == Permission::Allow { "allow" } else { "deny" };
    let mut keys = vec![format!("promote = {}", quoted(&promote))];
    let mut add = |name: &str, value: Option<String>| {
        keys.extend(value.map(|value| format!("{name} = {}", quoted(&value))));
    };
    add("cgroup", rule.cgroup.clone());
    add("user", rule.user.clone());
    add("command", rule.command.clone());
    add("budget", rule.budget.map(|budget| budget.to_string()));
    add("forks", rule.despite_forks.then(|| "ignore".to_owned()));
    add("policy", (rule.policy != Policy::Heat).then(|| rule.policy.name().as_str().to_owned()));
    format!("{{ {} }}", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::super::config::Config;
    use super::*;

    fn read(text: &str) -> Result<Vec<Rule>, String> {
        let is_user = |name: &str| name == "postgres";
        let read = |text: &str| Config::read(text, "d.toml", &is_user, &|_| {});
        let config = read(text).map_err(|error| error.to_string())?;
        assert_eq!(read(&config.print()).unwrap(), config, "what is printed is read again");
        Ok(config.rules)
    }

    #[test]
    fn rules_are_read_as_tables() {
        let text = "
high = \"70%\"

[[rule]]
command = \"postgres\"
user = \"postgres\"
promote = \"deny\"

[[rule]]
cgroup = \"/sys/fs/cgroup/db.slice\"
promote = \"allow\"
budget = \"4GiB\"
policy = \"pcc\"
";
        let rules = read(text).unwrap();
        assert_eq!(rules.len(), 2);
        assert_eq!(
            (rules[0].promote, rules[0].user.as_deref()),
            (Permission::Deny, Some("postgres"))
        );
        assert_eq!(rules[1].cgroup.as_deref(), Some("/db.slice"));
        assert_eq!(rules[1].budget, Some("4GiB".parse().unwrap()));
        assert_eq!(
            (rules[1].promote, rules[1].policy.name()),
            (Permission::Allow, PolicyName::Pcc)
        );
        assert_eq!(below_root("/sys/fs/cgroup/memory/docker/a"), Some("/docker/a"));
        assert_eq!(below_root("/memory/a"), Some("/memory/a"));
        assert_eq!(below_root("/memory.slice"), Some("/memory.slice"));
    }

    #[test]
    fn an_error_of_a_rule_names_line_key_value_and_allowed_values() {
        for (rule, error) in [
            ("command = \"x\"", "2: rule.promote: missing, allowed: text: \"allow\""),
            (
                "promote = \"yes\"",
                "3: rule.promote: found \"yes\", allowed: text: \"allow\" or \"deny\"",
            ),
            (
                "promote = \"allow\"\nbugdet = \"1GiB\"",
                "4: rule.bugdet: unknown key, allowed: promote, cgroup, user, command, \
                 budget, policy",
            ),
            (
                "promote = \"allow\"\nbudget = \"much\"",
                "4: rule.budget: found \"much\", allowed: text: an amount, such as \"4GiB\" or",
            ),
            (
                "promote = \"allow\"\n\nuser = 999",
                "5: rule.user: found 999, allowed: text: the name of a user in /etc/passwd, or a",
            ),
            (
                "promote = \"allow\"\nuser = \"postgrse\"",
                "4: rule.user: found \"postgrse\", which /etc/passwd does not have, allowed: text:",
            ),
            (
                "promote = \"allow\"\ncgroup = \"db.slice\"",
                "4: rule.cgroup: found \"db.slice\", allowed: text: a path below the cgroup root",
            ),
            (
                "promote = \"allow\"\npolicy = \"best\"",
                "4: rule.policy: found \"best\", allowed: text: \"heat\", \"pcc\"",
            ),
            ("promote = \"allow\"\npolicy = \"emd\"", "4: rule.policy: found \"emd\", allowed:"),
            (
                "promote = \"allow\"\ncommand = \"a-name-longer-than-15\"",
                "4: rule.command: found \"a-name-longer-than-15\", allowed: text: the name of a \
                 process (`ps -o comm`), of at most 15 bytes",
            ),
            (
                "promote = \"allow\"\nuser =",
                "4: rule.user: found no value, allowed: text: the name",
            ),
            (
                "promote = \"allow\"\nbudget = 4GiB",
                "4: rule.budget: found 4GiB without quotes, allowed: text: an amount",
            ),
        ] {
            let found = read(&format!("high = \"70%\"\n[[rule]]\n{rule}\n")).unwrap_err();
            assert!(found.starts_with(&format!("d.toml:{error}")), "{rule}: {found}");
        }
        for other in ["rule = 3", "rule = [3]", "[rule]\npromote = \"allow\""] {
            let found = read(other).unwrap_err();
            assert!(found.starts_with("d.toml:1: rule: found "), "{other}: {found}");
            assert!(found.contains(", allowed: tables [[rule]] with promote"), "{found}");
        }
    }

    #[test]
    fn a_user_may_be_a_number_without_a_name() {
        let rules = read("[[rule]]\npromote = \"allow\"\nuser = \"4711\"").unwrap();
        assert_eq!(rules[0].user.as_deref(), Some("4711"));
    }
}
