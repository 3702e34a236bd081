//! Rules: which processes the daemon promotes, within which budget, by which policy.

use hugepilot_record::ProcessId;
use hugepilot_units::{Amount, Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::tune::Policy;

/// Answer of a rule for the processes that match it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Their memory is promoted where it pays.
    Allow,
    /// The daemon never promotes them.
    #[default]
    Deny,
}

/// Rule of the configuration. The first rule that matches a process decides; a process without one
/// is never promoted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Cgroup of the process, or an ancestor of it: its path below the cgroup root, `/db.slice`.
    /// `None` matches every cgroup.
    pub cgroup: Option<String>,
    /// Name or number of the user; `None` matches every user.
    pub user: Option<String>,
    /// Name of the process; `None` matches every name.
    pub command: Option<String>,
    /// Whether the processes are promoted.
    pub promote: Permission,
    /// Most memory on huge pages that the daemon makes in all processes of the rule together;
    /// `None` for as much as pays.
    pub budget: Option<Amount>,
    /// Policy that selects the regions.
    pub policy: Policy,
    /// Whether processes that fork are promoted like others.
    #[serde(default)]
    pub despite_forks: bool,
}

/// Process as the rules see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The process.
    pub id: ProcessId,
    /// Number of its user.
    pub user: u32,
    /// Name of its user, if `/etc/passwd` has one.
    pub user_name: Option<String>,
    /// Path of its cgroup below the cgroup root.
    pub cgroup: String,
    /// Resident memory.
    pub resident: Bytes,
    /// CPU time since its start, all threads.
    pub cpu: Nanos,
}

impl Rule {
    /// Whether the rule is about this process.
    pub fn matches(&self, process: &ProcessFacts) -> bool {
        let is_below = |group: &String| {
            let rest = process.cgroup.strip_prefix(group.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.cgroup.as_ref().is_none_or(is_below)
            && self.user.as_ref().is_none_or(|user| process.is_of(user))
            && self.command.as_ref().is_none_or(|command| *command == process.id.command)
    }
}

impl ProcessFacts {
    /// Whether the process runs as `user`, a name or a number.
    fn is_of(&self, user: &str) -> bool {
        self.user_name.as_deref() == Some(user) || user.parse() == Ok(self.user)
    }
}

/// Returns the index of the rule that allows to promote `process`, if one does.
pub fn allowed_by(rules: &[Rule], process: &ProcessFacts) -> Option<usize> {
    let index = rules.iter().position(|rule| rule.matches(process))?;
    (rules[index].promote == Permission::Allow).then_some(index)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;

    fn redis() -> ProcessFacts {
        ProcessFacts {
            id: ProcessId { pid: Pid(7), start_ticks: 1, command: "redis-server".into() },
            user: 999,
            user_name: Some("redis".into()),
            cgroup: "/db.slice/redis.service".into(),
            resident: Bytes::gib(1),
            cpu: Nanos::ZERO,
        }
    }

    #[test]
    fn a_rule_matches_by_all_that_it_names() {
        let matches = |rule: Rule| rule.matches(&redis());
        assert!(matches(Rule::default()));
        for (cgroup, expected) in [
            ("/db.slice", true),
            ("/db.slice/", true),
            ("/", true),
            ("/db.slice/redis.service", true),
            ("/db", false),
            ("/db.slice/redis", false),
            ("/web.slice", false),
        ] {
            let rule = Rule { cgroup: Some(cgroup.into()), ..Rule::default() };
            assert_eq!(matches(rule), expected, "{cgroup}");
        }
        for (user, expected) in [("999", true), ("redis", true), ("0", false), ("root", false)] {
            assert_eq!(matches(Rule { user: Some(user.into()), ..Rule::default() }), expected);
        }
        let command = Some("redis-server".to_owned());
        let user = |user: &str| Some(user.to_owned());
        let command = || command.clone();
        assert!(matches(Rule { command: command(), user: user("redis"), ..Rule::default() }));
        assert!(!matches(Rule { command: command(), user: user("1"), ..Rule::default() }));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let allow = Rule { promote: Permission::Allow, ..Rule::default() };
        let deny = Rule { user: Some("redis".into()), ..Rule::default() };
        assert_eq!(allowed_by(&[], &redis()), None, "promotion is opt-in");
        assert_eq!(allowed_by(&[deny.clone(), allow.clone()], &redis()), None);
        assert_eq!(allowed_by(&[allow.clone(), deny], &redis()), Some(0));
        let other = Rule { command: Some("mysqld".into()), ..Rule::default() };
        assert_eq!(allowed_by(&[other, allow], &redis()), Some(1));
    }
}
