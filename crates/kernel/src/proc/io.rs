//! Parser of `/proc/PID/io`.

/// Read and write calls of a process since its start, with those of its threads and of children
/// that it has waited for.
///
/// The kernel counts `read`, `write` and their vectored and positioned forms, on files, pipes and
/// sockets. It does not count `recv`, `send`, `mmap` or io_uring (proc(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Calls, failed ones too: `syscr` and `syscw`.
    pub calls: u64,
    /// Bytes that they returned: `rchar` and `wchar`.
    pub bytes: u64,
}

/// Parses the file; `None` if a count is missing or not a number.
pub fn parse_io(text: &[u8]) -> Option<IoCounts> {
    let text = std::str::from_utf8(text).ok()?;
    let count = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| *field == name)?.1.trim().parse::<u64>().ok()
    };
    Some(IoCounts {
        calls: count("syscr")?.saturating_add(count("syscw")?),
        bytes: count("rchar")?.saturating_add(count("wchar")?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IO: &str = "rchar: 3980\nwchar: 20\nsyscr: 11\nsyscw: 2\nread_bytes: 7\n\
                      write_bytes: 0\ncancelled_write_bytes: 0\n";

    #[test]
    fn reads_and_writes_are_summed() {
        assert_eq!(parse_io(IO.as_bytes()), Some(IoCounts { calls: 13, bytes: 4000 }));
        let full = IO.replace("3980", &u64::MAX.to_string());
        assert_eq!(parse_io(full.as_bytes()).unwrap().bytes, u64::MAX);
    }

    #[test]
    fn a_missing_or_garbled_count_is_none() {
        for (from, to) in
            [("syscw: 2\n", ""), ("11", "-11"), ("20", "2O"), ("3980", "99999999999999999999")]
        {
            assert_eq!(parse_io(IO.replace(from, to).as_bytes()), None, "{from} → {to}");
        }
        assert_eq!(parse_io(b""), None);
        assert_eq!(parse_io(b"syscr: \xff"), None);
    }

    proptest! {
        #[test]
        fn cut_or_random_text_never_panics(
            cut in 0..IO.len(), junk in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            // A last number that is cut short is a smaller number, as in any text.
            let _ = parse_io(&IO.as_bytes()[..cut]);
            let _ = parse_io(&junk);
        }
    }
}
