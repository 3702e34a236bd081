//! Where samples come from: the CPU clock, and what the hardware offers.

use hugepilot_record::doctor::{Cpu, Probe};
use hugepilot_units::{Bytes, Nanos};

use super::whose;
use crate::perf::hardware::candidates;
use crate::perf::{Event, Record, trial};
use crate::rights::{Capability, Rights};
use crate::unsupported::Unsupported;
use crate::{Root, cpu};

/// Either lets one sample other users' processes.
const SAMPLE: &[Capability] = &[Capability::Perfmon, Capability::SysAdmin];

/// The CPU clock with registers.
pub(super) fn cpu_clock(root: &Root, rights: &Rights) -> Probe {
    let name = Probe::SAMPLER_CPU_CLOCK;
    let event = Event::cpu_clock(Nanos::new(250_000));
    let with_registers =
        |record: &Record| matches!(record, Record::Sample { registers: Some(_), .. });
    match trial::samples_of(root, Bytes::mib(2), event, rights, with_registers) {
        Ok(0) => Probe::no(name, "the event opened, but no sample with registers came", None),
        Ok(_) => Probe::yes(name, "samples of a child came, with its registers")
            .with_detail(whose(&[SAMPLE], rights)),
        Err(refusal) => refusal.probe(name),
    }
}

/// The first hardware source that gives page walks with addresses; else why each gives none.
pub(super) fn hardware(root: &Root, cpu: &Cpu, rights: &Rights) -> Probe {
    let name = Probe::SAMPLER_HARDWARE;
    let found = candidates(root, cpu);
    let mut reasons: Vec<(&str, Unsupported)> = Vec::new();
    for source in &found.sources {
        match source.try_open(root, rights) {
            Ok(_) => {
                let event = source.event;
                let detail = format!(
                    "type {} config {:#x} config1 {:#x} config2 {:#x} precise_ip {}; {}",
                    event.kind,
                    event.config,
                    event.config1,
                    event.config2,
                    event.precise_ip,
                    whose(&[SAMPLE], rights)
                );
                return Probe::yes(
                    name,
                    format!("{}: page walks with addresses came", source.name),
                )
                .with_detail(detail);
            }
            Err(refusal) => reasons.push((source.name, refusal)),
        }
    }
    let skipped = found.skipped.into_iter().map(|(name, why)| (name, Unsupported::because(why)));
    reasons.extend(skipped);
    refuse(name, cpu, &reasons)
}

/// Puts the reasons into one probe.
fn refuse(name: &str, cpu: &Cpu, reasons: &[(&str, Unsupported)]) -> Probe {
    if reasons.is_empty() {
        return Probe::no(
            name,
            format!("no source of data addresses is known for {}", cpu.vendor),
            None,
        );
    }
    let all: Vec<String> =
        reasons.iter().map(|(name, refusal)| format!("{name}: {}", refusal.cause)).collect();
    let fix = reasons.iter().find_map(|(_, refusal)| refusal.fix.clone());
    let why = if cpu.hypervisor && fix.is_none() {
        "this virtual machine has no PMU that gives data addresses; most hypervisors pass neither PEBS \
         nor IBS to it"
    } else {
        "no source gave page walks with addresses"
    };
    Probe::no(name, why, fix.or_else(|| cpu.hypervisor.then(|| in_guest(cpu))))
        .with_detail(all.join("; "))
}

/// Returns the help for a virtual machine. A virtual PMU brings PEBS, but not IBS.
fn in_guest(cpu: &Cpu) -> String {
    let help = if cpu.vendor == cpu::AMD {
        "use a bare-metal instance for IBS; the CPU clock works without it"
    } else {
        "on the host, give the virtual machine a PMU (KVM: -cpu host,pmu=on; clouds: a bare-metal \
         or PMU-enabled instance); the CPU clock works without it"
    };
    help.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_counters_is_told_what_to_ask_for() {
        let cpu = Cpu {
            vendor: cpu::INTEL.into(),
            model_name: String::new(),
            family: 6,
            model: 207,
            hypervisor: true,
        };
        let reasons = [("PEBS", Unsupported::because("no such event here (ENOENT)"))];
        let guest = refuse("x", &cpu, &reasons);
        assert!(!guest.supported && guest.why.contains("virtual machine"));
        assert!(guest.fix.unwrap().contains("pmu=on"));
        assert_eq!(guest.detail.as_deref(), Some("PEBS: no such event here (ENOENT)"));
        let amd = refuse("x", &Cpu { vendor: cpu::AMD.into(), ..cpu.clone() }, &reasons);
        assert!(amd.fix.unwrap().contains("bare-metal instance for IBS"));
        let metal = refuse("x", &Cpu { hypervisor: false, ..cpu.clone() }, &reasons);
        assert_eq!(metal.fix, None);
        let denied = [("PEBS", Unsupported::because("denied").fixed_by("sudo it"))];
        assert_eq!(refuse("x", &cpu, &denied).fix.as_deref(), Some("sudo it"));
        assert!(refuse("x", &cpu, &[]).why.contains(cpu::INTEL));
    }
}
