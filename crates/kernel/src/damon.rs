//! DAMON contexts of the sysfs interface, read only.

use std::fs;

use crate::Root;

/// Contexts that run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DamonContexts {
    /// Threads of DAMON that run.
    pub running: u64,
    /// Those with a scheme that changes memory: any action other than `stat`.
    pub acting: u64,
}

/// Counts the running threads of DAMON; none if the kernel has no such interface.
pub fn contexts(root: &Root) -> DamonContexts {
    let folder = "sys/kernel/mm/damon/admin/kdamonds";
    let below = |path: &str| {
        let entries = fs::read_dir(root.join(path)).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names
            .filter(|name| name.parse::<u32>().is_ok())
            .map(|name| format!("{path}/{name}"))
            .collect()
    };
    let acts = |kdamond: &String| {
        let contexts: Vec<String> = below(&format!("{kdamond}/contexts"));
        let schemes =
            contexts.iter().flat_map(|one| -> Vec<String> { below(&format!("{one}/schemes")) });
        schemes
            .filter_map(|one| root.read_text(format!("{one}/action")).ok())
            .any(|act| act != "stat")
    };
    let kdamonds: Vec<String> = below(folder);
    let is_on = |one: &&String| root.read_text(format!("{one}/state")).is_ok_and(|on| on == "on");
    let running: Vec<&String> = kdamonds.iter().filter(is_on).collect();
    let acting = running.iter().filter(|one| acts(one)).count() as u64;
    DamonContexts { running: running.len() as u64, acting }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn contexts_act_only_if_they_run_with_a_scheme() {
        let path = |file: &str| format!("sys/kernel/mm/damon/admin/kdamonds/{file}");
        let table = [
            ("on\n", Some("pageout\n"), (1, 1)),
            ("on\n", Some("stat\n"), (1, 0)),
            ("on\n", None, (1, 0)),
            ("off\n", Some("pageout\n"), (0, 0)),
        ];
        for (state, action, (running, acting)) in table {
            let state = (path("0/state"), state);
            let action = action.map(|text| (path("0/contexts/0/schemes/0/action"), text));
            let files: Vec<_> = [state].into_iter().chain(action).collect();
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let (_dir, root) = fixture(&files);
            assert_eq!(contexts(&root), DamonContexts { running, acting }, "{files:?}");
        }
        assert_eq!(contexts(&fixture(&[]).1), DamonContexts::default());
    }
}
