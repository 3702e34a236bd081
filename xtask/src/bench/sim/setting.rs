//! Graph order, TLBs and policy of a simulation.

use serde::{Deserialize, Serialize};

use super::options::{Kernel, Options, Order};

/// Titles of the columns of [`Setting::cells`].
pub(super) const HEAD: [&str; 3] = ["order", "TLBs", "policy"];

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) order: String,
    pub(super) preset: String,
    /// Policy, for `pcc` with its selection if that matters.
    pub(super) policy: String,
}

impl Setting {
    pub(super) fn new(case: Case<'_>, policy: &str) -> Self {
        Self {
            order: case.order.name().to_owned(),
            preset: case.preset.to_owned(),
            policy: policy.to_owned(),
        }
    }

    /// Setting of a benchmark that takes minutes, and so has one.
    pub(super) fn first(options: &Options) -> Self {
        let case = Case { order: options.order(), preset: options.preset() };
        Self::new(case, options.policy())
    }

    pub(super) fn cells(&self) -> [String; 3] {
        [self.order.clone(), self.preset.clone(), self.policy.clone()]
    }
}

/// Graph order and TLBs of a simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) order: Order,
    pub(super) preset: &'a str,
}

impl Case<'_> {
    /// All orders with all TLBs of `options`.
    pub(super) fn all(options: &Options) -> Vec<Case<'_>> {
        let with = |&order: &Order| {
            options.presets().into_iter().map(move |preset| Case { order, preset })
        };
        options.orders().iter().flat_map(with).collect()
    }

    /// Each kernel of `options` with all of them.
    pub(super) fn of_kernels(options: &Options) -> Vec<(Kernel, Case<'_>)> {
        let cases = Case::all(options);
        let with = |&kernel: &Kernel| cases.iter().map(move |&case| (kernel, case));
        options.kernels.iter().flat_map(with).collect()
    }
}

/// Policy of several cores or processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) policy: &'static str,
    /// Order in which `pcc` takes the candidates.
    pub(super) selection: Option<&'static str>,
}

impl Variant {
    const ALL: [Self; 4] = [
        Self { policy: "pcc", selection: Some("highest") },
        Self { policy: "pcc", selection: Some("round-robin") },
        Self { policy: "hawkeye", selection: None },
        Self { policy: "heat", selection: None },
    ];

    pub(super) fn all(options: &Options) -> impl Iterator<Item = Self> {
        let policies = options.policies();
        Self::ALL.into_iter().filter(move |one| policies.contains(&one.policy))
    }

    pub(super) fn name(self) -> String {
        let selection = self.selection.map(|one| format!(", {one}"));
        format!("{}{}", self.policy, selection.unwrap_or_default())
    }

    /// Flag of the selection.
    pub(super) fn flag(self) -> String {
        self.selection.map_or_else(String::new, |one| format!("--selection {one}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_all_settings_unless_named() {
        let options = Options::read(&[]).unwrap();
        assert_eq!(Case::all(&options).len(), 4);
        assert_eq!(Variant::all(&options).count(), 4);
        let options = Options::read(&["--order", "dbg", "--policy", "heat,pcc"]).unwrap();
        let setting = |one| Setting::new(one, "heat").cells().join(" ");
        let all: Vec<String> = Case::all(&options).into_iter().map(setting).collect();
        assert_eq!(all, ["dbg haswell heat", "dbg zen5 heat"]);
        let names: Vec<String> = Variant::all(&options).map(Variant::name).collect();
        assert_eq!(names, ["pcc, highest", "pcc, round-robin", "heat"]);
    }
}
