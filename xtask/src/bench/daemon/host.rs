//! Changes of the machine for a run: the THP setting and a cgroup, restored in every case.
//!
//! A warden, a shell of its own process group, restores them when its stdin ends: at the end of a
//! run, after an error, and also when this process is killed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use hugepilot_testkit::cgroup::Cgroup;
use hugepilot_units::Bytes;

const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Settings that a record contains.
const SETTINGS: [&str; 7] = [
    "enabled",
    "defrag",
    "shrink_underused",
    "khugepaged/defrag",
    "khugepaged/max_ptes_none",
    "khugepaged/pages_to_scan",
    "khugepaged/scan_sleep_millisecs",
];

/// Arguments: the setting, its file, and the cgroup, whose processes it ends.
const WARDEN: &str = r#"
trap '' HUP INT QUIT TERM
cat > /dev/null
echo "$1" > "$2"
for round in 1 2 3 4 5 6 7 8 9 10; do
    [ -d "$3" ] || exit 0
    for pid in $(cat "$3/cgroup.procs"); do kill -KILL "$pid"; done
    sleep 0.3
    rmdir "$3"
done 2> /dev/null
"#;

/// The changed machine. Drop its processes first.
pub(super) struct Host {
    // Dropped in this order: what the cgroup leaves, the warden removes.
    pub(super) group: Cgroup,
    warden: Warden,
}

impl Host {
    /// Sets THP and creates a cgroup.
    pub(super) fn new(thp: &str, limit: Bytes) -> Result<Self> {
        let group = Cgroup::new(limit);
        let warden = Warden::start(Path::new(ENABLED), group.path())?;
        fs::write(ENABLED, thp).context(ENABLED)?;
        Ok(Self { group, warden })
    }

    /// Restores the machine, and checks that.
    pub(super) fn restore(self) -> Result<()> {
        let Self { group, warden } = self;
        drop(group);
        let before = warden.before.clone();
        drop(warden);
        let now = chosen(ENABLED)?;
        ensure!(now == before, "{ENABLED} is {now}, was {before}");
        Ok(())
    }
}

/// Values of the settings that matter for huge pages.
pub(super) fn settings() -> Vec<(String, String)> {
    let folder = Path::new(ENABLED).parent().unwrap_or(Path::new("/"));
    let value = |name: &&str| Some((name.to_string(), chosen(folder.join(name)).ok()?));
    SETTINGS.iter().filter_map(value).collect()
}

struct Warden {
    child: Child,
    /// Setting to restore.
    before: String,
}

impl Warden {
    fn start(setting: &Path, group: &Path) -> Result<Self> {
        let before = chosen(setting)?;
        let mut command = Command::new("sh");
        command.args(["-c", WARDEN, "sh", &before]).arg(setting).arg(group);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        Ok(Self { child: command.spawn().context("cannot start sh")?, before })
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Choice in a file such as `always [madvise] never`, or the whole value.
fn chosen(file: impl AsRef<Path>) -> Result<String> {
    let file = file.as_ref();
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let choice = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    Ok(choice.map_or(text.trim(), |(choice, _)| choice).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warden_restores_the_setting_and_removes_the_group_when_its_stdin_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (setting, group) = (folder.path().join("enabled"), folder.path().join("group"));
        fs::write(&setting, "always [madvise] never\n").unwrap();
        fs::create_dir(&group).unwrap();
        let warden = Warden::start(&setting, &group).unwrap();
        fs::write(&setting, "always").unwrap();
        drop(warden);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "madvise\n");
        assert!(!group.exists());
    }

    #[test]
    fn a_choice_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for (text, wanted) in [("always [never]\n", "never"), ("511\n", "511")] {
            fs::write(&file, text).unwrap();
            assert_eq!(chosen(&file).unwrap(), wanted);
        }
    }
}
