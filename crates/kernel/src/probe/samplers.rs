//! Probes of the samplers: the CPU clock, and the sources of the hardware.

use hugepilot_record::Cpu;
use hugepilot_reports::doctor::{Detail, Evidence, Probe};
use hugepilot_units::{Bytes, Nanos};

use super::users;
use crate::perf::hardware::candidates;
use crate::perf::{Event, Record, trial};
use crate::rights::{Capability, Rights};
use crate::{Root, Unsupported, cpu};

/// Capabilities of which one permits sampling of other users' processes.
const SAMPLE: &[Capability] = &[Capability::Perfmon, Capability::SysAdmin];

/// Probes the CPU clock with registers.
pub(super) fn cpu_clock(root: &Root, rights: &Rights) -> Probe {
    let name = Probe::SAMPLER_CPU_CLOCK;
    let event = Event::cpu_clock(Nanos::new(250_000));
    let with_registers =
        |record: &Record<'_>| matches!(record, Record::Sample { registers: Some(_), .. });
    match trial::samples_of(root, Bytes::mib(2), event, rights, with_registers) {
        Ok(0) => Probe::no(name, Unsupported::NoSamples),
        Ok(_) => Probe::yes(name, Evidence::Sampled).with_details([users(&[SAMPLE], rights)]),
        Err(reason) => Probe::no(name, reason),
    }
}

/// Probes the sources of the hardware up to the first that gives page walks with addresses.
pub(super) fn hardware(root: &Root, cpu: &Cpu, rights: &Rights) -> Probe {
    let name = Probe::SAMPLER_HARDWARE;
    let candidates = candidates(root, cpu);
    let mut failures: Vec<(&str, Unsupported)> = Vec::new();
    for source in &candidates.sources {
        match source.try_open(root, rights) {
            Ok(_) => {
                let Event { kind, config, config1, config2, precise_ip, .. } = source.event;
                let event = Detail::Event { kind, config, config1, config2, precise_ip };
                let evidence = Evidence::PageWalksSampled { source: source.name.to_owned() };
                return Probe::yes(name, evidence).with_details([event, users(&[SAMPLE], rights)]);
            }
            Err(reason) => failures.push((source.name, reason)),
        }
    }
    failures.extend(candidates.skipped);
    unsupported(name, cpu, failures)
}

/// Returns the probe for the failures of all sources.
fn unsupported(name: &str, cpu: &Cpu, failures: Vec<(&str, Unsupported)>) -> Probe {
    if failures.is_empty() {
        return Probe::no(name, Unsupported::NoKnownSource { vendor: cpu.vendor.clone() });
    }
    let helped = failures.iter().find(|(_, reason)| !reason.help().is_empty());
    let reason = match helped {
        None if cpu.hypervisor => Unsupported::GuestPmu { amd: cpu.vendor == cpu::AMD },
        _ => Unsupported::NoWorkingSource {
            reason: helped.map(|(_, reason)| Box::new(reason.clone())),
        },
    };
    let detail = |(source, reason): (&str, _)| Detail::Source { source: source.to_owned(), reason };
    Probe::no(name, reason).with_details(failures.into_iter().map(detail))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Errno;

    use super::*;

    #[test]
    fn the_help_for_missing_counters_depends_on_the_machine() {
        let cpu = Cpu {
            vendor: cpu::INTEL.into(),
            model_name: String::new(),
            family: 6,
            model: 207,
            hypervisor: true,
        };
        let probe = |cpu: &Cpu, reason: Unsupported| unsupported("x", cpu, vec![("PEBS", reason)]);
        let absent = || Unsupported::NoSuchEvent { errno: Errno::ENOENT };
        let help = |probe: &Probe| probe.reason().unwrap().help();

        let guest = probe(&cpu, absent());
        assert_eq!(guest.reason(), Some(&Unsupported::GuestPmu { amd: false }));
        let detail = Detail::Source { source: "PEBS".into(), reason: absent() };
        assert_eq!(guest.details, [detail]);
        let amd = probe(&Cpu { vendor: cpu::AMD.into(), ..cpu.clone() }, absent());
        assert_eq!(amd.reason(), Some(&Unsupported::GuestPmu { amd: true }));
        let metal = probe(&Cpu { hypervisor: false, ..cpu.clone() }, absent());
        assert_eq!(metal.reason(), Some(&Unsupported::NoWorkingSource { reason: None }));
        assert_eq!(help(&metal), [""; 0]);
        let denied = probe(
            &cpu,
            Unsupported::LabRootRequired { error: "denied".into(), advice: "sudo it".into() },
        );
        assert_eq!(help(&denied), ["sudo it"]);
        let unknown = unsupported("x", &cpu, Vec::new());
        let vendor = cpu::INTEL.to_owned();
        assert_eq!(unknown.reason(), Some(&Unsupported::NoKnownSource { vendor }));
    }
}
