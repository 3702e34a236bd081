//! Dependencies between crates: each points to a lower layer.

use super::{Report, crate_of};

/// Layers from bottom to top. A crate may use any crate in a layer below; crates in one layer are
/// independent. A new crate gets its layer here.
const LAYERS: [&[&str]; 19] = [
    &["units", "sentence"],
    &["stats"],
    &["record"],
    &["render"],
    &["reports", "events"],
    &["policy"],
    &["recording"],
    &["alloc"],
    &["kernel"],
    &["code"],
    &["sim"],
    &["preload", "capi"],
    &["graph"],
    &["profiler"],
    &["workload"],
    &["settings"],
    &["manager", "lab"],
    &["launch", "top", "trace"],
    &["cli"],
];

const TESTKIT: &str = "testkit";

pub(super) fn check(path: &str, manifest: &str, report: &mut Report) {
    let Some((name, "Cargo.toml")) = crate_of(path) else { return };
    if name == "xtask" || name == TESTKIT {
        return;
    }
    let Some(own) = layer(name) else {
        return report
            .finding(path, format!("{name} has no layer; give it one in LAYERS of xtask's tidy"));
    };
    for (dependency, use_) in dependencies(manifest) {
        if dependency == TESTKIT {
            if use_ == Use::Code {
                report.finding(path, "testkit is for [dev-dependencies] only");
            }
        } else if layer(&dependency).is_none_or(|below| below >= own) {
            report.finding(
                path,
                format!("{name} depends on {dependency}, which is not in a layer below it"),
            );
        }
    }
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// Purpose of a dependency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// `[dependencies]`, `[build-dependencies]`.
    Code,
    /// `[dev-dependencies]`.
    Tests,
}

/// The project's crates that a manifest names, without their `hugepilot-`.
fn dependencies(manifest: &str) -> Vec<(String, Use)> {
    let (mut found, mut section) = (Vec::new(), None);
    let mut add = |key: &str, use_| {
        let name = key.trim().trim_matches('"').strip_prefix("hugepilot-");
        let name = name.and_then(|name| name.split(['.', ' ', '=', '"']).next());
        found.extend(name.map(|name| (name.to_owned(), use_)));
    };
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            // [dependencies], [target.'cfg(…)'.dependencies], [dependencies.hugepilot-units]
            let (table, key) = header.rsplit_once(".hugepilot-").unwrap_or((header, ""));
            section = match table.rsplit('.').next() {
                Some("dependencies" | "build-dependencies") => Some(Use::Code),
                Some("dev-dependencies") => Some(Use::Tests),
                _ => None,
            };
            if let (Some(use_), false) = (section, key.is_empty()) {
                add(&format!("hugepilot-{key}"), use_);
            }
        } else if let (Some(use_), Some((key, _))) = (section, line.split_once('=')) {
            add(key, use_);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, manifest: &str) -> Vec<String> {
        let mut report = Report::default();
        check(&format!("crates/{name}/Cargo.toml"), manifest, &mut report);
        report.findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn dependencies_are_read_in_every_spelling() {
        let manifest = "\
[package]
name = \"hugepilot-cli\"
[dependencies]
hugepilot-units.workspace = true
# hugepilot-reports.workspace = true
hugepilot-record = { path = \"../record\" }
serde = \"1\"
[target.'cfg(unix)'.dependencies]
hugepilot-kernel.workspace = true
[dev-dependencies]
hugepilot-testkit.workspace = true
[dependencies.hugepilot-policy]
workspace = true
";
        let names: Vec<_> = dependencies(manifest);
        let want = [
            ("units", Use::Code),
            ("record", Use::Code),
            ("kernel", Use::Code),
            ("testkit", Use::Tests),
            ("policy", Use::Code),
        ];
        assert_eq!(names, want.map(|(name, use_)| (name.to_owned(), use_)));
    }

    #[test]
    fn dependencies_point_downwards() {
        assert_eq!(
            findings("record", "[dependencies]\nhugepilot-units.workspace = true\n"),
            [""; 0]
        );
        assert_eq!(
            findings("manager", "[dependencies]\nhugepilot-kernel.workspace = true\n"),
            [""; 0]
        );
        let up = ["record depends on policy, which is not in a layer below it"];
        assert_eq!(findings("record", "[dependencies]\nhugepilot-policy.workspace = true\n"), up);
        let beside = ["capi depends on preload, which is not in a layer below it"];
        assert_eq!(
            findings("capi", "[dev-dependencies]\nhugepilot-preload.workspace = true\n"),
            beside
        );
        assert_eq!(findings("cellar", "").len(), 1);
    }

    #[test]
    fn testkit_is_for_tests() {
        assert_eq!(
            findings("units", "[dev-dependencies]\nhugepilot-testkit.workspace = true\n"),
            [""; 0]
        );
        let code = ["testkit is for [dev-dependencies] only"];
        assert_eq!(findings("cli", "[dependencies]\nhugepilot-testkit.workspace = true\n"), code);
        assert_eq!(
            findings("testkit", "[dependencies]\nhugepilot-units.workspace = true\n"),
            [""; 0]
        );
    }
}
