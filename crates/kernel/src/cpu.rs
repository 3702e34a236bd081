//! Processor, and the sizes of its data TLBs.
//!
//! The sizes come from a table, not from CPUID: hypervisors mask the leaves with the sizes, and
//! some leaves are wrong on bare metal, too. Sizes of processors beyond the table are assumed and
//! marked so.

use hugepilot_record::Cpu;
use hugepilot_reports::doctor::TlbSizes;

use crate::{KernelError, Result, Root};

const ONLINE: &str = "sys/devices/system/cpu/online";

/// Returns the IDs of the online processors.
///
/// # Errors
/// [`KernelError::Read`]; [`KernelError::Parse`].
pub fn online(root: &Root) -> Result<Vec<u32>> {
    let text = root.read_text(ONLINE)?;
    parse_list(&text).ok_or_else(|| {
        KernelError::parse(&root.join(ONLINE), 1, "a list such as 0-3,8", text.as_bytes())
    })
}

/// Parses a list of processors such as `0-3,8`.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Reads `/proc/cpuinfo`.
///
/// # Errors
/// [`KernelError::Read`]; [`KernelError::Parse`] if no processor is described.
pub fn read(root: &Root) -> Result<Cpu> {
    let path = "proc/cpuinfo";
    let text = root.read_text(path)?;
    parse(&text)
        .ok_or_else(|| KernelError::parse(&root.join(path), 1, "a processor", text.as_bytes()))
}

/// Returns the first processor described in `text`.
fn parse(text: &str) -> Option<Cpu> {
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let number = |name: &str| {
        let value = field(name)?;
        match value.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        }
    };
    let name = field("model name").unwrap_or_default();
    let model_name: String = name.chars().filter(|c| !c.is_control()).collect();
    let hypervisor =
        field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    if let Some(vendor) = field("vendor_id") {
        let vendor = vendor.chars().filter(|c| !c.is_control()).collect();
        let (family, model) = (number("cpu family")?, number("model")?);
        return Some(Cpu { vendor, model_name, family, model, hypervisor });
    }
    let vendor = match number("CPU implementer")? {
        ARM_IMPLEMENTER => ARM.to_owned(),
        other => format!("{other:#x}"),
    };
    let (family, model) = (number("CPU architecture")?, number("CPU part")?);
    Some(Cpu { vendor, model_name, family, model, hypervisor })
}

/// [`Cpu::vendor`] of Intel.
pub(crate) const INTEL: &str = "GenuineIntel";
/// [`Cpu::vendor`] of AMD.
pub(crate) const AMD: &str = "AuthenticAMD";
/// [`Cpu::vendor`] of ARM's own designs.
pub(crate) const ARM: &str = "ARM";
const ARM_IMPLEMENTER: u32 = 0x41;

/// Core design. `models` are inclusive ranges.
struct Row {
    vendor: &'static str,
    family: u32,
    models: &'static [(u32, u32)],
    l1d_4k: u32,
    l2_4k: u32,
    l2_2m: u32,
    assumed: bool,
    source: &'static str,
}

const fn row(
    (vendor, family): (&'static str, u32),
    models: &'static [(u32, u32)],
    (l1d_4k, l2_4k, l2_2m): (u32, u32, u32),
    source: &'static str,
) -> Row {
    Row { vendor, family, models, l1d_4k, l2_4k, l2_2m, assumed: false, source }
}

/// Core designs by vendor and family, oldest first, each with the source of its numbers.
const TABLE: [Row; 14] = [
    row((INTEL, 6), &[(58, 58), (62, 62)], (64, 512, 0), "Ivy Bridge: CPUID leaf 2 (5A, CA)"),
    row(
        (INTEL, 6),
        &[(60, 60), (63, 63), (69, 70)],
        (64, 1024, 1024),
        "Haswell: CPUID leaf 2 (63, C1); second level shared by 4K and 2M",
    ),
    row(
        (INTEL, 6),
        &[(61, 61), (71, 71), (79, 79), (86, 86)],
        (64, 1536, 1536),
        "Broadwell: CPUID leaf 2 (63, C3); second level shared by 4K and 2M",
    ),
    row(
        (INTEL, 6),
        &[(78, 78), (85, 85), (94, 94), (142, 142), (158, 158)],
        (64, 1536, 1536),
        "Skylake, Cascade Lake: CPUID leaf 2 (63, C3), associativity from TLB;DR (USENIX Security \
         2022)",
    ),
    row(
        (INTEL, 6),
        &[(106, 106), (108, 108)],
        (64, 2048, 1024),
        "Ice Lake-SP: CPUID leaf 0x18; 4K may use both halves of the second level, 2M one",
    ),
    row(
        (INTEL, 6),
        &[(143, 143), (207, 207)],
        (96, 2048, 1024),
        "Sapphire and Emerald Rapids: CPUID leaf 0x18; first level from Intel's disclosures (CPUID \
         says 64)",
    ),
    row((INTEL, 6), &[(173, 174)], (96, 2048, 1024), "Granite Rapids: CPUID leaf 0x18"),
    row((AMD, 23), &[(0x00, 0x2f)], (64, 1536, 1536), "Zen 1: CPUID leaves 0x80000005, 0x80000006"),
    row((AMD, 23), &[(0x30, 0xff)], (64, 2048, 2048), "Zen 2: CPUID leaves 0x80000005, 0x80000006"),
    row(
        (AMD, 25),
        &[(0x00, 0x0f), (0x20, 0x5f)],
        (64, 2048, 2048),
        "Zen 3: CPUID leaves 0x80000005, 0x80000006",
    ),
    row(
        (AMD, 25),
        &[(0x10, 0x1f), (0x60, 0xaf)],
        (72, 3072, 3072),
        "Zen 4: CPUID leaves 0x80000005, 0x80000006",
    ),
    row(
        (AMD, 26),
        &[(0x00, 0x2f), (0x40, 0x4f), (0x60, 0x7f)],
        (96, 4096, 4096),
        "Zen 5: CPUID leaf 0x80000006 times 32 (leaf 0x80000021 bit 14, which virtual machines \
         hide)",
    ),
    row(
        (ARM, 8),
        &[(0xd0b, 0xd0c)],
        (48, 1280, 1280),
        "Neoverse N1, Cortex-A76: Cortex-A76 manual, A5.2",
    ),
    Row {
        vendor: ARM,
        family: 8,
        models: &[(0xd4f, 0xd4f)],
        l1d_4k: 48,
        l2_4k: 2048,
        l2_2m: 2048,
        assumed: true,
        source: "Neoverse V2: commonly quoted, not checked against its manual",
    },
];

/// Sizes assumed for a core beyond the table: the second level of Intel's servers from 2014 to
/// 2020, which later cores exceed.
const UNKNOWN: Row = Row {
    vendor: "",
    family: 0,
    models: &[],
    l1d_4k: 64,
    l2_4k: 1536,
    l2_2m: 1024,
    assumed: true,
    source: "not in the table of processors: assumed",
};

/// Returns the sizes of its data TLBs.
pub fn tlb(cpu: &Cpu) -> TlbSizes {
    let fits = |row: &&Row| {
        row.vendor == cpu.vendor
            && row.family == cpu.family
            && row.models.iter().any(|&(first, last)| (first..=last).contains(&cpu.model))
    };
    let row = TABLE.iter().find(fits).unwrap_or(&UNKNOWN);
    TlbSizes {
        l1d_4k_entries: row.l1d_4k,
        l2_4k_entries: row.l2_4k,
        l2_2m_entries: row.l2_2m,
        source: row.source.to_owned(),
        assumed: row.assumed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn cpu_lists_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("online"), "0-2,5\n").unwrap();
        assert_eq!(online(&Root::at(dir.path())).unwrap(), [0, 1, 2, 5]);
        std::fs::write(path.join("online"), "zero\n").unwrap();
        assert!(online(&Root::at(dir.path())).is_err());
    }

    #[test]
    fn processors_are_listed_in_ranges() {
        let (_directory, root) = fixture(&[(ONLINE, "0-2,5,7-8\n")]);
        assert_eq!(online(&root).unwrap(), [0, 1, 2, 5, 7, 8]);
        let (_directory, root) = fixture(&[(ONLINE, "none\n")]);
        assert!(online(&root).is_err());
    }

    fn x86(vendor: &str, family: u32, model: u32) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n\
             model name\t: A CPU @ 2.00GHz\nstepping\t: 2\n\
             flags\t\t: fpu vme hypervisor pdpe1gb\n\n\
             processor\t: 1\nvendor_id\t: Other\n"
        )
    }

    #[test]
    fn x86_and_arm_describe_themselves_differently() {
        let intel = parse(&x86(INTEL, 6, 207)).unwrap();
        assert_eq!((intel.vendor.as_str(), intel.family, intel.model), (INTEL, 6, 207));
        assert_eq!(intel.model_name, "A CPU @ 2.00GHz");
        assert!(intel.hypervisor);
        let text = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd\n\
                    CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n\
                    CPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let arm = parse(text).unwrap();
        assert_eq!((arm.vendor.as_str(), arm.family, arm.model), (ARM, 8, 0xd0c));
        assert_eq!((arm.model_name.as_str(), arm.hypervisor), ("", false));
        assert_eq!(tlb(&arm).l2_4k_entries, 1280);
        assert!(parse("processor : 0\n").is_none());
    }

    #[test]
    fn the_table_has_servers_of_the_last_ten_years() {
        let table = [
            (INTEL, 6, 62, [64, 512, 0]),
            (INTEL, 6, 63, [64, 1024, 1024]),
            (INTEL, 6, 79, [64, 1536, 1536]),
            (INTEL, 6, 85, [64, 1536, 1536]),
            (INTEL, 6, 106, [64, 2048, 1024]),
            (INTEL, 6, 143, [96, 2048, 1024]),
            (INTEL, 6, 173, [96, 2048, 1024]),
            (AMD, 23, 0x01, [64, 1536, 1536]),
            (AMD, 23, 0x31, [64, 2048, 2048]),
            (AMD, 25, 0x01, [64, 2048, 2048]),
            (AMD, 25, 0x11, [72, 3072, 3072]),
            (AMD, 26, 0x02, [96, 4096, 4096]),
        ];
        for (vendor, family, model, sizes) in table {
            let found = tlb(&parse(&x86(vendor, family, model)).unwrap());
            assert_eq!(
                [found.l1d_4k_entries, found.l2_4k_entries, found.l2_2m_entries],
                sizes,
                "{model}"
            );
            assert!(!found.assumed && !found.source.is_empty());
        }
    }

    #[test]
    fn sizes_beyond_the_table_are_assumed() {
        for (vendor, family, model) in
            [(INTEL, 6, 1), (AMD, 27, 0), ("HygonGenuine", 24, 1), (INTEL, 26, 2)]
        {
            let found = tlb(&parse(&x86(vendor, family, model)).unwrap());
            assert_eq!((found.l2_4k_entries, found.assumed), (1536, true));
        }
    }

    #[test]
    fn no_processor_is_in_two_rows() {
        for (i, row) in TABLE.iter().enumerate() {
            for other in &TABLE[i + 1..] {
                let apart =
                    |&(a, b): &(u32, u32)| other.models.iter().all(|&(c, d)| b < c || d < a);
                let same = row.vendor == other.vendor && row.family == other.family;
                assert!(
                    !same || row.models.iter().all(apart),
                    "{} and {}",
                    row.source,
                    other.source
                );
            }
        }
    }

    #[test]
    fn this_machine_has_a_processor() {
        let cpu = read(&Root::live()).unwrap();
        assert!(tlb(&cpu).l2_4k_entries > 0);
    }
}
