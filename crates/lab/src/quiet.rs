//! Activity of the machine besides an experiment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hugepilot_kernel::proc::{Stat, parse_stat, pids};
use hugepilot_kernel::system::{CpuTimes, SystemMeter, load_average};
use hugepilot_kernel::{Root, cpu, damon, memory};
use hugepilot_reports::lab::weather::{
    Activity, BusyProcess, Noise, QUIET_SCHEMA, QuietLimits, QuietReport,
};
use hugepilot_units::Nanos;

use crate::Result;
use crate::condition::TICK;

/// Busy processes that a report names.
const NAMED: usize = 3;
/// Share of a processor below which a process is not busy.
const IDLE: f64 = 0.01;

/// Measures the activity of the machine for `time`, or until `stopped`, and judges it by
/// [`QuietLimits::DEFAULT`].
///
/// # Errors
/// [`crate::LabError::Kernel`] if `/proc` cannot be read.
pub fn quiet(root: &Root, time: Duration, stopped: &dyn Fn() -> bool) -> Result<QuietReport> {
    let processors = u32::try_from(cpu::online(root)?.len()).unwrap_or(u32::MAX).max(1);
    let mut meter = SystemMeter::open(root);
    let mut sample = || Counters::read(root, &mut meter);
    let (before, began) = (sample(), Instant::now());
    while began.elapsed() < time && !stopped() {
        std::thread::sleep(TICK.min(time - began.elapsed().min(time)));
    }
    let (after, seconds) = (sample(), began.elapsed().as_secs_f64());
    let activity = Activity {
        load_per_processor: load_average(root).map(|load| load / f64::from(processors)),
        cpu_pressure_ratio: memory::pressure(root, "proc/pressure/cpu")
            .map(|pressure| pressure.some_avg10 / 100.0),
        damon_contexts: damon::acting(root),
        free_page_reporting: reports_free_pages(root),
        governor: root.read_text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok(),
        ..after.since(&before, seconds)
    };
    let limits = QuietLimits::DEFAULT;
    let reasons = judge(&activity, &limits);
    Ok(QuietReport {
        schema: QUIET_SCHEMA.to_owned(),
        seconds,
        processors,
        quiet: reasons.is_empty(),
        activity,
        limits,
        busiest: after.busiest(&before, seconds),
        reasons,
    })
}

/// Lists the limits that `activity` exceeds. An activity that is not available exceeds none.
pub fn judge(activity: &Activity, limits: &QuietLimits) -> Vec<Noise> {
    let above = |value: Option<f64>, limit: f64| value.is_some_and(|value| value > limit);
    let any = |count: Option<u64>| count.is_some_and(|count| count > 0);
    let governor = activity.governor.clone().filter(|name| name != "performance");
    let khugepaged = any(activity.khugepaged_collapses) || any(activity.khugepaged_scans);
    let found = [
        (above(activity.steal_ratio, limits.steal_ratio), Noise::Steal),
        (above(activity.load_per_processor, limits.load_per_processor), Noise::Load),
        (above(activity.other_busy_processors, limits.other_busy_processors), Noise::OtherWork),
        (above(activity.cpu_pressure_ratio, limits.cpu_pressure_ratio), Noise::CpuPressure),
        (khugepaged, Noise::Khugepaged),
        (activity.damon_contexts > 0, Noise::Damon),
        (activity.free_page_reporting, Noise::FreePageReporting),
    ];
    let found = found.into_iter().filter_map(|(is_found, noise)| is_found.then_some(noise));
    found.chain(governor.map(|governor| Noise::Governor { governor })).collect()
}

/// Whether a memory balloon of virtio reports free pages, by the features of the device: bit 5 is
/// VIRTIO_BALLOON_F_REPORTING (virtio 1.2, section 5.5.3).
fn reports_free_pages(root: &Root) -> bool {
    let devices = std::fs::read_dir(root.join("sys/bus/virtio/drivers/virtio_balloon"));
    let features = devices.into_iter().flatten().flatten().map(|one| one.path().join("features"));
    let mut texts = features.filter_map(|file| std::fs::read(file).ok());
    texts.any(|text| text.get(5) == Some(&b'1'))
}

/// Counters at one moment.
struct Counters {
    cpu: Option<CpuTimes>,
    processes: BTreeMap<i32, Stat>,
    collapses: Option<u64>,
    scans: Option<u64>,
}

impl Counters {
    fn read(root: &Root, meter: &mut SystemMeter) -> Self {
        let stat = |pid| parse_stat(&root.read(format!("proc/{pid}/stat")).ok()?);
        let all = pids(root).unwrap_or_default();
        let processes = all.into_iter().filter_map(|pid| Some((pid.0, stat(pid)?))).collect();
        let khugepaged = |name: &str| {
            let path = format!("sys/kernel/mm/transparent_hugepage/khugepaged/{name}");
            root.read_text(path).ok()?.parse().ok()
        };
        let (collapses, scans) = (khugepaged("pages_collapsed"), khugepaged("full_scans"));
        Self { cpu: meter.read().cpu, processes, collapses, scans }
    }

    fn since(&self, before: &Self, seconds: f64) -> Activity {
        let delta = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let mut activity = Activity {
            khugepaged_collapses: delta(self.collapses, before.collapses),
            khugepaged_scans: delta(self.scans, before.scans),
            ..Activity::default()
        };
        if let (Some(now), Some(then)) = (self.cpu, before.cpu) {
            let part = |of: fn(CpuTimes) -> Nanos| (of(now) - of(then)).as_seconds();
            let busy = part(|cpu| cpu.user) + part(|cpu| cpu.system);
            let steal = part(|cpu| cpu.steal);
            let all = busy + steal + part(|cpu| cpu.idle);
            activity.steal_ratio = Some(steal / all.max(1e-9));
            let own = i32::try_from(std::process::id()).unwrap_or(0);
            activity.other_busy_processors =
                Some((busy - self.used(before, own)).max(0.0) / seconds.max(1e-9));
        }
        activity
    }

    /// CPU time that a process used since, in seconds.
    fn used(&self, before: &Self, pid: i32) -> f64 {
        let Some(now) = self.processes.get(&pid) else { return 0.0 };
        let same = before.processes.get(&pid).filter(|then| then.start_ticks == now.start_ticks);
        (now.cpu - same.map_or(Nanos::ZERO, |then| then.cpu)).as_seconds()
    }

    fn busiest(&self, before: &Self, seconds: f64) -> Vec<BusyProcess> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let of = |(&pid, stat): (&i32, &Stat)| {
            let busy_processors = self.used(before, pid) / seconds.max(1e-9);
            BusyProcess { pid, name: stat.command.clone(), busy_processors }
        };
        let mut all: Vec<BusyProcess> =
            self.processes.iter().filter(|(pid, _)| **pid != own).map(of).collect();
        all.retain(|one| one.busy_processors >= IDLE);
        all.sort_by(|one, other| other.busy_processors.total_cmp(&one.busy_processors));
        all.truncate(NAMED);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_a_reason_of_its_own_and_unknown_values_are_none() {
        let limits = QuietLimits::DEFAULT;
        assert_eq!(judge(&Activity::default(), &limits), []);
        let at_limits = Activity {
            steal_ratio: Some(limits.steal_ratio),
            load_per_processor: Some(limits.load_per_processor),
            other_busy_processors: Some(limits.other_busy_processors),
            cpu_pressure_ratio: Some(limits.cpu_pressure_ratio),
            khugepaged_collapses: Some(0),
            khugepaged_scans: Some(0),
            damon_contexts: 0,
            free_page_reporting: false,
            governor: Some("performance".to_owned()),
        };
        assert_eq!(judge(&at_limits, &limits), []);
        type Change = fn(&mut Activity);
        let governor = || "powersave".to_owned();
        let table: [(Change, Noise); 9] = [
            (|one| one.steal_ratio = Some(0.02), Noise::Steal),
            (|one| one.load_per_processor = Some(0.6), Noise::Load),
            (|one| one.other_busy_processors = Some(0.06), Noise::OtherWork),
            (|one| one.cpu_pressure_ratio = Some(0.06), Noise::CpuPressure),
            (|one| one.khugepaged_collapses = Some(1), Noise::Khugepaged),
            (|one| one.khugepaged_scans = Some(1), Noise::Khugepaged),
            (|one| one.damon_contexts = 1, Noise::Damon),
            (|one| one.free_page_reporting = true, Noise::FreePageReporting),
            (
                |one| one.governor = Some("powersave".into()),
                Noise::Governor { governor: governor() },
            ),
        ];
        for (change, noise) in table {
            let mut activity = at_limits.clone();
            change(&mut activity);
            assert_eq!(judge(&activity, &limits), [noise]);
        }
    }

    #[test]
    fn a_balloon_that_reports_free_pages_is_found_by_its_features() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert!(!reports_free_pages(&root));
        let device = root.join("sys/bus/virtio/drivers/virtio_balloon/virtio0");
        std::fs::create_dir_all(&device).unwrap();
        for (features, reports) in [("0110000100", false), ("0110010100", true), ("", false)] {
            std::fs::write(device.join("features"), features).unwrap();
            assert_eq!(reports_free_pages(&root), reports, "{features}");
        }
    }

    #[test]
    fn a_busy_process_is_named() {
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let report = quiet(&Root::live(), Duration::from_millis(300), &|| false);
        child.kill().unwrap();
        child.wait().unwrap();
        let report = report.unwrap();
        assert!(!report.quiet && report.reasons.contains(&Noise::OtherWork), "{report:?}");
        let names = report.busiest.iter().map(|one| one.pid.unsigned_abs());
        assert!(
            names.len() == NAMED || names.into_iter().any(|pid| pid == child.id()),
            "{report:?}"
        );
    }
}
