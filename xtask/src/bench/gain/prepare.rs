//! Preparation of a program: what it lacks, compilation, and its words filled in.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::graph::{generated, suite};
use super::programs::Program;
use crate::run::{self, in_path};

/// Program that can be started.
pub(super) struct Prepared {
    pub(super) program: &'static Program,
    hugepilot: PathBuf,
    source: PathBuf,
    out: PathBuf,
    graph: Option<PathBuf>,
}

/// Returns why a program cannot run here, with the fix.
pub(super) fn missing(program: &Program) -> Option<String> {
    let absent = |name: &str| {
        if name.starts_with('/') { !Path::new(name).exists() } else { !in_path(name) }
    };
    let need = program.needs.iter().find(|(name, _)| absent(name));
    if let Some((name, package)) = need {
        return Some(format!("no {name}; sudo apt-get install {package}"));
    }
    let of_suite = program.command.iter().find_map(|word| word.strip_prefix("{gapbs}/"))?;
    match suite() {
        Ok(folder) => (!folder.join(of_suite).exists())
            .then(|| format!("no {of_suite} in {}: run make there", folder.display())),
        Err(error) => Some(error.to_string()),
    }
}

impl Prepared {
    /// Compiles the program and generates its graph.
    pub(super) fn new(hugepilot: &Path, program: &'static Program) -> Result<Self> {
        let folder = run::target().join("gain");
        fs::create_dir_all(&folder)?;
        let source = program.source.unwrap_or_default();
        let graph = match program.graph {
            Some(graph) => Some(generated(hugepilot, graph, "sg", &[])?),
            None => None,
        };
        let this = Self {
            program,
            hugepilot: hugepilot.to_owned(),
            source: run::root().join("xtask/src/bench/gain/programs").join(source),
            out: folder.join(source.split('.').next().unwrap_or_default()),
            graph,
        };
        if !program.compile.is_empty() {
            let output = this.command(program.compile, Path::new("")).output();
            let output = output.with_context(|| program.compile[0].to_owned())?;
            anyhow::ensure!(
                output.status.success(),
                "cannot compile {source}:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(this)
    }

    /// A command of the program with `socket` for that of its server.
    pub(super) fn command(&self, words: &[&str], socket: &Path) -> Command {
        let suite = suite().unwrap_or_default();
        let places = [
            ("{hugepilot}", self.hugepilot.as_path()),
            ("{source}", &self.source),
            ("{out}", &self.out),
            ("{folder}", self.out.parent().unwrap_or(&self.out)),
            ("{graph}", self.graph.as_deref().unwrap_or(Path::new(""))),
            ("{gapbs}", &suite),
            ("{socket}", socket),
        ];
        let mut words = words.iter().map(|word| filled(word, &places));
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }
}

/// Replaces a placeholder at the start of a word.
fn filled(word: &str, places: &[(&str, &Path)]) -> OsString {
    let place = places.iter().find_map(|&(name, path)| Some((path, word.strip_prefix(name)?)));
    let Some((path, rest)) = place else { return word.into() };
    let mut text = path.as_os_str().to_owned();
    text.push(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::gain::programs::{PLAIN, PROGRAMS};

    #[test]
    fn placeholders_are_filled_in() {
        let places = [("{gapbs}", Path::new("/suite")), ("{out}", Path::new("/x"))];
        assert_eq!(filled("{gapbs}/pr", &places), "/suite/pr");
        assert_eq!(filled("{out}", &places), "/x");
        assert_eq!(filled("-n", &places), "-n");
    }

    #[test]
    fn sources_of_all_programs_exist() {
        let folder = run::root().join("xtask/src/bench/gain/programs");
        for source in PROGRAMS.iter().filter_map(|program| program.source) {
            assert!(folder.join(source).is_file(), "{source}");
        }
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let program = Program { needs: &[("no-such-program", "package")], ..PLAIN };
        let help = missing(&program).unwrap();
        assert_eq!(help, "no no-such-program; sudo apt-get install package");
        assert_eq!(missing(&Program { needs: &[("sh", "dash")], ..PLAIN }), None);
    }
}
