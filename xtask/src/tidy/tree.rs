//! The files of the project.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Every name below the root, and the texts that the rules read. Paths are relative, with `/`.
#[derive(Debug, Default)]
pub(super) struct Tree {
    texts: BTreeMap<String, String>,
    names: BTreeSet<String>,
}

impl Tree {
    /// Reads the tree below `root`, except `target` and `.git`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.add_folder(root, "")?;
        Ok(tree)
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == ".git" || name == "target" {
                continue;
            }
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_folder(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file() && is_read(&name) {
                let bytes = fs::read(entry.path()).with_context(|| path.clone())?;
                self.texts.insert(path.clone(), String::from_utf8_lossy(&bytes).into_owned());
            }
            self.names.insert(path);
        }
        Ok(())
    }

    /// A tree of texts, for tests.
    #[cfg(test)]
    pub(super) fn of(texts: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for &(path, text) in texts {
            tree.texts.insert(path.to_owned(), text.to_owned());
            let folders = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            tree.names.extend(folders.chain([path.to_owned()]));
        }
        tree
    }

    /// All texts with their paths.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (&**path, &**text))
    }

    /// The texts whose path ends with `end`.
    pub(super) fn texts_ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| path.ends_with(end))
    }

    /// The text at `path`.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether there is a file or a folder at `path`; the empty path is the root.
    pub(super) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.names.contains(path)
    }
}

fn is_read(name: &str) -> bool {
    const ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".h", ".hpp", ".c", ".cpp", ".sh"];
    ENDINGS.iter().any(|ending| name.ends_with(ending))
}
