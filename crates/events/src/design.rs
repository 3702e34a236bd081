//! Core designs, and the lists of their events.

use hugepilot_record::Cpu;

use super::code::{DeviceEvent, EventCode};

/// Core design with a list of events. Designs of a vendor are in order of age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Design {
    /// Intel, 2012.
    IvyBridge,
    /// Intel, 2013.
    Haswell,
    /// Intel, 2014.
    Broadwell,
    /// Intel, 2015: Skylake, Skylake-SP, Cascade Lake, Comet Lake.
    Skylake,
    /// Intel, 2019: Ice Lake, Ice Lake-SP, Tiger Lake, Rocket Lake.
    IceLake,
    /// Intel, 2023: Sapphire Rapids, Emerald Rapids.
    SapphireRapids,
    /// Intel, 2024.
    GraniteRapids,
    /// AMD, 2017.
    Zen1,
    /// AMD, 2019.
    Zen2,
    /// AMD, 2020.
    Zen3,
    /// AMD, 2022.
    Zen4,
    /// AMD, 2024.
    Zen5,
    /// ARM, 2019.
    NeoverseN1,
    /// ARM, 2020.
    NeoverseV1,
    /// ARM, 2020.
    NeoverseN2,
    /// ARM, 2022.
    NeoverseV2,
}

/// Vendor of a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Intel,
    Amd,
    Arm,
}

impl Design {
    /// All designs.
    pub const ALL: [Self; 16] = [
        Self::IvyBridge,
        Self::Haswell,
        Self::Broadwell,
        Self::Skylake,
        Self::IceLake,
        Self::SapphireRapids,
        Self::GraniteRapids,
        Self::Zen1,
        Self::Zen2,
        Self::Zen3,
        Self::Zen4,
        Self::Zen5,
        Self::NeoverseN1,
        Self::NeoverseV1,
        Self::NeoverseN2,
        Self::NeoverseV2,
    ];

    /// Returns the design of `cpu`; `None` if hugepilot has no list of its events. Client
    /// processors have the core events of the server of the same design.
    ///
    /// Sources: `mapfile.csv` of intel/perfmon; AMD's families and models as in the kernel's
    /// `arch/x86/kernel/cpu/amd.c`; the part numbers of ARM.
    pub fn of(cpu: &Cpu) -> Option<Self> {
        Some(match (cpu.vendor.as_str(), cpu.family, cpu.model) {
            ("GenuineIntel", 6, 58 | 62) => Self::IvyBridge,
            ("GenuineIntel", 6, 60 | 63 | 69 | 70) => Self::Haswell,
            ("GenuineIntel", 6, 61 | 71 | 79 | 86) => Self::Broadwell,
            ("GenuineIntel", 6, 78 | 85 | 94 | 142 | 158 | 165 | 166) => Self::Skylake,
            ("GenuineIntel", 6, 106 | 108 | 125 | 126 | 140 | 141 | 167) => Self::IceLake,
            ("GenuineIntel", 6, 143 | 207) => Self::SapphireRapids,
            ("GenuineIntel", 6, 173 | 174) => Self::GraniteRapids,
            ("AuthenticAMD", 23, 0x00..=0x2f) => Self::Zen1,
            ("AuthenticAMD", 23, _) => Self::Zen2,
            ("AuthenticAMD", 25, 0x00..=0x0f | 0x20..=0x5f) => Self::Zen3,
            ("AuthenticAMD", 25, 0x10..=0x1f | 0x60..=0xaf) => Self::Zen4,
            ("AuthenticAMD", 26, 0x00..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => Self::Zen5,
            ("ARM", 8, 0xd0c) => Self::NeoverseN1,
            ("ARM", 8, 0xd40) => Self::NeoverseV1,
            ("ARM", 8, 0xd49) => Self::NeoverseN2,
            ("ARM", 8, 0xd4f) => Self::NeoverseV2,
            _ => return None,
        })
    }

    /// Returns the name of its preset in the simulator; `None` if there is none.
    pub const fn preset(self) -> Option<&'static str> {
        Some(match self {
            Self::IvyBridge => "ivy-bridge",
            Self::Haswell => "haswell",
            Self::Broadwell => "broadwell",
            Self::Skylake => "skylake-sp",
            Self::IceLake => "ice-lake-sp",
            Self::SapphireRapids => "sapphire-rapids",
            Self::Zen1 => "zen1",
            Self::Zen2 => "zen2",
            Self::Zen3 => "zen3",
            Self::Zen4 => "zen4",
            Self::Zen5 => "zen5",
            Self::NeoverseN1 => "neoverse-n1",
            Self::NeoverseV2 => "neoverse-v2",
            Self::GraniteRapids | Self::NeoverseV1 | Self::NeoverseN2 => return None,
        })
    }

    /// Returns the name of the design.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IvyBridge => "Ivy Bridge",
            Self::Haswell => "Haswell",
            Self::Broadwell => "Broadwell",
            Self::Skylake => "Skylake",
            Self::IceLake => "Ice Lake",
            Self::SapphireRapids => "Sapphire Rapids",
            Self::GraniteRapids => "Granite Rapids",
            Self::Zen1 => "Zen 1",
            Self::Zen2 => "Zen 2",
            Self::Zen3 => "Zen 3",
            Self::Zen4 => "Zen 4",
            Self::Zen5 => "Zen 5",
            Self::NeoverseN1 => "Neoverse N1",
            Self::NeoverseV1 => "Neoverse V1",
            Self::NeoverseN2 => "Neoverse N2",
            Self::NeoverseV2 => "Neoverse V2",
        }
    }

    pub(super) fn vendor(self) -> Vendor {
        match self {
            _ if self <= Self::GraniteRapids => Vendor::Intel,
            _ if self <= Self::Zen5 => Vendor::Amd,
            _ => Vendor::Arm,
        }
    }

    /// Returns the general counters that a group may use: all that every event can use, less one
    /// that the kernel's NMI watchdog may take.
    ///
    /// Sources: Intel SDM, volume 3, chapter 20 (four for each thread; from Ice Lake on eight, of
    /// which many events use only the first four); AMD PPR (six); the TRMs of Neoverse (six).
    pub(super) fn group_counters(self) -> usize {
        match self.vendor() {
            Vendor::Intel if self >= Self::IceLake => 4,
            Vendor::Intel => 3,
            Vendor::Amd | Vendor::Arm => 5,
        }
    }

    /// Returns the file of its events: lines of name, `config` and, if not 0, `config1`.
    const fn file(self) -> &'static str {
        match self {
            Self::IvyBridge => include_str!("lists/ivy_bridge.txt"),
            Self::Haswell => include_str!("lists/haswell.txt"),
            Self::Broadwell => include_str!("lists/broadwell.txt"),
            Self::Skylake => include_str!("lists/skylake.txt"),
            Self::IceLake => include_str!("lists/ice_lake.txt"),
            Self::SapphireRapids => include_str!("lists/sapphire_rapids.txt"),
            Self::GraniteRapids => include_str!("lists/granite_rapids.txt"),
            Self::Zen1 => include_str!("lists/zen1.txt"),
            Self::Zen2 => include_str!("lists/zen2.txt"),
            Self::Zen3 => include_str!("lists/zen3.txt"),
            Self::Zen4 => include_str!("lists/zen4.txt"),
            Self::Zen5 => include_str!("lists/zen5.txt"),
            Self::NeoverseN1 => include_str!("lists/neoverse_n1.txt"),
            Self::NeoverseV1 => include_str!("lists/neoverse_v1.txt"),
            Self::NeoverseN2 => include_str!("lists/neoverse_n2.txt"),
            Self::NeoverseV2 => include_str!("lists/neoverse_v2.txt"),
        }
    }

    /// Returns the file of the events of its memory controllers: lines of name, code and, if not 0,
    /// unit mask. Empty for AMD and ARM.
    const fn memory_file(self) -> &'static str {
        match self {
            Self::IvyBridge => include_str!("lists/ivy_bridge_memory.txt"),
            Self::Haswell => include_str!("lists/haswell_memory.txt"),
            Self::Broadwell => include_str!("lists/broadwell_memory.txt"),
            Self::Skylake => include_str!("lists/skylake_memory.txt"),
            Self::IceLake => include_str!("lists/ice_lake_memory.txt"),
            Self::SapphireRapids => include_str!("lists/sapphire_rapids_memory.txt"),
            Self::GraniteRapids => include_str!("lists/granite_rapids_memory.txt"),
            _ => "",
        }
    }

    /// Returns where its events come from: the first line of the file.
    pub fn source(self) -> &'static str {
        source_of(self.file())
    }

    /// Returns where the events of its memory controllers come from.
    pub fn memory_source(self) -> &'static str {
        source_of(self.memory_file())
    }

    /// Returns its events.
    pub fn events(self) -> impl Iterator<Item = ListedEvent> {
        let of = |(name, config, config1)| ListedEvent { name, config, config1 };
        entries(self.file()).map(of)
    }

    /// Returns the events of the memory controllers of its servers.
    pub fn memory_events(self) -> impl Iterator<Item = MemoryEvent> {
        let of = |(name, event, unit_mask)| MemoryEvent { name, event, unit_mask };
        entries(self.memory_file()).map(of)
    }

    /// Returns the event with that name, in any case, with `.`, `:`, `-` and `_` alike.
    pub fn event(self, name: &str) -> Option<ListedEvent> {
        let wanted = plain(name);
        self.events().find(|event| plain(event.name) == wanted)
    }

    /// Returns the event of the memory controllers with that name, as [`Self::event`].
    pub fn memory_event(self, name: &str) -> Option<MemoryEvent> {
        let wanted = plain(name);
        self.memory_events().find(|event| plain(event.name) == wanted)
    }
}

/// Event of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEvent {
    /// Name, as the vendor spells it.
    pub name: &'static str,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
}

/// Event of the memory controllers, which count the whole system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEvent {
    /// Name, as the vendor spells it.
    pub name: &'static str,
    /// Number of the event.
    pub event: u64,
    /// Its unit mask.
    pub unit_mask: u64,
}

impl MemoryEvent {
    /// Returns its code.
    pub fn code(&self) -> EventCode {
        let mut terms = format!("event={:#x}", self.event);
        if self.unit_mask > 0 {
            terms += &format!(",umask={:#x}", self.unit_mask);
        }
        EventCode::Devices(vec![DeviceEvent { unit: "uncore_imc".to_owned(), terms }])
    }
}

fn source_of(file: &'static str) -> &'static str {
    file.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
}

/// Returns name and numbers of each line of a file but comments.
fn entries(file: &'static str) -> impl Iterator<Item = (&'static str, u64, u64)> {
    let entry = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        Some((name, number()?, number().unwrap_or_default()))
    };
    file.lines().filter(|line| !line.starts_with('#')).filter_map(entry)
}

/// Returns `name` in lower case, with all separators as `_`.
pub(super) fn plain(name: &str) -> String {
    let plain = |c: char| if matches!(c, '.' | ':' | '-') { '_' } else { c.to_ascii_lowercase() };
    name.chars().map(plain).collect()
}
