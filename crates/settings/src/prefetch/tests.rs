//! Tests of prefetchers on simulated processors.

use std::path::Path;
use std::{fs, io};

use hugepilot_reports::settings::Restored;

use super::*;

const INTEL_CPU: &str = "vendor_id : GenuineIntel\ncpu family : 6\nmodel : 143\nmodel name : X\n";
const AMD_CPU: &str = "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 17\nflags : hypervisor\n";

/// A machine with two processors, each with a file of registers.
struct Machine {
    root: Root,
    register: u32,
    _directory: tempfile::TempDir,
}

impl Machine {
    fn new(cpu: &str, register: u32, values: [u64; 2]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let machine = Self { root, register, _directory: directory };
        machine.write("proc/cpuinfo", &format!("processor : 0\n{cpu}"));
        machine.write("sys/devices/system/cpu/online", "0-1\n");
        for (id, value) in (0..).zip(values) {
            machine.write(&msr::file(id), "");
            machine.set(id, value);
        }
        machine
    }
    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn set(&self, cpu: u32, value: u64) {
        msr::write(&self.root, cpu, self.register, value).unwrap();
    }
    fn now(&self) -> [u64; 2] {
        [0, 1].map(|cpu| msr::read(&self.root, cpu, self.register).unwrap())
    }
    fn off(&self) -> Result<SettingsGuard> {
        set(&self.root, PrefetchSetting::Off, &mut |_| {})
    }
    fn cause(&self) -> PrefetchUnsupported {
        match show(&self.root) {
            Err(SettingsError::Refused(Unsupported::Prefetch(cause))) => cause,
            other => panic!("{other:?}"),
        }
    }
}

fn intel() -> Machine {
    Machine::new(INTEL_CPU, 0x1a4, [0, 0x20])
}

#[test]
fn the_bits_of_intel_and_amd_are_those_of_their_manuals() {
    let report = show(&Machine::new(INTEL_CPU, 0x1a4, [0b0101, 0x20]).root).unwrap();
    assert_eq!(report.register, "0x1a4");
    assert_eq!(report.cpus[0].enabled, ["l2-adjacent", "l1-ip"]);
    assert_eq!((report.cpus[1].value.as_str(), report.cpus[1].enabled.len()), ("0x20", 4));
    let report = show(&Machine::new(AMD_CPU, 0xc000_0108, [0b10_1000, 0]).root).unwrap();
    assert_eq!(report.register, "0xc0000108");
    assert_eq!(report.cpus[0].enabled, ["l1-stream", "l1-stride", "l1-region"]);
    assert_eq!(report.prefetchers[4].bit, 5);
}

#[test]
fn other_bits_keep_their_values_and_all_are_restored() {
    let machine = intel();
    let guard = machine.off().unwrap();
    assert_eq!(machine.now(), [0xf, 0x2f]);
    assert!(restore(guard).iter().all(|(_, outcome)| *outcome == Restored::Yes));
    assert_eq!(machine.now(), [0, 0x20]);
    drop(set(&machine.root, PrefetchSetting::Bits(0b100), &mut |_| {}).unwrap());
    assert_eq!(machine.now(), [0, 0x20], "a dropped guard restores, too");
    let amd = Machine::new(AMD_CPU, 0xc000_0108, [0x100, 0]);
    let guard = amd.off().unwrap();
    assert_eq!(amd.now(), [0x12f, 0x2f]);
    drop(guard);
    assert_eq!(amd.now(), [0x100, 0]);
}

#[test]
fn bits_without_a_prefetcher_are_refused_before_any_write() {
    let machine = intel();
    let refused = set(&machine.root, PrefetchSetting::Bits(0x10), &mut |_| {});
    assert!(matches!(refused, Err(SettingsError::PrefetchBits { known: 0xf, .. })));
    assert_eq!(machine.now(), [0, 0x20]);
}

#[test]
fn after_a_crash_the_next_command_restores_them() {
    let machine = intel();
    let guard = machine.off().unwrap();
    // What a killed process leaves: the journal and the changed registers.
    let journal = machine.root.join("run/hugepilot/settings.json");
    let text = fs::read(&journal).unwrap();
    drop(guard);
    machine.set(0, 0xf);
    machine.set(1, 0x2f);
    fs::write(&journal, text).unwrap();
    let recovery = crate::recover(&machine.root).unwrap().unwrap();
    assert_eq!(recovery.outcomes.len(), 2);
    assert_eq!(machine.now(), [0, 0x20]);
    assert!(!crate::is_pending(&machine.root));
}

#[test]
fn a_register_that_another_program_set_since_is_kept() {
    let machine = intel();
    let guard = machine.off().unwrap();
    machine.set(0, 0x3);
    let outcomes = restore(guard);
    assert!(outcomes.iter().any(|(_, outcome)| *outcome == Restored::ChangedSince("0x3".into())));
    assert_eq!(machine.now(), [0x3, 0x20]);
}

#[test]
fn a_value_that_does_not_stick_is_an_error_and_the_others_are_restored() {
    let machine = intel();
    let second = machine.root.join(msr::file(1));
    fs::remove_file(&second).unwrap();
    // It reads zeros, and takes nothing.
    std::os::unix::fs::symlink("/dev/zero", &second).unwrap();
    let error = machine.off().unwrap_err();
    assert!(matches!(error, SettingsError::NotTaken { .. }), "{error}");
    assert_eq!(machine.now(), [0, 0]);
    assert!(!crate::is_pending(&machine.root));
}

#[test]
fn each_obstacle_has_its_cause() {
    let machine = intel();
    fs::remove_file(machine.root.join(msr::file(0))).unwrap();
    assert!(matches!(machine.cause(), PrefetchUnsupported::NoDevice { hypervisor: false, .. }));
    let old = Machine::new("vendor_id : GenuineIntel\ncpu family : 6\nmodel : 55\n", 0x1a4, [0; 2]);
    assert!(matches!(old.cause(), PrefetchUnsupported::UnknownProcessor { model: 55, .. }));
    let zen3 = Machine::new("vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\n", 0, [0; 2]);
    assert!(matches!(zen3.cause(), PrefetchUnsupported::UnknownProcessor { model: 1, .. }));
}

#[test]
fn the_error_number_and_lockdown_decide_the_cause() {
    let machine = Machine::new(AMD_CPU, 0xc000_0108, [0; 2]);
    let cpu = cpu::read(&machine.root).unwrap();
    let path = Path::new("/dev/cpu/0/msr");
    let cause = |errno: i32| {
        let error = KernelError::write(path, io::Error::from_raw_os_error(errno));
        match explain(&machine.root, &cpu, error) {
            SettingsError::Refused(Unsupported::Prefetch(cause)) => cause,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(cause(5), PrefetchUnsupported::RegisterRejected { hypervisor: true, .. }));
    assert!(matches!(cause(1), PrefetchUnsupported::RegisterForbidden { .. }));
    machine.write(LOCKDOWN, "[none] integrity confidentiality\n");
    assert!(matches!(cause(13), PrefetchUnsupported::RegisterForbidden { .. }));
    machine.write(LOCKDOWN, "none [integrity] confidentiality\n");
    assert!(matches!(cause(1), PrefetchUnsupported::Lockdown { mode, .. } if mode == "integrity"));
}

#[test]
fn a_journal_names_registers_of_prefetchers_only() {
    assert_eq!(parse("cpu12/msr-0x1a4"), Some((12, 0x1a4)));
    assert_eq!(parse("cpu0/msr-0xc0000108"), Some((0, 0xc000_0108)));
    for other in ["cpu0/msr-0x10", "cpu01/msr-0x1a4", "cpu+1/msr-0x1a4", "cpu0/msr-0x1A4", "cpu0"] {
        assert_eq!(parse(other), None, "{other}");
    }
}

#[test]
fn settings_are_on_off_or_bits() {
    let parse = |text: &str| text.parse::<PrefetchSetting>();
    assert_eq!(parse("on"), Ok(PrefetchSetting::On));
    assert_eq!(parse("0x5"), Ok(PrefetchSetting::Bits(5)));
    assert_eq!(parse("12"), Ok(PrefetchSetting::Bits(12)));
    assert!(parse("maybe").is_err() && parse("-1").is_err());
}
