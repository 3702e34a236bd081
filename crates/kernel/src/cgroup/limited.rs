//! Cgroups with a memory limit of their own.

use std::path::{Path, PathBuf};

use hugepilot_units::Bytes;

use super::{MemoryCgroup, children};
use crate::Root;

/// Directories that are read at most.
const MAX_DIRECTORIES: usize = 10_000;

/// Lists the directories of all visible cgroups that have a memory limit of their own, such as
/// `/sys/fs/cgroup/db.slice`, of at least `least`, parents first. Costs a few reads for each.
pub fn limited(root: &Root, least: Bytes) -> Vec<PathBuf> {
    let mounts = ["sys/fs/cgroup/memory", "sys/fs/cgroup", "sys/fs/cgroup/unified"];
    let is_mounted = |mount: &&str| root.join(mount).join("cgroup.procs").exists();
    let Some(mount) = mounts.into_iter().find(is_mounted) else { return Vec::new() };
    let (mut found, mut read, mut rest) = (Vec::new(), 0, vec![PathBuf::from(mount)]);
    while let Some(directory) = rest.pop() {
        read += 1;
        if read > MAX_DIRECTORIES {
            break;
        }
        if own_limit(root, &directory).is_some_and(|limit| limit >= least) {
            found.push(Path::new("/").join(&directory));
        }
        rest.extend(children(root, &directory));
    }
    found.sort();
    found
}

/// Limit of the cgroup itself, not of an ancestor.
fn own_limit(root: &Root, directory: &Path) -> Option<Bytes> {
    let group = MemoryCgroup::of_directory(root, directory)?;
    group.limit_at(root, directory, &["memory.max", "memory.high"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn cgroups_with_a_limit_of_their_own_are_found_at_any_depth() {
        let group = |path: &str, limit: &str| {
            ["cgroup.procs", "memory.current", "memory.max"].map(|file| {
                let text = if file == "memory.max" { limit } else { "4096" };
                (format!("sys/fs/cgroup/{path}{file}"), text.to_owned())
            })
        };
        let mut files = vec![("sys/fs/cgroup/cgroup.procs".to_owned(), "1".to_owned())];
        for (path, limit) in
            [("a/", "max"), ("a/b/", "1048576"), ("a/b/c/", "max"), ("d/", "2097152"), ("e/", "9")]
        {
            files.extend(group(path, limit));
        }
        let files: Vec<_> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_folder, root) = fixture(&files);
        let limited = |root: &Root| limited(root, Bytes::kib(512));
        assert_eq!(limited(&root), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/d"].map(PathBuf::from));
        assert_eq!(limited(&fixture(&[]).1), Vec::<PathBuf>::new());
    }
}
