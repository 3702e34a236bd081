//! Machine of a recording.

use hugepilot_kernel::{Root, cpu, memory, system, thp};
use hugepilot_recording::RecordedMachine;
use hugepilot_units::PageSizes;

use crate::{stored, tlb_size};

/// Reads the facts about the machine. Unknown ones are empty or 0.
pub fn machine(root: &Root, sizes: PageSizes) -> RecordedMachine {
    let cpus = std::thread::available_parallelism().map_or(0, |cpus| cpus.get());
    let settings = thp::ThpSettings::read(root);
    RecordedMachine {
        cpu: cpu::read(root).unwrap_or_default(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_bytes: memory::mem_info(root).map_or(0, |memory| memory.total.get()),
        kernel: system::kernel_release(root).unwrap_or_default(),
        thp: settings.chosen("enabled").unwrap_or_default().to_owned(),
        base_page_bytes: sizes.base.get(),
        huge_page_bytes: sizes.huge.get(),
        tlb: tlb_size(root, stored::directory().as_deref()),
    }
}
