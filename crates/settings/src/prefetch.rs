//! Hardware prefetchers, by the model-specific registers (MSRs) that control them.
//!
//! A register has a bit per prefetcher, and 1 disables it. The kernel's `msr` driver has a file per
//! processor, whose offset is the number of the register. Sources: Intel, "Software Developer's
//! Manual", volume 4 (`MSR_PREFETCH_CONTROL`, `MSR_MISC_FEATURE_CONTROL`); AMD, "Architecture
//! Programmer's Manual", volume 2 (`PrefetchControl`).

use hugepilot_kernel::{KernelError, Root, cpu, msr};
use hugepilot_record::{Cpu, Errno, PrefetchUnsupported, Unsupported};
use hugepilot_reports::knobs::{CpuPrefetch, PrefetchReport, Prefetcher, SCHEMA};

use crate::{Outcome, SettingsError, SettingsGuard};

type Result<T> = std::result::Result<T, SettingsError>;

/// EIO: the register does not exist.
const EIO: Errno = Errno(5);
const LOCKDOWN: &str = "sys/kernel/security/lockdown";

/// A register, and its bits.
#[derive(Debug, PartialEq, Eq)]
pub struct Register {
    /// Number of the register.
    number: u32,
    /// Prefetchers: bit, name, description.
    prefetchers: &'static [(u32, &'static str, &'static str)],
}

/// Intel cores from Nehalem on; cores of the Atom line differ.
static INTEL: Register = Register {
    number: 0x1a4,
    prefetchers: &[
        (0, "l2-stream", "lines of code or data into the second-level cache"),
        (1, "l2-adjacent", "the other line of an aligned pair of lines"),
        (2, "l1-next", "the next line into the first-level data cache"),
        (3, "l1-ip", "lines at the stride of an instruction, into the first-level data cache"),
    ],
};

/// Models of [`INTEL`]'s family 6: cores of one kind, with these four bits.
const INTEL_MODELS: &[u32] = &[
    26, 30, 31, 37, 44, 46, 47, // Nehalem, Westmere
    42, 45, 58, 62, // Sandy Bridge, Ivy Bridge
    60, 63, 69, 70, 61, 71, 79, 86, // Haswell, Broadwell
    78, 85, 94, 142, 158, 165, 166, // Skylake, Cascade Lake, Comet Lake
    106, 108, 125, 126, 140, 141, 167, // Ice Lake, Tiger Lake, Rocket Lake
    143, 207, 173, 174, // Sapphire, Emerald and Granite Rapids
];

/// AMD Zen 4 and later.
static AMD: Register = Register {
    number: 0xc000_0108,
    prefetchers: &[
        (0, "l1-stream", "the next lines after accesses in order, into the first-level cache"),
        (1, "l1-stride", "lines at the stride of an instruction, into the first-level cache"),
        (2, "l1-region", "lines that earlier accesses to a region touched"),
        (3, "l2-stream", "the next lines after accesses in order, into the second-level cache"),
        (5, "up-down", "the next or the previous line of each access"),
    ],
};

impl Register {
    /// Returns the register of a processor.
    ///
    /// # Errors
    /// [`PrefetchUnsupported::UnknownProcessor`].
    fn of(cpu: &Cpu) -> Result<&'static Self> {
        let is_zen4 = match cpu.family {
            25 => matches!(cpu.model, 0x10..=0x1f | 0x60..=0xaf),
            26 => true,
            _ => false,
        };
        match cpu.vendor.as_str() {
            "GenuineIntel" if cpu.family == 6 && INTEL_MODELS.contains(&cpu.model) => Ok(&INTEL),
            "AuthenticAMD" if is_zen4 => Ok(&AMD),
            _ => Err(refusal(PrefetchUnsupported::UnknownProcessor {
                vendor: cpu.vendor.clone(),
                family: cpu.family,
                model: cpu.model,
            })),
        }
    }

    fn bits(&self) -> u64 {
        self.prefetchers.iter().fold(0, |bits, (bit, ..)| bits | 1 << bit)
    }

    fn enabled(&self, value: u64) -> Vec<String> {
        let on = self.prefetchers.iter().filter(|(bit, ..)| value >> bit & 1 == 0);
        on.map(|(_, name, _)| (*name).to_owned()).collect()
    }
}

/// Requested state of the prefetchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchSetting {
    /// All enabled.
    On,
    /// All disabled.
    Off,
    /// These bits of the register; 1 disables.
    Bits(u64),
}

impl std::str::FromStr for PrefetchSetting {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => {
                let bits = match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).ok(),
                    None => text.parse().ok(),
                };
                bits.map(Self::Bits).ok_or_else(|| "use on, off, or bits such as 0x5".to_owned())
            }
        }
    }
}

/// Reads the prefetchers of all processors.
///
/// # Errors
/// [`SettingsError::Refused`] with the cause if they cannot be read here.
pub fn show(root: &Root) -> Result<PrefetchReport> {
    let cpu = cpu::read(root)?;
    let register = Register::of(&cpu)?;
    let state = |id: u32| {
        let value =
            msr::read(root, id, register.number).map_err(|error| explain(root, &cpu, error))?;
        let enabled = register.enabled(value);
        Ok(CpuPrefetch { cpu: id, value: format!("{value:#x}"), enabled })
    };
    let prefetcher = |&(bit, name, description): &(u32, &str, &str)| Prefetcher {
        name: name.to_owned(),
        bit,
        description: description.to_owned(),
    };
    Ok(PrefetchReport {
        schema: SCHEMA.to_owned(),
        register: format!("{:#x}", register.number),
        prefetchers: register.prefetchers.iter().map(prefetcher).collect(),
        cpus: cpu::online(root)?.into_iter().map(state).collect::<Result<_>>()?,
        model_name: cpu.model_name,
    })
}

/// Changes the prefetchers of all processors until the guard is dropped. `recovered` receives the
/// outcomes of settings that a killed command left changed.
///
/// # Errors
/// Those of [`show`]; [`SettingsError::PrefetchBits`]; [`SettingsError::NotTaken`] if a register
/// has another value after the write; [`SettingsError::Busy`].
pub fn set(
    root: &Root,
    setting: PrefetchSetting,
    recovered: &mut dyn FnMut(crate::Recovery),
) -> Result<SettingsGuard> {
    let cpu = cpu::read(root)?;
    let register = Register::of(&cpu)?;
    let bits = match setting {
        PrefetchSetting::On => 0,
        PrefetchSetting::Off => register.bits(),
        PrefetchSetting::Bits(bits) => bits,
    };
    if bits & !register.bits() != 0 {
        return Err(SettingsError::PrefetchBits { bits, known: register.bits() });
    }
    // Before the lock, so that a machine without the registers needs no directory for it.
    show(root)?;
    let (mut guard, recovery) = SettingsGuard::take(root)?;
    recovery.into_iter().for_each(recovered);
    let mut wanted = Vec::new();
    for id in cpu::online(root)? {
        let now =
            msr::read(root, id, register.number).map_err(|error| explain(root, &cpu, error))?;
        wanted.push((name(id, register.number), text(now & !register.bits() | bits)));
    }
    let wanted: Vec<(&str, String)> =
        wanted.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    guard.change(&wanted).map_err(|error| match error {
        SettingsError::Kernel(error) => explain(root, &cpu, error),
        error => error,
    })?;
    Ok(guard)
}

/// Restores the prefetchers, and returns the outcomes.
pub fn restore(guard: SettingsGuard) -> Vec<Outcome> {
    guard.put_back()
}

/// Returns the name of a register among the settings of the guard.
fn name(cpu: u32, register: u32) -> String {
    format!("cpu{cpu}/msr-{register:#x}")
}

/// Returns processor and register of a setting; `None` for any register but those of prefetchers.
pub(crate) fn parse(name: &str) -> Option<(u32, u32)> {
    let (cpu, register) = name.strip_prefix("cpu")?.split_once("/msr-0x")?;
    let (cpu, register) = (cpu.parse().ok()?, u32::from_str_radix(register, 16).ok()?);
    let is_known = [&INTEL, &AMD].iter().any(|known| known.number == register);
    (is_known && self::name(cpu, register) == name).then_some((cpu, register))
}

pub(crate) fn text(value: u64) -> String {
    format!("{value:#x}")
}

pub(crate) fn write(root: &Root, cpu: u32, register: u32, value: &str) -> Result<()> {
    let digits = value.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let what = || format!("{value:?} is not the value of a register");
    // Only a damaged journal has such a value.
    let value =
        digits.ok_or_else(|| SettingsError::Journal { path: msr::file(cpu), what: what() })?;
    Ok(msr::write(root, cpu, register, value)?)
}

/// Finds the cause of a failed access.
fn explain(root: &Root, cpu: &Cpu, error: KernelError) -> SettingsError {
    let hypervisor = cpu.hypervisor;
    let text = error.to_string();
    refusal(match error.errno() {
        Some(Errno::ENOENT | Errno::ENODEV) | Some(Errno(6)) => {
            PrefetchUnsupported::NoDevice { path: "/dev/cpu/0/msr".to_owned(), hypervisor }
        }
        Some(EIO) => PrefetchUnsupported::RegisterRejected { hypervisor, error: text },
        Some(Errno::EPERM | Errno::EACCES) => match lockdown(root) {
            Some(mode) => PrefetchUnsupported::Lockdown { mode, error: text },
            None => PrefetchUnsupported::RegisterForbidden { error: text },
        },
        _ => return error.into(),
    })
}

/// Returns the mode of kernel lockdown; `None` if it is off.
fn lockdown(root: &Root) -> Option<String> {
    let text = root.read_text(LOCKDOWN).ok()?;
    let mode = text.split('[').nth(1)?.split(']').next()?;
    (mode != "none").then(|| mode.to_owned())
}

fn refusal(cause: PrefetchUnsupported) -> SettingsError {
    SettingsError::Refused(Unsupported::from(cause))
}

#[cfg(test)]
mod tests;
