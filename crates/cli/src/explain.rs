//! `hugepilot explain`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use hugepilot_policy::explain::{Explainer, Shown, ShownRegions};
use hugepilot_policy::journal::JournalRound;
use hugepilot_policy::tune::{JournalSchedule, NoSchedule};
use hugepilot_render::{counted, json};
use hugepilot_reports::explain::ExplainReport;
use hugepilot_reports::explain_text;
use hugepilot_units::{AddrRange, VirtAddr};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::journal::{JournalFile, JournalUser};
use crate::new_file::Output;
use crate::output::{Progress, print, width};
use crate::schedule;

/// Explain each round of a tune, a debloat or the daemon from its journal
///
/// Decides every round again, and compares the decisions with those of the journal. Reads nothing
/// but FILE, so a journal of another machine can be explained anywhere. A recording has a journal.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot tune -p 4711 --journal tune.ndjson          record a tune
  hugepilot explain tune.ndjson                         each round and process
  hugepilot explain tune.ndjson --round 1 --region all  the regions of one round
  hugepilot explain debloat.ndjson --region all         the splits of a debloat or the daemon
  hugepilot explain tune.ndjson --region 0x7f2a40000000
                                                        one region in each round
  hugepilot explain tune.ndjson --schedule s.ndjson     its promotions, for tune --schedule

Exit status: 0 all decisions reproduced, 1 a decision differs, 2 error or damaged journal")]
pub(crate) struct ExplainArgs {
    /// File that --journal or --record of tune, debloat, daemon or sim wrote; - reads the standard
    /// input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Show only this round, counted from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    round: Option<u64>,
    /// Also list regions: the one with this address, or all that a round promotes, demotes or
    /// splits
    #[arg(long, value_name = "ADDR|all", value_parser = parse_region)]
    region: Option<ShownRegions>,
    /// Also write the verified promotions and demotions to OUT, for tune --schedule: those of the
    /// process with the most (schema hugepilot.schedule/1)
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath, conflicts_with = "round")]
    schedule: Option<PathBuf>,
    /// Print one JSON object (schema hugepilot.explain/1)
    #[arg(long)]
    json: bool,
}

fn parse_region(text: &str) -> Result<ShownRegions, &'static str> {
    if text == "all" {
        return Ok(ShownRegions::Acted);
    }
    let address = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let shown = address.map(|address| ShownRegions::At(VirtAddr::new(address)));
    shown.ok_or("expected an address, such as 0x7f2a40000000, or all")
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let mut file = JournalFile::open(&args.file, JournalUser::EXPLAIN)?;
    let shown = Shown { round: args.round, regions: args.region };
    let mut explainer = Explainer::new(shown, file.started());
    let create =
        |path| Output::create(path, "the schedule", "--schedule", true).map(|to| (path, to));
    let target = args.schedule.as_deref().map(create).transpose()?;
    let mut events = JournalSchedule::default();
    let (mut number, mut region) = (0, None);
    file.read(|goal, round| {
        number += 1;
        if let Some(ShownRegions::At(address)) = args.region
            && args.round.is_none_or(|only| only == number)
        {
            region = region.or_else(|| region_at(round, address));
        }
        explainer.add(goal, round);
        if target.is_some() {
            events.add(goal, round);
        }
    })?;
    if let Some((path, to)) = target {
        write_schedule(events, path, to)?;
    }
    let version = file.reader.version().to_owned();
    let report = ExplainReport { version, ..explainer.finish(file.reader.cut_bytes()) };
    if let Some(round) = args.round.filter(|&round| round > report.rounds) {
        return Err(no_round(round, report.rounds).into());
    }
    match (args.region, region) {
        (Some(ShownRegions::At(address)), None) => return Err(args.no_region(address).into()),
        (Some(ShownRegions::At(address)), Some(region)) if address != region.start => {
            eprintln!("note: {address} is in region {}", region.start);
        }
        _ => {}
    }
    print(&if args.json { json(&report) } else { explain_text(&report, width()) })?;
    Ok(if report.is_reproduced() { Exit::Yes } else { Exit::No })
}

impl ExplainArgs {
    /// The failure that no process of the journal, or of the round, has a region at `address`.
    fn no_region(&self, address: VirtAddr) -> Failure {
        let what = self.round.map_or_else(
            || format!("the journal has no region at {address}"),
            |round| format!("round {round} of the journal has no region at {address}"),
        );
        let help = format!(
            "list the regions that each round promotes, demotes or splits: hugepilot explain {} \
             --region all",
            self.file.display()
        );
        Failure::new(what, Exit::Error).with_help([help])
    }
}

/// The failure that the journal has only `rounds`.
fn no_round(round: u64, rounds: u64) -> Failure {
    let cause = format!("the journal has {}", counted(rounds, "round", "rounds"));
    let help = match rounds {
        0 => "record a longer run".to_owned(),
        _ => format!("name a round up to {rounds}, or omit --round for all"),
    };
    Failure::new(format!("no round {round}"), Exit::Error).because(cause).with_help([help])
}

/// The region with `address`, if a process of the round has it: in part or all of a mapping, or as
/// a bloated huge page.
fn region_at(round: &JournalRound, address: VirtAddr) -> Option<AddrRange> {
    match round {
        JournalRound::Tune(round) => round.rows.iter().find_map(|row| {
            let memory = &row.seen.memory;
            let region = memory.sizes.region_of(address).range(memory.sizes);
            let mappings = &memory.mappings;
            let is_mapped =
                mappings.iter().any(|mapping| !mapping.range.intersect(region).is_empty());
            is_mapped.then_some(region)
        }),
        JournalRound::Debloat(round) => round.rows.iter().find_map(|row| {
            let census = &row.seen.census;
            let sizes = census.sizes;
            let region = sizes.region_of(address);
            let bloated = &census.bloated;
            bloated.iter().any(|page| page.region == region).then(|| region.range(sizes))
        }),
        // Its regions are those of the splits that follow.
        JournalRound::Daemon(_) => None,
    }
}

/// Writes the schedule, and notes what it does not have.
fn write_schedule(events: JournalSchedule, path: &Path, to: Output) -> anyhow::Result<()> {
    let (schedule, others) = events.finish().map_err(|error| {
        let failure = Failure::new("cannot write a schedule of the journal", Exit::Error);
        let help = match error {
            NoSchedule::NoMapping => {
                "simulate the program itself, whose mappings are known: hugepilot sim pcc \
                 --journal FILE -- CMD"
            }
            _ => "record a tune that promotes: hugepilot tune -p PID --journal FILE",
        };
        failure.because(error.to_string()).with_help([help.to_owned()])
    })?;
    schedule::write(&schedule, to)?;
    if others > 0 {
        let shown = path.display();
        Progress::new().keep(&format!(
            "warning: {shown} lacks {} of other processes or of unmapped memory",
            counted(others, "promotion or demotion", "promotions or demotions")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hugepilot_policy::Priority;
    use hugepilot_policy::debloat::round::{SeenProcess, SplitOutcomes, SplitRound, SplitRow};
    use hugepilot_record::{BloatedPage, Census, Pid, ProcessId, Skips, SplitPlan};
    use hugepilot_units::{Bytes, Nanos, PageSizes, Region};

    use super::*;

    #[test]
    fn a_region_is_an_address_or_all() {
        let at = |address| Ok(ShownRegions::At(VirtAddr::new(address)));
        assert_eq!(parse_region("all"), Ok(ShownRegions::Acted));
        assert_eq!((parse_region("0x200000"), parse_region("2097152")), (at(1 << 21), at(1 << 21)));
        for wrong in ["", "0x", "-1", "ALL", "0x1ffffffffffffffff", "7f2a"] {
            assert!(parse_region(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_round_beyond_the_journal_has_a_cause_and_help() {
        let failure = no_round(99, 6);
        assert_eq!(failure.to_string(), "no round 99: the journal has 6 rounds");
        assert!(format!("{failure:?}").contains("name a round up to 6, or omit"), "{failure:?}");
    }

    #[test]
    fn a_round_of_splits_has_the_regions_of_its_census() {
        let bloated = BloatedPage {
            region: Region::new(2),
            zero_pages: 9,
            first_zero_page: 0,
            table_lines: 4,
        };
        let census = Census {
            process: ProcessId { pid: Pid(7), start_ticks: 1, command: "x".to_owned() },
            sizes: PageSizes::X86_64,
            bloated: vec![bloated],
            huge_pages: 1,
            read_pages: 1,
            unread_pages: 0,
            stranded: None,
            skipped: Skips::default(),
            took: Nanos::ZERO,
        };
        let (priority, past) = (Priority::Normal, std::collections::BTreeMap::new());
        let seen = SeenProcess { census, stalls: None, priority, weight: 1.0, past };
        let round = SplitRound {
            time: Nanos::ZERO,
            rows: vec![SplitRow { seen, outcome: SplitOutcomes::default() }],
            wanted: Bytes::ZERO,
            plan: SplitPlan::default(),
            dry_run: true,
            stopped: None,
        };
        let at = |address| {
            region_at(&JournalRound::Debloat(round.clone().into()), VirtAddr::new(address))
        };
        let region = Some(Region::new(2).range(PageSizes::X86_64));
        assert_eq!((at(4 << 20), at((6 << 20) - 1)), (region, region));
        assert_eq!((at(0), at(6 << 20), at(u64::MAX)), (None, None, None));
    }
}
