//! Permissions of this process: capabilities, filters, and settings that restrict all users.

use crate::{Root, executable};

/// Capability that hugepilot uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// Opens any file for reading, such as the pagemap of other users' processes.
    DacReadSearch = 2,
    /// Traces any process.
    SysPtrace = 19,
    /// Everything without a capability of its own.
    SysAdmin = 21,
    /// Advises about the memory of another process.
    SysNice = 23,
    /// Perf events on any process; since Linux 6.15 it also permits `process_madvise` on it.
    Perfmon = 38,
}

impl Capability {
    /// Returns its name, as everywhere but in `docker run`.
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }
}

/// Names by number, as in `linux/capability.h`.
const NAMES: [&str; 41] = [
    "cap_chown",
    "cap_dac_override",
    "cap_dac_read_search",
    "cap_fowner",
    "cap_fsetid",
    "cap_kill",
    "cap_setgid",
    "cap_setuid",
    "cap_setpcap",
    "cap_linux_immutable",
    "cap_net_bind_service",
    "cap_net_broadcast",
    "cap_net_admin",
    "cap_net_raw",
    "cap_ipc_lock",
    "cap_ipc_owner",
    "cap_sys_module",
    "cap_sys_rawio",
    "cap_sys_chroot",
    "cap_sys_ptrace",
    "cap_sys_pacct",
    "cap_sys_admin",
    "cap_sys_boot",
    "cap_sys_nice",
    "cap_sys_resource",
    "cap_sys_time",
    "cap_sys_tty_config",
    "cap_mknod",
    "cap_lease",
    "cap_audit_write",
    "cap_audit_control",
    "cap_setfcap",
    "cap_mac_override",
    "cap_mac_admin",
    "cap_syslog",
    "cap_wake_alarm",
    "cap_block_suspend",
    "cap_audit_read",
    "cap_perfmon",
    "cap_bpf",
    "cap_checkpoint_restore",
];

/// Set of capabilities, with a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Whether `capability` is in it.
    pub const fn has(self, capability: Capability) -> bool {
        self.0 >> capability as u32 & 1 != 0
    }
    /// Returns their names; a newer one is named after its bit.
    pub fn names(self) -> Vec<String> {
        let held = (0..64_usize).filter(|bit| self.0 >> bit & 1 != 0);
        held.map(|bit| NAMES.get(bit).map_or_else(|| format!("cap_{bit}"), |&name| name.to_owned()))
            .collect()
    }
}

/// Permissions of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Permitted capabilities (`CapPrm`). Between calls none of them is effective, see
    /// [`crate::privilege`].
    pub permitted: Capabilities,
    /// Capabilities that starting a program can grant at most (`CapBnd`).
    pub bounding: Capabilities,
    /// Seccomp: 0 none, 1 strict, 2 a filter.
    pub seccomp_mode: u32,
    /// Whether starting a program can no longer grant privileges.
    pub no_new_privs: bool,
    /// Whether its capabilities hold outside a user namespace.
    pub initial_user_namespace: bool,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.yama.ptrace_scope`.
    pub yama_ptrace_scope: Option<i32>,
}

/// Link of the initial user namespace (`PROC_USER_INIT_INO` of the kernel).
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

impl Rights {
    /// Reads them for this process. A permission that the kernel does not show counts as missing.
    pub fn read(root: &Root) -> Self {
        let status = root.read_text("proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let set = |name| {
            let bits = field(name).and_then(|hex| u64::from_str_radix(hex, 16).ok());
            Capabilities(bits.unwrap_or(0))
        };
        let setting =
            |name: &str| root.read_text(format!("proc/sys/kernel/{name}")).ok()?.parse().ok();
        let namespace = std::fs::read_link(root.join("proc/self/ns/user")).ok();
        Self {
            permitted: set("CapPrm"),
            bounding: set("CapBnd"),
            seccomp_mode: field("Seccomp").and_then(|mode| mode.parse().ok()).unwrap_or(0),
            no_new_privs: field("NoNewPrivs") == Some("1"),
            // A kernel without user namespaces has only the initial one.
            initial_user_namespace: namespace
                .is_none_or(|link| link.as_os_str() == INITIAL_USER_NAMESPACE),
            perf_event_paranoid: setting("perf_event_paranoid"),
            yama_ptrace_scope: setting("yama/ptrace_scope"),
        }
    }
    /// Whether `capability` is permitted.
    pub const fn has(&self, capability: Capability) -> bool {
        self.permitted.has(capability)
    }
}

/// Returns the help for a process that may not be read, for a command that copies memory out of it
/// (`reads_memory`) or only reads its page tables.
pub fn fix(reads_memory: bool) -> String {
    let is_root = rustix::process::geteuid().is_root();
    fix_for(reads_memory, is_root, &Rights::read(&Root::live()))
}

/// Returns the help for a command that renounces the capabilities of the binary
/// ([`crate::privilege::renounce`]).
pub fn fix_without_capabilities() -> String {
    let is_root = rustix::process::geteuid().is_root();
    if is_root { fix_for(true, true, &Rights::read(&Root::live())) } else { AS_ROOT.to_owned() }
}

const AS_ROOT: &str = "run it as root: this command renounces the capabilities of the binary";

fn fix_for(reads_memory: bool, is_root: bool, rights: &Rights) -> String {
    let missing = missing(rights);
    if missing.is_empty() && !rights.initial_user_namespace {
        return "run hugepilot on the host: its capabilities hold in this user namespace only"
            .to_owned();
    }
    if missing.is_empty() {
        return "hugepilot lacks no capability: a security module (SELinux, AppArmor, Landlock) or \
                the container may forbid it; run hugepilot on the host"
            .to_owned();
    }
    if is_root {
        return format!(
            "root lacks {} here, as in most containers: run hugepilot on the host, or docker run \
             --cap-add SYS_NICE --cap-add PERFMON --cap-add DAC_READ_SEARCH --cap-add SYS_PTRACE …",
            missing.join(", ")
        );
    }
    // Copying memory requires permission to trace on every kernel.
    let (more, older) = if reads_memory {
        (",cap_sys_ptrace", "")
    } else {
        ("", " (before Linux 6.15 also cap_sys_ptrace)")
    };
    let setcap = executable::setcap(more);
    format!(
        "run as root, or grant the capabilities to a group, for the next login: {setcap}{older}; \
         `hugepilot doctor` names the missing one"
    )
}

/// Returns the names of the capabilities that this process lacks for processes of other users, as
/// the probes name them.
fn missing(rights: &Rights) -> Vec<&'static str> {
    use Capability::{DacReadSearch, Perfmon, SysNice, SysPtrace};
    let lacks = |capability: &Capability| match capability {
        // Permission to trace includes it.
        Perfmon => !rights.has(Perfmon) && !rights.has(SysPtrace),
        &capability => !rights.has(capability),
    };
    let all = [SysNice, Perfmon, DacReadSearch, SysPtrace];
    all.iter().filter(|capability| lacks(capability)).map(|capability| capability.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_two_capabilities_and_a_filter() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file(
            "proc/self/status",
            "Name:\tx\nCapPrm:\t0000004000800000\nCapBnd:\t000001ffffffffff\nNoNewPrivs:\t1\n\
             Seccomp:\t2\nSeccomp_filters:\t3\n",
        );
        file("proc/sys/kernel/perf_event_paranoid", "-1\n");
        std::fs::create_dir_all(dir.path().join("proc/self/ns")).unwrap();
        std::os::unix::fs::symlink("user:[4026532211]", dir.path().join("proc/self/ns/user"))
            .unwrap();
        let rights = Rights::read(&Root::at(dir.path()));
        assert_eq!(rights.permitted.names(), ["cap_sys_nice", "cap_perfmon"]);
        assert!(rights.has(Capability::SysNice) && !rights.has(Capability::SysAdmin));
        assert!(rights.bounding.has(Capability::SysAdmin) && rights.no_new_privs);
        assert!(!rights.initial_user_namespace);
        assert_eq!((rights.seccomp_mode, rights.perf_event_paranoid), (2, Some(-1)));
        assert_eq!(rights.yama_ptrace_scope, None);
    }

    fn holding(capabilities: &[Capability]) -> Rights {
        Rights {
            permitted: Capabilities(capabilities.iter().map(|&bit| 1 << bit as u32).sum()),
            initial_user_namespace: true,
            ..Rights::default()
        }
    }

    #[test]
    fn reading_memory_requires_ptrace_and_root_need_not_become_root() {
        let none = holding(&[]);
        assert!(fix_for(true, false, &none).contains("cap_dac_read_search,cap_sys_ptrace+ep"));
        assert!(fix_for(false, false, &none).contains("cap_dac_read_search+ep"));
        for reads_memory in [true, false] {
            let root = fix_for(reads_memory, true, &none);
            assert!(!root.contains("run as root") && !root.contains("setcap"), "{root}");
            assert!(root.contains("SYS_PTRACE"), "{root}");
        }
    }

    #[test]
    fn the_help_names_the_capabilities_that_root_lacks_and_no_other() {
        use Capability::{DacReadSearch, Perfmon, SysNice, SysPtrace};
        let fix = |capabilities: &[Capability]| fix_for(true, true, &holding(capabilities));
        for (held, lacking) in [
            (&[SysNice, Perfmon, DacReadSearch][..], "root lacks cap_sys_ptrace here,"),
            (&[SysNice, SysPtrace], "root lacks cap_dac_read_search here,"),
            (&[SysNice, DacReadSearch], "root lacks cap_perfmon, cap_sys_ptrace here,"),
        ] {
            assert!(fix(held).starts_with(lacking), "{}", fix(held));
        }
        let all = [SysNice, DacReadSearch, SysPtrace];
        assert!(fix(&all).starts_with("hugepilot lacks no capability: a security module"));
        let contained = Rights { initial_user_namespace: false, ..holding(&all) };
        assert!(fix_for(false, true, &contained).contains("in this user namespace only"));
    }

    #[test]
    fn names_are_ordered_by_number() {
        assert_eq!(Capability::DacReadSearch.name(), "cap_dac_read_search");
        assert_eq!(Capability::SysPtrace.name(), "cap_sys_ptrace");
        assert_eq!(Capability::SysAdmin.name(), "cap_sys_admin");
        assert_eq!(Capability::SysNice.name(), "cap_sys_nice");
        assert_eq!(Capability::Perfmon.name(), "cap_perfmon");
        assert_eq!(Capabilities(1 << 63).names(), ["cap_63"]);
    }
}
