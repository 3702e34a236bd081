//! Parts of the tree that do not follow the rules of style yet: their findings are only counted.

/// Prefixes of paths. The first that fits a path counts.
pub(super) const PENDING: &[&str] = &[
    "crates/cli/",
    "crates/lab/",
    "crates/launch/",
    "crates/manager/",
    "crates/settings/",
    "crates/sim/",
    "docs/",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
];
