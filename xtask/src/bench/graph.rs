//! GAP benchmark suite, and graph files for it and for hugepilot.

use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result};

use crate::run;

/// Folder of the GAP benchmark suite.
pub(super) fn suite() -> Result<PathBuf> {
    let folder = env::var_os("HUGEPILOT_GAPBS").and_then(|folder| path::absolute(folder).ok());
    folder.filter(|folder| folder.join("pr").exists()).context(
        "HUGEPILOT_GAPBS names a checkout of the GAP benchmark suite in which make has run",
    )
}

/// Writes a graph to a file named by graph and `name`, and keeps it for the next run.
pub(super) fn generated(
    hugepilot: &Path,
    graph: &str,
    name: &str,
    args: &[&str],
) -> Result<PathBuf> {
    let folder = run::target().join("graphs");
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{}.{name}", graph.replace(':', "-")));
    if !file.exists() {
        run::run(Command::new(hugepilot).args(["graph", "generate", graph]).arg(&file).args(args))?;
    }
    Ok(file)
}
