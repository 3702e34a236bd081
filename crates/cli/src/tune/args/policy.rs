//! Flags of `tune` that choose the policy.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum, ValueHint};
use hugepilot_kernel::Root;
use hugepilot_kernel::thp::{MAX_PTES_NONE, ThpSettings};
use hugepilot_manager::names::parse_who;
use hugepilot_policy::tune::{KhugepagedRules, Policy, ScheduleRules, Selection};
use hugepilot_record::PolicyName;
use hugepilot_reports::{policy_line, policy_refusal};
use hugepilot_units::Nanos;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::schedule;

#[derive(Args)]
pub(crate) struct PolicyArgs {
    /// Policy that selects the regions
    #[arg(long, value_enum, default_value_t = NameArg(PolicyName::Heat), value_name = "NAME")]
    policy: NameArg,
    /// With --policy pcc: order among the candidates of several processes [default: highest]
    #[arg(long, value_enum, value_name = "ORDER", hide_short_help = true)]
    selection: Option<SelectionArg>,
    /// With --policy pcc: process whose candidates come first, by pid or name; repeatable
    #[arg(long, value_name = "WHO", value_parser = parse_who, hide_short_help = true)]
    prefer: Vec<String>,
    /// With --policy pcc: demote promoted regions that still stall much for candidates that would
    /// save more, once --budget is spent
    #[arg(long, hide_short_help = true)]
    demote: bool,
    /// Replay the promotions and demotions of FILE (schema hugepilot.schedule/1), which a simulator
    /// or `explain --schedule` wrote. `-` reads the standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["policy", "selection", "prefer", "demote"], hide_short_help = true)]
    pub(super) schedule: Option<PathBuf>,
    /// Expected duration of the program, which turns the events' shares of the run into times
    /// [default: the seconds of the file]
    #[arg(long, value_name = "TIME", requires = "schedule", hide_short_help = true)]
    schedule_time: Option<Nanos>,
}

/// A name of the registry. Orders of splitting are hidden, and refused with a better cause than
/// that of a name that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NameArg(PolicyName);

impl ValueEnum for NameArg {
    fn value_variants<'a>() -> &'a [Self] {
        const NAMES: [NameArg; PolicyName::ALL.len()] = {
            let mut names = [NameArg(PolicyName::Heat); PolicyName::ALL.len()];
            let mut index = 0;
            while index < names.len() {
                names[index] = NameArg(PolicyName::ALL[index]);
                index += 1;
            }
            names
        };
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let value = PossibleValue::new(self.0.as_str()).help(policy_line(self.0));
        Some(value.hide(!self.0.promotes()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SelectionArg {
    /// Most stalls first, of whichever process
    Highest,
    /// Processes in turn, a candidate of each
    RoundRobin,
}

impl PolicyArgs {
    /// Whether the policy makes trials.
    pub(super) fn makes_trials(&self) -> bool {
        self.policy.0 == PolicyName::Heat && self.schedule.is_none()
    }

    /// Reads the schedule, if one is named.
    pub(crate) fn rules(&self) -> anyhow::Result<Option<ScheduleRules>> {
        let Some(path) = &self.schedule else { return Ok(None) };
        schedule::rules(path, self.schedule_time).map(Some)
    }

    /// Returns the policy with its rules.
    ///
    /// # Errors
    /// An order of splitting, or a rule of another policy.
    pub(super) fn policy(&self) -> Result<Policy, Failure> {
        let name = self.policy.0;
        let failure = |what: &str| Failure::new(what, Exit::Error);
        if name == PolicyName::Schedule {
            return Err(failure("--policy schedule requires a file")
                .because("its promotions are those of a schedule")
                .with_help(["name it instead of the policy: --schedule FILE".to_owned()]));
        }
        let Some(mut policy) = Policy::of(name) else {
            let (cause, help) = policy_refusal(name).unwrap_or_default();
            let failure = failure(&format!("--policy {name} cannot select regions for tune"));
            return Err(failure.because(cause).with_help([help]));
        };
        if let Policy::Khugepaged(rules) = &mut policy {
            *rules = khugepaged(&Root::live());
        }
        let flag = match self {
            Self { selection: Some(_), .. } => "--selection",
            Self { demote: true, .. } => "--demote",
            _ => "--prefer",
        };
        if let Policy::Pcc(rules) = &mut policy {
            rules.selection = match self.selection {
                None | Some(SelectionArg::Highest) => Selection::HighestFrequency,
                Some(SelectionArg::RoundRobin) => Selection::RoundRobin,
            };
            rules.bias.clone_from(&self.prefer);
            rules.demote = self.demote;
        } else if self.selection.is_some() || self.demote || !self.prefer.is_empty() {
            let failure = failure(&format!("{flag} requires --policy pcc"));
            return Err(failure
                .because(format!("{name} has its own rules"))
                .with_help([format!("omit {flag}, or use --policy pcc")]));
        }
        Ok(policy)
    }
}

/// Returns the rules of khugepaged, with the limit of missing pages that the kernel has.
fn khugepaged(root: &Root) -> KhugepagedRules {
    let rules = KhugepagedRules::default();
    let set = ThpSettings::read(root).chosen(MAX_PTES_NONE).and_then(|text| text.parse().ok());
    KhugepagedRules { max_ptes_none: set.unwrap_or(rules.max_ptes_none), ..rules }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    fn policy(line: &str) -> Result<Policy, String> {
        let command = PolicyArgs::augment_args(clap::Command::new("tune"));
        let words = ["tune"].into_iter().chain(line.split_whitespace());
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let args = PolicyArgs::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        args.policy().map_err(|failure| failure.to_string())
    }

    #[test]
    fn every_policy_has_its_name_and_orders_of_splitting_are_refused() {
        for name in PolicyName::ALL {
            match policy(&format!("--policy {name}")) {
                Ok(policy) => assert_eq!((policy.name(), name.promotes()), (name, true)),
                Err(error) if name == PolicyName::Schedule => {
                    assert!(error.starts_with("--policy schedule requires a file"), "{error}");
                }
                Err(error) => {
                    assert!(!name.promotes() && error.contains("huge pages to split"), "{error}");
                }
            }
        }
        let error = policy("--policy cold").unwrap_err();
        assert!(error.contains("khugepaged, hawkeye, all, never, schedule"), "{error}");
    }

    #[test]
    fn a_schedule_excludes_the_flags_of_other_policies() {
        assert!(policy("--schedule s.ndjson --schedule-time 20s").is_ok());
        for line in [
            "--schedule s.ndjson --policy pcc",
            "--schedule s.ndjson --prefer 7",
            "--schedule-time 20s",
        ] {
            assert!(policy(line).is_err(), "{line}");
        }
        let error = policy("--policy schedule").unwrap_err();
        assert!(error.starts_with("--policy schedule requires a file"), "{error}");
    }

    #[test]
    fn rules_of_pcc_are_those_of_its_flags() {
        let Policy::Pcc(rules) =
            policy("--policy pcc --selection round-robin --prefer 7 --prefer db").unwrap()
        else {
            panic!("another policy")
        };
        assert_eq!(
            (rules.selection, rules.bias),
            (Selection::RoundRobin, ["7", "db"].map(str::to_owned).to_vec())
        );
        for (line, flag) in [
            ("--selection highest", "--selection"),
            ("--policy all --prefer 7", "--prefer"),
            ("--policy hawkeye --selection round-robin --prefer 7", "--selection"),
        ] {
            let error = policy(line).unwrap_err();
            assert!(error.starts_with(&format!("{flag} requires --policy pcc")), "{error}");
        }
    }

    #[test]
    fn khugepaged_has_the_limit_of_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(khugepaged(&root), KhugepagedRules::default(), "no such setting");
        let file = root.join(hugepilot_kernel::thp::file(MAX_PTES_NONE));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "64\n").unwrap();
        assert_eq!(khugepaged(&root).max_ptes_none, 64);
        let live = Policy::Khugepaged(khugepaged(&Root::live()));
        assert_eq!(policy("--policy khugepaged"), Ok(live));
    }
}
