//! Lines such as `VmRSS:     132 kB` of files below `/proc`.

use hugepilot_units::Bytes;

/// Returns what follows `label`, trimmed, in the first line that begins with it.
pub(crate) fn field<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(label)).map(str::trim)
}

/// Returns the KiB after `label`, from the first line that begins with it.
pub(crate) fn kib(text: &str, label: &str) -> Option<Bytes> {
    field(text, label)?.split_ascii_whitespace().next()?.parse().ok().map(Bytes::kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_blanks_before_it_and_its_unit_after() {
        let text = "RssAnon:\t     132 kB\nRssFile:\t    4 kB\n";
        assert_eq!((kib(text, "RssAnon:"), kib(text, "VmSwap:")), (Some(Bytes::kib(132)), None));
    }
}
