//! `hugepilot compare`: a program in several page modes, interleaved.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use hugepilot_launch::compare::{CompareOptions, ComparisonSize, Event, RoundProgress, prepare};
use hugepilot_record::Mode;
use hugepilot_render::{Sentence, counted};
use hugepilot_reports::compare::CompareReport;
use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish_report};
use crate::recording::{RecordFlag, RunFiles};
use crate::recover;
use crate::run::{MODES, mode};

/// Run a program in several page modes and compare run times
///
/// Each mode is compared with `base` in the same round; the best of several modes and `base` run
/// again for the same number of rounds, at least 5, and these decide. Only `--pool` changes a
/// kernel setting, until each run ends, and requires root.
#[derive(Debug, Args)]
#[command(after_help = format!("{MODES}\n\n\
Examples:\n  \
  hugepilot compare -- ./solve input.txt                              all modes\n  \
  sudo hugepilot compare --pool 2GiB --rounds 9 -- ./solve input.txt  with hugetlb pools\n  \
  hugepilot compare --modes glibc-thp,mimalloc-2m -- python3 job.py   two modes\n  \
  hugepilot compare --json -- ./solve | jq .verdict                   verdict as JSON\n  \
  hugepilot compare -- hugepilot lab workload hash-insert             a test workload\n  \
  hugepilot compare --record solve.rec -- ./solve                     each run, for report\n\n\
Exit status: 0 a mode pays, 1 none does, 2 error, 3 only base is available here\n\
(see `hugepilot doctor`), 128 + n ended by signal n before the first complete round"))]
pub(crate) struct CompareArgs {
    /// Page modes besides base, from the list below [default: all]
    #[arg(long, value_name = "MODE", value_delimiter = ',', num_args = 1, value_parser = mode(),
          hide_possible_values = true)]
    modes: Vec<Mode>,
    /// Rounds, each with one run of each mode, 1 to 1000
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Library to preload: mimalloc by its name, otherwise hugepilot's; repeatable
    /// [default: the installed ones]
    #[arg(long = "library", value_name = "FILE")]
    libraries: Vec<PathBuf>,
    /// Free memory in a mode's hugetlb pool during each of its runs [default: unchanged]
    #[arg(long, value_name = "BYTES")]
    pool: Option<Bytes>,
    /// No stall sampling; warm-up of base only
    #[arg(long)]
    no_stalls: bool,
    /// Output of the program on stderr instead of /dev/null
    #[arg(long)]
    show_output: bool,
    #[command(flatten)]
    record: RecordFlag,
    /// JSON on stdout (schema hugepilot.compare/2)
    #[arg(long)]
    json: bool,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD", num_args = 1..,
          value_hint = ValueHint::ExecutablePath)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    recover::pending();
    let progress = Progress::new();
    let modes = if args.modes.is_empty() { Mode::ALL.to_vec() } else { args.modes.clone() };
    let options = CompareOptions {
        modes,
        rounds: args.rounds,
        libraries: args.libraries.clone(),
        pool: args.pool,
        stalls: !args.no_stalls,
        show_output: args.show_output,
    };
    let mut say = |event: Event<'_>| show(&progress, &event);
    let mut files = RunFiles::open(None, args.record.path())?;
    let comparison = prepare(&args.command, &options, &mut say)?;
    // A pool must be restored, also after a hangup. Until here a signal ends hugepilot at once.
    let interrupt = Interrupt::only_ask()?;
    files.begin(None)?;
    let mut follow = |event: Event<'_>| {
        if let Event::Ran { mode, confirming, round, run } = event {
            let name = format!("{mode}{}", if confirming { ", confirmation" } else { "" });
            files.add_trial(name, round.into(), run.wall_seconds, run);
        }
        show(&progress, &event);
    };
    let report = comparison.run(&|| interrupt.is_asked(), &mut follow)?;
    drop(progress);
    files.add_report(&report);
    finish_report(&report, args.json)?;
    files.finish()?;
    Ok(exit_of(&report))
}

fn exit_of(report: &CompareReport) -> Exit {
    let ran = report.modes.iter().any(|mode| mode.mode != Mode::Base && mode.runs > 0);
    match report.pays {
        true => Exit::Yes,
        false if ran => Exit::No,
        false => Exit::Unsupported,
    }
}

fn round_line(done: RoundProgress) -> String {
    let what = if done.confirming { "confirming: round" } else { "round" };
    let RoundProgress { round, rounds, left, may_confirm, .. } = done;
    let left = left.as_secs_f64().ceil();
    let left = if may_confirm {
        format!("up to {left:.0} s left with confirmation")
    } else {
        format!("about {left:.0} s left")
    };
    format!("{what} {round} of {rounds} complete, {left}")
}

fn size_line(size: ComparisonSize) -> String {
    let ComparisonSize { modes, rounds, confirming_rounds } = size;
    let modes = counted(modes as u64, "mode", "modes");
    let mut line = format!("{modes}, {}", counted(rounds.into(), "round", "rounds"));
    if confirming_rounds > 0 {
        line += &format!("; {confirming_rounds} confirmation rounds may follow");
    }
    line
}

fn show(progress: &Progress, event: &Event<'_>) {
    match event {
        Event::Start(size) => progress.round(&size_line(*size)),
        Event::WarmingUp(mode) => progress.now(format!("warming up: {mode}")),
        Event::Running(mode, round, rounds) => {
            progress.now(format!("round {round} of {rounds}: {mode}"))
        }
        Event::Confirming(mode, round, rounds) => {
            progress.now(format!("confirming: round {round} of {rounds}: {mode}"));
        }
        Event::Ran { .. } => {}
        Event::Round(done) => progress.round(&round_line(*done)),
        Event::Unavailable(mode) => {
            progress.keep(&format!("{} is unavailable: {}", mode.mode, mode.effect.cause.text()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_size_names_confirmation_only_if_it_may_follow() {
        let line = |modes, rounds, confirming_rounds| {
            size_line(ComparisonSize { modes, rounds, confirming_rounds })
        };
        assert_eq!(line(4, 5, 5), "4 modes, 5 rounds; 5 confirmation rounds may follow");
        assert_eq!(line(2, 1, 0), "2 modes, 1 round");
    }

    #[test]
    fn a_round_line_has_the_time_left() {
        let left = Duration::from_millis(11_500);
        let done =
            RoundProgress { confirming: false, round: 2, rounds: 5, left, may_confirm: false };
        assert_eq!(round_line(done), "round 2 of 5 complete, about 12 s left");
        let done = RoundProgress { may_confirm: true, ..done };
        assert_eq!(round_line(done), "round 2 of 5 complete, up to 12 s left with confirmation");
    }
}
