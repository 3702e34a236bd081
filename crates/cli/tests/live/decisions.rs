//! Options of help lines about samples: with them a tune decides. They take processors, so no other
//! test runs beside these.

use std::process::Command;

use hugepilot_testkit::{Victim, need, requires};

use crate::look::tunable;
use crate::options::{Row, Shell, tries};
use crate::workload::{SOON, Workload};

/// `$PID`: a workload; `$IDLE`: a process that works from SIGUSR1 on; `$RARE`: one that hardly
/// runs.
const TUNE: &[Row] = &[
    [
        "sample longer: --observe Ns",
        "hugepilot tune -p $PID --dry-run --calibration off --rate 500 --for 1s --observe 100ms",
        "hugepilot tune -p $PID --dry-run --calibration off --rate 500 --for 1s --observe 1s",
        "samples: ",
    ],
    [
        "give it more time: --for Ns --observe Ns",
        "hugepilot tune -p $PID --dry-run --calibration off --rate 100 --for 1ms --observe 1ms",
        "hugepilot tune -p $PID --dry-run --calibration off --rate 100 --for 4s --observe 2s",
        "would promote",
    ],
    [
        "sample more often: --rate N",
        "hugepilot tune -p $RARE --dry-run --calibration off --for 1s --observe 1s --rate 200",
        "hugepilot tune -p $RARE --dry-run --calibration off --for 1s --observe 1s --rate 5000",
        "; nothing was changed",
    ],
    [
        "sample while it works, or longer: --observe Ns",
        "hugepilot tune -p $IDLE --dry-run --calibration off --for 300ms --observe 300ms",
        "kill -USR1 $IDLE
         hugepilot tune -p $IDLE --dry-run --calibration off --for 1s --observe 1s",
        "; nothing was changed",
    ],
];

/// `$WORK`: a workload that ends.
const LAUNCHED: &[Row] = &[
    [
        "give the program more work",
        "hugepilot tune --dry-run --calibration off --observe 200ms --rate 500 -- true",
        "hugepilot tune --dry-run --calibration off --observe 200ms --rate 500 -- \
             $WORK --seconds 1500ms",
        "would promote",
    ],
    [
        "or decide earlier: --observe Nms --rate N",
        "hugepilot tune --dry-run --calibration off -- $WORK --seconds 1500ms",
        "hugepilot tune --dry-run --calibration off --observe 200ms --rate 2000 -- \
             $WORK --seconds 1500ms",
        "would promote",
    ],
    [
        "find the mode that pays: hugepilot compare -- CMD",
        "hugepilot tune --dry-run --calibration off -- $WORK --seconds 1500ms",
        "hugepilot compare --rounds 1 --modes thp --no-stalls -- $WORK --seconds 300ms",
        "CPU_SPEEDUP",
    ],
];

/// `$TUNE`: a tune of `$WORK`, a workload that writes lines of seconds and a speed. The unit in the
/// pattern says that it is a speed.
const METRIC: &[Row] = &[
    [
        "check that the program writes its metric there, and does not keep it in a buffer",
        "$TUNE --progress-regex ' ([0-9]+)$' -- sh -c \"$WORK >&2\"",
        "$TUNE --progress-regex ' ([0-9]+)(?: ops)?$' --progress-higher-is-better -- $WORK",
        "MEDIAN_METRIC",
    ],
    [
        "compare the pattern with the lines that the program writes",
        "$TUNE --progress-regex '^([0-9]+) seconds' -- $WORK",
        "$TUNE --progress-regex ' ([0-9]+)(?: ops)?$' --progress-higher-is-better -- $WORK",
        "MEDIAN_METRIC",
    ],
    [
        "enclose the number in a group, such as 'Trial Time:\\s+([\\d.]+)'",
        "$TUNE --progress-regex '^[0-9.]+( )[0-9]+$' -- $WORK",
        "$TUNE --progress-regex ' ([0-9]+)(?: ops)?$' --progress-higher-is-better -- $WORK",
        "MEDIAN_METRIC",
    ],
    [
        "if a larger value is better: --progress-higher-is-better",
        "$TUNE --progress-regex ' ([0-9]+)(?: ops)?$' -- $WORK",
        "$TUNE --progress-regex ' ([0-9]+)(?: ops)?$' --progress-higher-is-better -- $WORK",
        "MEDIAN_METRIC",
    ],
];

/// A process that Python runs.
#[track_caller]
fn python(work: &str) -> Victim {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("{END}{work}")]);
    let victim = Victim::spawn(command);
    victim.says("ready", SOON);
    victim
}

/// Ends the process with its standard input.
const END: &str = "\
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
";

const RARE: &str = "\
import time
print('ready', flush=True)
while True:
    until = time.process_time() + 0.01
    while time.process_time() < until: pass
    time.sleep(0.2)
";

const IDLE: &str = "\
import signal
signal.signal(signal.SIGUSR1, lambda *_: None)
print('ready', flush=True)
signal.pause()
while True: pass
";

const SMALL: &str = "gups --footprint 64MiB --pages default";
const WORK: &str = "hugepilot lab workload gups --footprint 32MiB --pages default";

#[test]
fn a_tune_with_the_option_of_its_help_decides() {
    requires!(need::all([tunable(), need::program("python3")]));
    let (work, idle, rare) = (Workload::start(SMALL), python(IDLE), python(RARE));
    let shell = Shell::empty().with("PID", work.pid()).with("IDLE", idle.pid());
    let shell = shell.with("RARE", rare.pid());
    tries("decisions::a_tune_with_the_option_of_its_help_decides", &shell, &[TUNE]);
}

#[test]
fn a_tuned_program_with_the_option_of_the_help_has_a_verdict() {
    requires!(tunable());
    let shell = Shell::empty().with("WORK", WORK);
    tries(
        "decisions::a_tuned_program_with_the_option_of_the_help_has_a_verdict",
        &shell,
        &[LAUNCHED],
    );
}

const METRIC_TUNE: &str = "hugepilot tune --policy all --calibration off --observe 200ms \
                           --for 200ms --progress-wait 300ms";

#[test]
fn a_metric_with_the_option_of_its_help_has_values() {
    requires!(tunable());
    // It fills its memory before the first observation ends, also on a busy machine.
    let work = WORK.replace("32MiB", "8MiB") + " --seconds 1200ms --interval 50ms";
    let shell = Shell::empty().with("TUNE", METRIC_TUNE).with("WORK", work);
    tries("decisions::a_metric_with_the_option_of_its_help_has_values", &shell, &[METRIC]);
}
