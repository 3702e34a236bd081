//! Installed documents: links to files that are not installed become plain text.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{copy, put, read, root};

/// Files and folders of the repository that are installed, at the same relative paths, so that
/// their links hold.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "docs",
    "examples",
];

/// Installs the documents in `folder`.
pub(super) fn install(folder: &Path) -> Result<()> {
    for name in DOCUMENTS {
        copy(&root().join(name), &folder.join(name))?;
    }
    for folder in ["", "docs", "docs/cli"].map(|name| folder.join(name)) {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                put(&path, without_dead_links(&read(&path)?, &folder).as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Replaces each link to a file that does not exist relative to `folder` by its label.
fn without_dead_links(text: &str, folder: &Path) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("](") {
        let (label, target) = (&rest[..at], &rest[at + 2..]);
        let (Some(start), Some(end)) = (label.rfind('['), target.find(')')) else { break };
        let (target, after) = (&target[..end], &target[end + 1..]);
        let file = target.split('#').next().unwrap_or_default();
        let is_dead = !file.is_empty() && !file.contains("://") && !folder.join(file).exists();
        done += &label[..start];
        done += &if is_dead {
            label[start + 1..].to_owned()
        } else {
            format!("{}]({target})", &label[start..])
        };
        rest = after;
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_missing_files_become_text() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        let text = "[a](Cargo.toml), [b](no.md#x), [c](#here), ![d](https://x.org/d) and [e] f](";
        let expected = "[a](Cargo.toml), b, [c](#here), ![d](https://x.org/d) and [e] f](";
        assert_eq!(without_dead_links(text, folder.path()), expected);
    }
}
