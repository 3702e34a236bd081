//! Processor caches.

use hugepilot_units::Bytes;

use crate::Root;

/// More levels than any processor has.
const MAX_INDEX: u32 = 16;

/// Returns the size of the last-level data cache of processor 0; `None` if the kernel has none, as
/// in some virtual machines.
pub fn last_level(root: &Root) -> Option<Bytes> {
    let field = |index: u32, name: &str| {
        root.read_text(format!("sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
    };
    let cache = |index: u32| {
        let level: u32 = field(index, "level")?.parse().ok()?;
        let holds_data = field(index, "type")? != "Instruction";
        let kib: u64 = field(index, "size")?.strip_suffix('K')?.parse().ok()?;
        holds_data.then(|| (level, Bytes::kib(kib)))
    };
    (0..MAX_INDEX).filter_map(cache).max().map(|(_, size)| size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn the_last_level_is_the_highest_that_holds_data() {
        let cpu = "sys/devices/system/cpu/cpu0/cache";
        let caches =
            [("1", "Data", "48K"), ("4", "Instruction", "9999K"), ("3", "Unified", "512K")];
        let files: Vec<(String, &str)> = caches
            .iter()
            .enumerate()
            .flat_map(|(index, (level, kind, size))| {
                [("level", *level), ("type", *kind), ("size", *size)]
                    .map(|(name, text)| (format!("{cpu}/index{index}/{name}"), text))
            })
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_directory, root) = fixture(&files);
        assert_eq!(last_level(&root), Some(Bytes::kib(512)));
        assert_eq!(last_level(&fixture(&[]).1), None);
    }
}
