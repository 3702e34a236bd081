//! Programs that the mix starts: compiled, named and placed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use hugepilot_testkit::cgroup::Cgroup;
use hugepilot_units::Bytes;

use super::timeline::{Kind, MIX};
use crate::run;

/// Own sources below `xtask/src/bench`, with the names of their processes.
const SOURCES: [(&str, &str); 3] = [
    ("daemon/programs/grow.rs", "mix-grow"),
    ("daemon/programs/ballast.rs", "mix-ballast"),
    ("gain/programs/load.rs", "mix-load"),
];

/// Compiles the own programs into `target/mix`, and returns the folder. Each is there under the
/// name of its process.
pub(super) fn compile() -> Result<PathBuf> {
    let folder = run::target().join("mix");
    fs::create_dir_all(&folder)?;
    for (source, name) in SOURCES {
        let source = run::root().join("xtask/src/bench").join(source);
        let mut command = Command::new("rustc");
        command.args(["-O", "--edition", "2021", "-o"]).arg(folder.join(name)).arg(&source);
        let output = command.output().context("rustc")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cannot compile {}:\n{said}", source.display());
    }
    Ok(folder)
}

/// How programs start.
pub(super) struct Tools<'a> {
    pub(super) group: &'a Cgroup,
    /// Folder with the compiled programs.
    pub(super) compiled: &'a Path,
    /// Folder with links to hugepilot, and the working directory of all programs.
    pub(super) folder: &'a Path,
    pub(super) limit: Bytes,
    pub(super) seed: u64,
    pub(super) cpus: usize,
}

impl Tools<'_> {
    /// Returns a command that starts `name` in the cgroup, on one CPU.
    pub(super) fn command(&self, name: &str, cpu: usize) -> Command {
        let mut command = self.group.command(Path::new("taskset"));
        command.args(["-c", &cpu.min(self.cpus - 1).to_string()]);
        command.arg(self.place(name)).current_dir(self.folder);
        command
    }

    /// File of a program. The kernel names a process after it.
    fn place(&self, name: &str) -> PathBuf {
        let places = [self.folder.join(name), self.compiled.join(name)];
        places.into_iter().find(|place| place.exists()).unwrap_or_else(|| name.into())
    }

    /// Makes a link to `hugepilot` for each workload.
    pub(super) fn link(&self, hugepilot: &Path) -> Result<()> {
        for program in MIX.iter().filter(|program| matches!(program.kind, Kind::Lab(_))) {
            let link = self.folder.join(program.name);
            let made = std::os::unix::fs::symlink(hugepilot, &link);
            made.with_context(|| link.display().to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_exist() {
        let folder = run::root().join("xtask/src/bench");
        assert!(SOURCES.iter().all(|(source, _)| folder.join(source).is_file()));
        assert!(SOURCES.iter().all(|(_, name)| name.len() <= 15));
    }
}
