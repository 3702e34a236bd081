//! Commands that are killed, and the setup of each.

use std::fmt::Write;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use hugepilot_testkit::cgroup::Cgroup;
use hugepilot_testkit::need::available;
use hugepilot_testkit::{Victim, compiled};
use hugepilot_units::Bytes;
use serde_json::Value;

use super::super::settings::pool_pages;
use super::super::tool::{CommandResult, target};
use crate::random::Random;

/// Page sizes in KiB.
const TWO_MIB: u64 = 2048;
const ONE_GIB: u64 = 1 << 20;
/// Limit on the 2 MiB pages that `pool set` requests.
const MOST_PAGES: u64 = 1024;
/// Sleep of a program that is killed while it sleeps.
const LONG_MS: u64 = 20_000;
const SHORT_MS: u64 = 60;
/// Size of a cgroup that is nearly full with 64 huge pages, of which a fifth is in use.
const LIMIT_OF_GROUP: Bytes = Bytes::mib(150);
/// Script with two processes that use hugetlb pages; only the shell waits for the second one.
const FAMILY: &str = r#""$0" 4 4 20000 & child=$!; "$0" 4 4 "$1"; kill "$child"; wait"#;

/// Command that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    Compare,
    Run,
    PoolSet,
    Shrinker,
    Daemon,
    Tune,
    Promoter,
    Pressure,
    Fragment,
    PageCache,
}

/// Arguments and target of a command.
pub(super) struct CaseSetup {
    /// Words of the command.
    pub(super) line: String,
    /// Words with blanks in them.
    more: Vec<String>,
    /// Request of `pool set`.
    pub(super) request: Option<Request>,
    /// Program to promote or to debloat, and its cgroup, which outlives it.
    target: Option<(Victim, Option<Cgroup>)>,
}

impl CaseSetup {
    fn new(line: String) -> Self {
        Self { line, more: Vec::new(), request: None, target: None }
    }

    pub(super) fn more(&self) -> Vec<&str> {
        self.more.iter().map(String::as_str).collect()
    }

    /// Ends the program that was changed; an error if its memory is wrong.
    pub(super) fn ends_well(&mut self) -> Result<()> {
        self.target.as_mut().map_or(Ok(()), |(victim, _)| super::ends_well(victim))
    }
}

impl Case {
    pub(super) const ALL: [Self; 10] = [
        Self::Compare,
        Self::Run,
        Self::PoolSet,
        Self::Shrinker,
        Self::Daemon,
        Self::Tune,
        Self::Promoter,
        Self::Pressure,
        Self::Fragment,
        Self::PageCache,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Compare => "compare --pool",
            Self::Run => "run --pool",
            Self::PoolSet => "pool set",
            Self::Shrinker => "debloat --backend shrinker",
            Self::Daemon => "daemon",
            Self::Tune => "tune",
            Self::Promoter => "daemon --promote",
            Self::Pressure => "lab pressure",
            Self::Fragment => "lab fragment",
            Self::PageCache => "lab page-cache",
        }
    }

    /// Longest time until the command is killed.
    pub(super) const fn longest(self) -> Duration {
        match self {
            // The daemon knows how busy a process is after two scans, 3 s apart.
            Self::Promoter => Duration::from_secs(8),
            Self::Tune => Duration::from_secs(4),
            _ => Duration::from_secs(2),
        }
    }

    /// Whether the command works until a signal.
    pub(super) const fn is_endless(self) -> bool {
        matches!(self, Self::Daemon | Self::Promoter | Self::PageCache) || self.holds_memory()
    }

    /// Whether the command holds memory that others must have back after it.
    pub(super) const fn holds_memory(self) -> bool {
        matches!(self, Self::Pressure | Self::Fragment)
    }

    /// Chooses the arguments of the command and starts its target. With `may_be_long`, programs may
    /// sleep until they are killed.
    pub(super) fn prepare(self, random: &mut Random, may_be_long: bool) -> Result<CaseSetup> {
        let holder = compiled(Path::new("hugetlb.c")).display().to_string();
        let long = may_be_long && random.one_in(2);
        let sleep = if long { LONG_MS } else { SHORT_MS }.to_string();
        // More than the pool has, so that its count changes.
        let pages = pool_pages(TWO_MIB)? + 8 + random.below(120);
        let pool = format!("--pool {}", Bytes::kib(TWO_MIB * pages).get());
        Ok(match self {
            Self::Compare => CaseSetup {
                more: ["--", "sh", "-c", FAMILY, &holder, &sleep].map(str::to_owned).to_vec(),
                ..CaseSetup::new(format!(
                    "compare --json --no-stalls --modes hugetlb --rounds 2 {pool}"
                ))
            },
            Self::Run => CaseSetup {
                more: ["--", &holder, "4", "4", &sleep].map(str::to_owned).to_vec(),
                ..CaseSetup::new(format!("run --quiet --pages hugetlb {pool}"))
            },
            Self::PoolSet => {
                let request = Request::choose(random)?;
                CaseSetup { request: Some(request), ..CaseSetup::new(request.line()) }
            }
            Self::Shrinker | Self::Daemon => {
                let group = Cgroup::new(LIMIT_OF_GROUP);
                let mut command = group.command(&compiled(Path::new("bloated.c")));
                command.args(["64", "5", "busy"]).process_group(0);
                let victim = Victim::spawn(command);
                victim.ready(Duration::from_secs(30));
                let line = self.line_of(&group);
                CaseSetup { target: Some((victim, Some(group))), ..CaseSetup::new(line) }
            }
            Self::Tune | Self::Promoter => {
                let victim = target(&["storm.c", "128", "1", &random.below(1000).to_string()]);
                victim.ready(Duration::from_secs(30));
                let line = self.line_of_promotion(&victim, random)?;
                CaseSetup { target: Some((victim, None)), ..CaseSetup::new(line) }
            }
            Self::Pressure => {
                let held = Bytes::mib(64 * (8 + random.below(24)));
                let left = available() - held;
                CaseSetup::new(format!("lab pressure --leave {} --json", left.get()))
            }
            Self::Fragment => {
                let kind = random.pick(&["unmovable", "movable"]);
                CaseSetup::new(format!("lab fragment --level 5% --kind {kind} --json"))
            }
            Self::PageCache => CaseSetup::new("lab page-cache --size 1GiB --json".to_owned()),
        })
    }

    fn line_of(self, group: &Cgroup) -> String {
        let path = group.path().display();
        if self == Self::Daemon {
            format!("daemon --order exact --interval 50ms --cgroup {path}")
        } else {
            format!("debloat --backend shrinker --json --cgroup {path}")
        }
    }

    fn line_of_promotion(self, victim: &Victim, random: &mut Random) -> Result<String> {
        let pid = victim.pid();
        if self == Self::Promoter {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"))?;
            return Ok(format!("daemon --cpu 100% --promote {}", name.trim()));
        }
        // A trial, or all of the memory at once.
        let how = random.pick(&["--observe 300ms", "--policy all --observe 100ms"]);
        Ok(format!(
            "tune -p {pid} --json --calibration off --rate 8000 --for 4s --budget 100% {how}"
        ))
    }

    /// Command that restores settings after SIGKILL.
    pub(super) fn recovery(self, setup: &CaseSetup, random: &mut Random) -> String {
        let next = match (self, &setup.target) {
            (Self::Shrinker, Some((_, Some(group)))) => self.line_of(group),
            _ => random.pick(&["pool show", "run --quiet --pages hugetlb -- true"]).to_owned(),
        };
        if random.one_in(2) { "doctor".to_owned() } else { next }
    }
}

/// Requested count of pages in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    kib: u64,
    before: u64,
    wanted: u64,
}

impl Request {
    fn choose(random: &mut Random) -> Result<Self> {
        let huge = random.one_in(8);
        let (kib, most) = if huge { (ONE_GIB, 1) } else { (TWO_MIB, MOST_PAGES) };
        Ok(Self { kib, before: pool_pages(kib)?, wanted: random.below(most + 1) })
    }

    fn line(self) -> String {
        let mut line = "pool set --json".to_owned();
        let _ = write!(line, " --size {} --count {}", Bytes::kib(self.kib).get(), self.wanted);
        line
    }

    /// Whether the count is neither the old one nor the new one.
    ///
    /// # Errors
    /// If the count is outside the old and new one, differs from the report, or changed without a
    /// report although the command was not killed by SIGKILL.
    pub(super) fn is_between(self, done: &CommandResult, sigkill: bool) -> Result<bool> {
        self.judge(pool_pages(self.kib)?, done.json().as_ref(), sigkill)
    }

    fn judge(self, now: u64, report: Option<&Value>, sigkill: bool) -> Result<bool> {
        let Self { before, wanted, .. } = self;
        let reported = report.and_then(|report| {
            let after = &report["after"];
            Some(after["total"].as_u64()? - after["surplus"].as_u64()?)
        });
        if let Some(reported) = reported {
            ensure!(now == reported, "`pool set` reported {reported} pages, but {now} exist");
        } else if !sigkill {
            ensure!(
                now == before,
                "`pool set` reported nothing, but {now} pages exist, {before} before"
            );
        }
        let (least, most) = (before.min(wanted), before.max(wanted));
        ensure!((least..=most).contains(&now), "{now} pages, {before} before, {wanted} wanted");
        Ok(now != before && now != wanted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_has_the_old_count_or_the_new_one_or_what_was_reported() {
        let request = Request { kib: TWO_MIB, before: 10, wanted: 20 };
        let report = |total: u64| json!({"after": {"total": total, "surplus": 0}});
        let judge =
            |now, report: Option<Value>, sigkill| request.judge(now, report.as_ref(), sigkill).ok();
        assert_eq!(judge(20, Some(report(20)), false), Some(false));
        assert_eq!(judge(10, None, false), Some(false));
        assert_eq!(
            judge(15, Some(report(15)), false),
            Some(true),
            "a signal ended it, and it was reported"
        );
        assert_eq!(judge(15, None, true), Some(true), "SIGKILL can report nothing");
        assert_eq!(judge(15, None, false), None, "it was not reported");
        assert_eq!(judge(15, Some(report(20)), false), None, "it is not so");
        assert_eq!(judge(21, Some(report(21)), false), None, "more than anyone wanted");
        assert_eq!(judge(9, None, true), None);
    }

    #[test]
    fn sizes_are_those_of_the_pools() {
        let request = Request { kib: ONE_GIB, before: 0, wanted: 1 };
        assert_eq!(request.line(), "pool set --json --size 1073741824 --count 1");
    }
}
