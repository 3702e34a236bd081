//! Victims behave as documented; above all, `pattern` detects damage.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use hugepilot_testkit::{Victim, need, requires};
use rustix::process::Signal;

const SOON: Duration = Duration::from_secs(30);

#[test]
fn pattern_runs_until_asked_to_end() {
    requires!(need::c_compiler());
    for by_signal in [false, true] {
        let mut victim = Victim::c("pattern.c", &["4", "2"]);
        let ready = victim.ready(SOON);
        assert_eq!(ready.memory.len().get(), 4 << 20);
        assert_eq!(ready.rest, [victim.pid().to_string()]);
        if by_signal {
            victim.signal(Signal::TERM);
            assert!(victim.wait(SOON).success());
        } else {
            assert!(victim.finish(SOON).success());
        }
        assert_eq!(victim.says("ok", SOON).len(), 1);
    }
}

#[test]
fn pattern_detects_a_single_wrong_byte() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("pattern.c", &["4", "2"]);
    let ready = victim.ready(SOON);
    let memory = File::options().write(true).open(format!("/proc/{}/mem", victim.pid()));
    requires!(memory.as_ref().map_err(|error| format!("another process's memory: {error}")));
    let memory = memory.unwrap();
    // A rewrite can overwrite the byte before the next check: write until it is detected.
    let until = Instant::now() + SOON;
    let address = ready.memory.start.get() + 12_345;
    let line = loop {
        assert!(Instant::now() < until, "no damage was detected");
        // Fails once the victim has ended.
        let _ = memory.write_at(&[0x5a], address);
        if let Some(line) = victim.line_now() {
            break line;
        }
    };
    assert!(line.starts_with("mismatch 0x"), "{line}");
    assert_eq!(victim.wait(SOON).code(), Some(1));
}

#[test]
fn forkpair_shares_one_address() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("forkpair.c", &["4"]);
    let ready = victim.ready(SOON);
    let [parent, child] = &ready.rest[..] else { panic!("{ready:?}") };
    assert_eq!(*parent, victim.pid().to_string());
    let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    assert!(stat.contains(&format!(" {parent} ")), "{stat}");
    assert!(victim.finish(SOON).success());
    victim.says("ok", SOON);
}

#[test]
fn forkpair_writes_in_both_and_reads_what_each_wrote() {
    requires!(need::c_compiler());
    for mode in [&["4"][..], &["4", "busy", "sparse"]] {
        let mut victim = Victim::c("forkpair.c", mode);
        victim.ready(SOON);
        for step in 1..=16 {
            victim.send("write");
            assert_eq!(victim.says("wrote", SOON), [step.to_string()]);
        }
        victim.send("write");
        assert!(victim.finish(SOON).success());
        victim.says("ok", SOON);
    }
}

#[test]
fn storm_changes_its_mappings_without_damage() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("storm.c", &["64", "2", "7"]);
    assert_eq!(victim.ready(SOON).memory.len().get(), 64 << 20);
    let did = victim.says("did", SOON);
    assert_eq!(did.len(), 5, "{did:?}");
    assert!(victim.finish(SOON).success());
    let counts: Vec<u64> =
        victim.says("ok", SOON).iter().map(|word| word.parse().unwrap()).collect();
    assert!(counts[0] > 1000 && counts[1] > 1000, "{counts:?}");
}

#[test]
fn storm_detects_damage() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("storm.c", &["32", "1", "7"]);
    let memory = victim.ready(SOON).memory;
    let file = File::options().write(true).open(format!("/proc/{}/mem", victim.pid()));
    requires!(file.as_ref().map_err(|error| format!("another process's memory: {error}")));
    let file = file.unwrap();
    let until = Instant::now() + SOON;
    let line = loop {
        assert!(Instant::now() < until, "no damage was detected");
        // Pages spread over the arena, which moves now and then.
        for page in (0..8192).step_by(61) {
            let _ = file.write_at(&[0x5a; 8], memory.start.get() + page * 4096 + 64);
        }
        match victim.line(SOON) {
            Some(line) if line.starts_with("did ") => {}
            line => break line.unwrap_or_default(),
        }
    };
    assert!(line.starts_with("damaged 0x") && line.contains("5a5a5a5a5a5a5a5a"), "{line}");
    assert_eq!(victim.wait(SOON).code(), Some(1));
}

#[test]
fn tight_grows_on_command() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("tight.c", &["2", "64", "2"]);
    victim.ready(SOON);
    victim.send("grow");
    assert_eq!(victim.says("grown", SOON), ["1"]);
    assert_eq!(victim.says("grown", SOON), ["2"]);
    victim.says("done", SOON);
    assert!(victim.wait(SOON).success());
}

#[test]
fn manymaps_has_the_reported_number_of_mappings() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("manymaps.c", &["500"]);
    let ready = victim.ready(SOON);
    assert_eq!(ready.rest, ["500"]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", victim.pid())).unwrap();
    assert!(maps.lines().count() >= 500);
    assert!(victim.finish(SOON).success());
}

#[test]
fn hostile_name_reaches_every_file() {
    requires!(need::c_compiler());
    let mut victim = Victim::c("hostile_name.c", &[]);
    victim.ready(SOON);
    let proc = |file: &str| fs::read(format!("/proc/{}/{file}", victim.pid())).unwrap();
    let holds = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|window| window == part);
    assert!(holds(&proc("stat"), b"(a) R 1\n\x1b[1m\xff</b)"));
    assert!(holds(&proc("maps"), b"x</script>\\012\x1b[31mred\xff"));
    assert!(victim.finish(SOON).success());
}

#[test]
fn shapeshift_changes_in_each_way() {
    requires!(need::c_compiler());
    let start = |mode: &str| {
        let victim = Victim::c("shapeshift.c", &[mode, "10"]);
        let ready = victim.ready(SOON);
        (victim, ready)
    };
    let (mut victim, _) = start("exit");
    assert!(victim.wait(SOON).success());

    let (mut victim, _) = start("exec");
    assert_eq!(victim.says("execed", SOON)[2], victim.pid().to_string());
    assert!(victim.finish(SOON).success());

    let (mut victim, ready) = start("zombie");
    let zombie = victim.says("zombie", SOON);
    assert_eq!(zombie, ready.rest);
    let status = fs::read_to_string(format!("/proc/{}/status", zombie[0])).unwrap();
    assert!(status.contains("State:\tZ"), "{status}");
    assert!(victim.finish(SOON).success());

    let (mut victim, ready) = start("unmap");
    let half = victim.says("unmapped", SOON)[1].parse::<u64>().unwrap();
    assert_eq!(half * 2, ready.memory.len().get());
    assert!(victim.finish(SOON).success());
}
