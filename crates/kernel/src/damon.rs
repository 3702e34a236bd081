//! DAMON contexts of the sysfs interface, read only.

use std::fs;

use crate::Root;

/// Counts the running threads of DAMON with a scheme that changes memory: any action other than
/// `stat`. None if the kernel has no such interface.
pub fn acting(root: &Root) -> u64 {
    let below = |path: String| -> Vec<String> {
        let entries = fs::read_dir(root.join(&path)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let numbers = names.filter(|name| name.parse::<u32>().is_ok());
        numbers.map(|name| format!("{path}/{name}")).collect()
    };
    let reads = |path: String| root.read_text(path).unwrap_or_default();
    let acts = |context: &String| {
        let mut schemes = below(format!("{context}/schemes")).into_iter();
        schemes.any(|scheme| !["", "stat"].contains(&&*reads(format!("{scheme}/action"))))
    };
    let is_acting = |kdamond: &String| {
        reads(format!("{kdamond}/state")) == "on"
            && below(format!("{kdamond}/contexts")).iter().any(acts)
    };
    below("sys/kernel/mm/damon/admin/kdamonds".to_owned())
        .iter()
        .filter(|one| is_acting(one))
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn contexts_act_only_if_they_run_with_a_scheme() {
        let path = |file: &str| format!("sys/kernel/mm/damon/admin/kdamonds/{file}");
        let table = [
            ("on\n", Some("pageout\n"), 1),
            ("on\n", Some("stat\n"), 0),
            ("on\n", None, 0),
            ("off\n", Some("pageout\n"), 0),
        ];
        for (state, action, count) in table {
            let state = (path("0/state"), state);
            let action = action.map(|text| (path("0/contexts/0/schemes/0/action"), text));
            let files: Vec<_> = [state].into_iter().chain(action).collect();
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (_dir, root) = fixture(&files);
            assert_eq!(acting(&root), count, "{files:?}");
        }
        assert_eq!(acting(&fixture(&[]).1), 0);
    }
}
