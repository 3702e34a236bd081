//! Policies: a line about each, and why `tune` refuses some.

use hugepilot_record::PolicyName;

/// Returns what a policy selects, for `--help` and documents.
pub const fn policy_line(name: PolicyName) -> &'static str {
    match name {
        PolicyName::Heat => "Regions that pay, by a trial inside the process, or else by a model",
        PolicyName::Pcc => {
            "Promotion candidate cache (MICRO 2023): at each --observe interval the 128 regions \
             with the most stalls, without a trial; --demote returns those that still stall much"
        }
        PolicyName::Linux => {
            "First come, first served, as the kernel with THP always; requires no samples"
        }
        PolicyName::Khugepaged => {
            "Next regions by process and address, 8 each 10 s, as the kernel's thread; requires no \
             samples"
        }
        PolicyName::Hawkeye => {
            "HawkEye (ASPLOS 2019): at each --observe interval the 8 regions with the most touched \
             base pages, processes in turn"
        }
        PolicyName::Emd => "Buckets of bloat density, processes alternating (EMD, ISMM 2025)",
        PolicyName::Exact => "Exact bloat density",
        PolicyName::All => "Every eligible region, by process and address; requires no samples",
        PolicyName::Never => "No region: a control, sampled as with the others",
        PolicyName::Schedule => {
            "Promotions and demotions of a file (--schedule) at their times; no samples"
        }
    }
}

/// Returns why `tune` cannot select regions by this policy, and the command for it; `None` if it
/// can.
pub fn policy_refusal(name: PolicyName) -> Option<(String, String)> {
    if name.promotes() {
        return None;
    }
    let cause = format!("{name} orders huge pages to split, and selects no regions to promote");
    let help = format!("split in this order: hugepilot debloat --order {name} -p PID");
    Some((cause, help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_of_splitting_are_refused_with_their_command() {
        for name in PolicyName::ALL {
            assert!(!policy_line(name).is_empty() && (name.promotes() || name.splits()), "{name}");
            let refusal = policy_refusal(name);
            assert_eq!(refusal.is_none(), name.promotes(), "{name}");
            let command = format!("debloat --order {name}");
            assert!(refusal.is_none_or(|(_, help)| help.contains(&command)), "{name}");
        }
    }
}
