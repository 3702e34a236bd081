//! Sizes in the files of `/proc/PID`.

/// Bytes of a line `NAME: N kB`.
pub(crate) fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_by_name() {
        assert_eq!(kib("VmHWM:\t   12 kB\nVmRSS:\t 8 kB\n", "VmRSS"), Some(8192));
    }
}
