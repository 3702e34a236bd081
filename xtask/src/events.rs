//! Tables of events: makes the files in `crates/events/src/lists` from the event files of
//! intel/perfmon and libpfm4.

mod libpfm;
mod perfmon;
mod unions;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::run;

pub(crate) const USAGE: &str = "cargo xtask events PERFMON LIBPFM4 [--check]";

/// Folder of the tables.
const LISTS: &str = "crates/events/src/lists";

/// Tables with their file in a checkout of intel/perfmon.
const OF_PERFMON: [(&str, &str); 7] = [
    ("ivy_bridge", "IVT/events/ivytown_core.json"),
    ("haswell", "HSX/events/haswellx_core.json"),
    ("broadwell", "BDX/events/broadwellx_core.json"),
    ("skylake", "CLX/events/cascadelakex_core.json"),
    ("ice_lake", "ICX/events/icelakex_core.json"),
    ("sapphire_rapids", "SPR/events/sapphirerapids_core.json"),
    ("granite_rapids", "GNR/events/graniterapids_core.json"),
];
/// Tables of the events of memory controllers with their file in a checkout of intel/perfmon, and
/// whether there is a file of experimental events beside it.
const OF_MEMORY: [(&str, &str, bool); 7] = [
    ("ivy_bridge_memory", "IVT/events/ivytown_uncore.json", false),
    ("haswell_memory", "HSX/events/haswellx_uncore.json", false),
    ("broadwell_memory", "BDX/events/broadwellx_uncore.json", false),
    ("skylake_memory", "CLX/events/cascadelakex_uncore.json", true),
    ("ice_lake_memory", "ICX/events/icelakex_uncore.json", true),
    ("sapphire_rapids_memory", "SPR/events/sapphirerapids_uncore.json", true),
    ("granite_rapids_memory", "GNR/events/graniterapids_uncore.json", true),
];
/// Tables with their file in a checkout of libpfm4.
const OF_LIBPFM: [(&str, &str); 9] = [
    ("zen1", "lib/events/amd64_events_fam17h_zen1.h"),
    ("zen2", "lib/events/amd64_events_fam17h_zen2.h"),
    ("zen3", "lib/events/amd64_events_fam19h_zen3.h"),
    ("zen4", "lib/events/amd64_events_fam19h_zen4.h"),
    ("zen5", "lib/events/amd64_events_fam1ah_zen5.h"),
    ("neoverse_n1", "lib/events/arm_neoverse_n1_events.h"),
    ("neoverse_v1", "lib/events/arm_neoverse_v1_events.h"),
    ("neoverse_n2", "lib/events/arm_neoverse_n2_events.h"),
    ("neoverse_v2", "lib/events/arm_neoverse_v2_events.h"),
];

/// Comment of the tables of memory controllers.
const MEMORY_NOTE: &str = "Code and unit mask of each event of uncore_imc";

/// `perf_event_attr.config` and `config1` of each event by name; of a unit outside the cores, code
/// and unit mask.
type Events = BTreeMap<String, [u64; 2]>;

/// Writes all tables from two checkouts, or compares them with `--check`.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let (perfmon, libpfm, is_check) = match *args {
        [perfmon, libpfm] => (Path::new(perfmon), Path::new(libpfm), false),
        [perfmon, libpfm, "--check"] => (Path::new(perfmon), Path::new(libpfm), true),
        _ => bail!("usage: {USAGE}"),
    };
    let mut differ = Vec::new();
    for (name, table) in tables(perfmon, libpfm)? {
        let path = run::root().join(LISTS).join(format!("{name}.txt"));
        let events = table.lines().filter(|line| !line.starts_with('#')).count();
        println!("{name}: {events} events");
        if !is_check {
            fs::write(&path, table).with_context(|| path.display().to_string())?;
        } else if fs::read_to_string(&path).ok().as_deref() != Some(&table) {
            differ.push(name);
        }
    }
    ensure!(differ.is_empty(), "these tables differ: {}", differ.join(", "));
    Ok(())
}

/// Returns the name and the text of each table.
fn tables(perfmon: &Path, libpfm: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut tables = Vec::new();
    let read = |folder: &Path, file: &str| {
        let path = folder.join(file);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    for (name, file) in OF_PERFMON {
        let parsed = perfmon::parse(&read(perfmon, file)?).with_context(|| file.to_owned())?;
        let source = format!("intel/perfmon {file}, version {}", parsed.version);
        tables.push((name, table(&source, &[], &parsed.events)));
    }
    for (name, file, has_experimental) in OF_MEMORY {
        let mut parsed =
            perfmon::parse_memory(&read(perfmon, file)?).with_context(|| file.to_owned())?;
        let mut notes = vec![MEMORY_NOTE.to_owned()];
        if has_experimental {
            let file = file.replace(".json", "_experimental.json");
            let more =
                perfmon::parse_memory(&read(perfmon, &file)?).with_context(|| file.clone())?;
            parsed.events.extend(more.events);
            notes.insert(0, format!("and {file}, version {}", more.version));
        }
        let source = format!("intel/perfmon {file}, version {}", parsed.version);
        tables.push((name, table(&source, &notes, &parsed.events)));
    }
    let commit = commit(libpfm)?;
    for (name, file) in OF_LIBPFM {
        let is_amd = name.starts_with("zen");
        let parsed = libpfm::parse(&read(libpfm, file)?, is_amd);
        let mut events = parsed.with_context(|| file.to_owned())?;
        ensure!(!events.is_empty(), "{file}: no events");
        let notes = unions::add(name, &mut events);
        tables.push((name, table(&format!("libpfm4 {file}, {commit}"), &notes, &events)));
    }
    Ok(tables)
}

/// Commit of a checkout and its day.
fn commit(folder: &Path) -> Result<String> {
    let mut git = std::process::Command::new("git");
    git.arg("-C").arg(folder).args(["log", "-1", "--abbrev=7", "--format=%h %cs"]);
    let output = git.output().context("git")?;
    ensure!(output.status.success(), "{}: not a checkout of git", folder.display());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the text of a table: comments with the source, then a line for each event.
fn table(source: &str, notes: &[String], events: &Events) -> String {
    let mut text = format!("# {source}\n");
    for note in notes {
        let _ = writeln!(text, "# {note}");
    }
    for (name, [config, config1]) in events {
        let _ = write!(text, "{name} {config:#x}");
        if *config1 > 0 {
            let _ = write!(text, " {config1:#x}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of a committed table.
    pub(super) fn committed(name: &str) -> Vec<String> {
        let path = run::root().join(LISTS).join(format!("{name}.txt"));
        fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    /// Expects that each line of a table made of an excerpt is in the committed table.
    pub(super) fn is_in_committed(name: &str, events: &Events) {
        let committed = committed(name);
        let made = table("excerpt", &[], events);
        for line in made.lines().skip(1) {
            assert!(committed.iter().any(|known| known == line), "{name}: {line}");
        }
    }

    #[test]
    fn every_committed_table_has_a_file_that_it_is_made_of() {
        let memory = OF_MEMORY.iter().map(|&(name, file, _)| (name, file));
        let tables: Vec<_> = OF_PERFMON.iter().chain(&OF_LIBPFM).copied().chain(memory).collect();
        let mut names: Vec<_> = tables.iter().map(|&(name, _)| name).collect();
        names.sort_unstable();
        let mut files: Vec<String> = fs::read_dir(run::root().join(LISTS))
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        files.sort();
        assert_eq!(files, names);
        for (name, file) in tables {
            assert!(committed(name)[0].contains(file), "{name}");
        }
    }
}
