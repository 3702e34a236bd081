//! Key `rule`: the tables of the configuration that say what is promoted.

use hugepilot_policy::daemon::{Permission, Rule};
use hugepilot_policy::tune::Policy;
use hugepilot_record::PolicyName;
use toml::de::DeValue;

use super::quoted;

/// Keys of a rule, with their types.
pub(super) const ALLOWED: &str = "tables with promote (\"allow\" or \"deny\") and any of: cgroup \
    (text, \"/db.slice\", also below it), user (text: a name or number), command (text: the \
    name), budget (an amount, such as \"4GiB\" or \"10%\"), policy (\"heat\", \"pcc\", \
    \"linux\", \"khugepaged\", \"hawkeye\", \"all\" or \"never\")";

/// Parses one rule; `None` if a key is unknown or has a wrong value.
pub(super) fn parse(value: &DeValue<'_>) -> Option<Rule> {
    let mut rule = Rule::default();
    let mut is_decided = false;
    for (name, value) in value.as_table()? {
        let text = value.get_ref().as_str()?;
        match name.get_ref().as_ref() {
            "promote" => {
                is_decided = true;
                rule.promote = match text {
                    "allow" => Permission::Allow,
                    "deny" => Permission::Deny,
                    _ => return None,
                };
            }
            "cgroup" => rule.cgroup = Some(below_root(text)?.to_owned()),
            "user" => rule.user = Some(text.to_owned()),
            "command" => rule.command = Some(text.to_owned()),
            "budget" => rule.budget = Some(text.parse().ok()?),
            "policy" => rule.policy = policy(text)?,
            _ => return None,
        }
    }
    is_decided.then_some(rule)
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

fn policy(name: &str) -> Option<Policy> {
    let named = PolicyName::ALL.into_iter().find(|policy| policy.as_str() == name)?;
    // The orders of `debloat` promote nothing.
    Policy::of(named)
}

/// Prints all rules as an array of tables.
pub(super) fn print_all(rules: &[Rule]) -> String {
    let rules: Vec<String> = rules.iter().map(print).collect();
    format!("[{}]", rules.join(", "))
}

fn print(rule: &Rule) -> String {
    let promote = match rule.promote {
        Permission::Allow => "allow",
        Permission::Deny => "deny",
    };
    let mut keys = vec![format!("promote = {}", quoted(&promote))];
    let mut add = |name: &str, value: Option<String>| {
        keys.extend(value.map(|value| format!("{name} = {}", quoted(&value))));
    };
    add("cgroup", rule.cgroup.clone());
    add("user", rule.user.clone());
    add("command", rule.command.clone());
    add("budget", rule.budget.map(|budget| budget.to_string()));
    add("policy", (rule.policy != Policy::Heat).then(|| rule.policy.name().as_str().to_owned()));
    format!("{{ {} }}", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::super::config::Config;
    use super::*;

    fn read(text: &str) -> Result<Vec<Rule>, String> {
        let config = Config::read(text, "d.toml", &|_| {}).map_err(|error| error.to_string())?;
        let again = Config::read(&config.print(), "d.toml", &|_| {});
        assert_eq!(again.unwrap(), config, "what is printed is read again");
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
    fn a_rule_with_an_error_is_refused_with_its_line() {
        for rule in [
            "command = \"x\"",
            "promote = \"yes\"",
            "promote = \"allow\"\nbugdet = \"1GiB\"",
            "promote = \"allow\"\nbudget = \"much\"",
            "promote = \"allow\"\nuser = 999",
            "promote = \"allow\"\ncgroup = \"db.slice\"",
            "promote = \"allow\"\npolicy = \"best\"",
            "promote = \"allow\"\npolicy = \"emd\"",
            "promote = \"allow\"\ncommand = \"a-name-longer-than-15\"",
        ] {
            let error = read(&format!("high = \"70%\"\n[[rule]]\n{rule}\n")).unwrap_err();
            assert!(error.starts_with("d.toml:2: rule: "), "{rule}: {error}");
            assert!(error.contains("\"allow\" or \"deny\""), "{error}");
        }
    }
}
