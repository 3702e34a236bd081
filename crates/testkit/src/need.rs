//! Requirements of tests on the machine, probed by trying, never inferred from a version.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use std::{env, fs, process};

use hugepilot_units::Bytes;

use crate::Victim;

/// Result of a probe, for [`requires!`](crate::requires).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The machine meets the requirement.
    Ok,
    /// The machine lacks what the text names.
    Err(String),
}

impl Need {
    fn when(met: bool, missing: impl FnOnce() -> String) -> Self {
        if met { Self::Ok } else { Self::Err(missing()) }
    }
}

/// Returns the first of `needs` that is not met.
pub fn all(needs: impl IntoIterator<Item = Need>) -> Need {
    needs.into_iter().find(|need| *need != Need::Ok).unwrap_or(Need::Ok)
}

/// Requires `HUGEPILOT_LIVE=1`, which permits tests to change the running kernel.
///
/// `cargo xtask test` sets it.
pub fn live() -> Need {
    let is_set = env::var_os("HUGEPILOT_LIVE").is_some_and(|value| value == "1");
    Need::when(is_set, || "live tests run with HUGEPILOT_LIVE=1".to_owned())
}

/// Requires that the effective user is root.
pub fn root() -> Need {
    Need::when(rustix::process::geteuid().is_root(), || "not root".to_owned())
}

/// Requires `CAP_SYS_NICE`, which `process_madvise` on another process needs.
pub fn cap_sys_nice() -> Need {
    capability("CAP_SYS_NICE", 23)
}

/// Requires `CAP_PERFMON`, which opens perf events on other users' processes and on whole CPUs.
pub fn cap_perfmon() -> Need {
    capability("CAP_PERFMON", 38)
}

/// Requires the effective capability with this number in `linux/capability.h`.
pub fn capability(name: &str, number: u32) -> Need {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let has = effective_capabilities(&status).is_some_and(|set| set >> number & 1 == 1);
    Need::when(has, || format!("no {name}"))
}

/// Requires `wanted` of memory to be available without swapping.
pub fn memory(wanted: Bytes) -> Need {
    let available = available();
    Need::when(available >= wanted, || format!("needs {wanted} of memory, {available} available"))
}

/// Requires a program in `PATH`.
pub fn program(name: &str) -> Need {
    Need::when(in_path(name).is_some(), || format!("no {name} in PATH"))
}

/// Requires a C compiler, for the victims written in C.
pub fn c_compiler() -> Need {
    program("cc")
}

/// Requires that huge pages speed up random reads of 128 MiB on this CPU by `least`, such as 1.2.
///
/// A victim in C measures the speedup, once for each test program. No code under test takes part.
pub fn gain(least: f64) -> Need {
    static GAIN: OnceLock<Option<f64>> = OnceLock::new();
    if let missing @ Need::Err(_) = c_compiler() {
        return missing;
    }
    let measure = || {
        let line = Victim::c("gain.c", &[]).line(Duration::from_secs(60))?;
        line.strip_prefix("gain ")?.parse().ok()
    };
    match *GAIN.get_or_init(measure) {
        None => Need::Err("the gain of huge pages cannot be measured".to_owned()),
        Some(gain) => Need::when(gain >= least, || {
            format!("{TOO_LITTLE_GAIN}: {gain:.2}x for random reads, required {least:.2}x")
        }),
    }
}

/// Start of the reason that [`gain`] gives.
const TOO_LITTLE_GAIN: &str = "huge pages gain too little on this CPU";

/// Requires that a memory cgroup can be created.
///
/// Either in cgroup v1's memory controller, or in a v2 tree that delegates memory.
pub fn cgroup_memory() -> Need {
    let homes = [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
        ("/sys/fs/cgroup/unified", "memory.max"),
    ];
    let met = homes.into_iter().any(|(home, limit)| makes_cgroup(Path::new(home), limit));
    Need::when(met, || "cannot create a memory cgroup".to_owned())
}

/// Creates a cgroup in `home`, checks that it can be limited, and removes it.
fn makes_cgroup(home: &Path, limit: &str) -> bool {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let probe = home.join(format!("hugepilot-probe-{}-{number}", process::id()));
    // A tmpfs accepts a new directory too, so check for cgroups first.
    if !home.join("cgroup.procs").exists() || fs::create_dir(&probe).is_err() {
        return false;
    }
    let limited = probe.join(limit).exists();
    fs::remove_dir(&probe).is_ok() && limited
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

/// Available memory of the system; zero if it is not known.
pub fn available() -> Bytes {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    available_memory(&meminfo).unwrap_or(Bytes::ZERO)
}

fn available_memory(meminfo: &str) -> Option<Bytes> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix(" kB")?.trim().parse().ok().map(Bytes::kib)
}

fn in_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |file: &Path| {
        fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|file| runs(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_bit_by_bit() {
        let status = "Name:\tcat\nCapPrm:\tffff\nCapEff:\t0000000000800000\n";
        assert_eq!(effective_capabilities(status), Some(1 << 23));
        assert_eq!(effective_capabilities("Name:\tcat\n"), None);
    }

    #[test]
    fn available_memory_is_in_kib() {
        let meminfo = "MemTotal:       24576000 kB\nMemAvailable:    2048 kB\n";
        assert_eq!(available_memory(meminfo), Some(Bytes::mib(2)));
        assert_eq!(available_memory("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn all_needs_must_be_met() {
        let lacks = |what: &str| Need::Err(what.to_owned());
        assert_eq!(all([Need::Ok, lacks("a"), lacks("b")]), lacks("a"));
        assert_eq!(all([Need::Ok, Need::Ok]), Need::Ok);
    }

    #[test]
    fn no_machine_has_everything() {
        assert_eq!(memory(Bytes::ZERO), Need::Ok);
        assert!(matches!(memory(Bytes::MAX), Need::Err(why) if why.contains("available")));
    }

    #[test]
    fn probing_leaves_no_cgroup_behind() {
        let _either = cgroup_memory();
        for home in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let names =
                fs::read_dir(home).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let ours = format!("hugepilot-probe-{}-", process::id());
            assert!(
                !names.into_iter().any(|name| name.to_string_lossy().starts_with(&ours)),
                "{home}"
            );
        }
    }

    #[test]
    fn programs_are_searched_in_path() {
        assert_eq!(program("sh"), Need::Ok);
        assert_eq!(program("no-such-program"), Need::Err("no no-such-program in PATH".to_owned()));
    }
}
