//! Names of processes in flags and configurations.

/// Bytes of a name that the kernel stores (`TASK_COMM_LEN` without the terminating zero).
const KEPT: usize = 15;

/// Whether `who` can be the pid or the name of a process. Names with escaped control characters are
/// longer here than in the kernel.
pub(crate) fn can_match(who: &str) -> bool {
    who.len() <= KEPT || who.contains('\\')
}

/// Parses `who`, a pid or a name in a flag.
///
/// # Errors
/// No process can have this name.
pub fn parse_who(who: &str) -> Result<String, String> {
    if can_match(who) {
        return Ok(who.to_owned());
    }
    let kept: String = who
        .char_indices()
        .take_while(|(at, c)| at + c.len_utf8() <= KEPT)
        .map(|(_, c)| c)
        .collect();
    Err(format!(
        "no process can have this name: the kernel stores {KEPT} bytes of a name; use {kept:?}, \
         if that is its name (`ps -o comm`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_process_can_have_is_refused_with_a_suggestion() {
        for fine in ["postgres", "4711", "fifteen-bytes-x", "\\u{1b}[31m-escaped-here"] {
            assert_eq!(parse_who(fine).as_deref(), Ok(fine));
        }
        let refused = parse_who("a-very-long-process-name").unwrap_err();
        assert!(
            refused.contains("15 bytes") && refused.contains("\"a-very-long-pro\""),
            "{refused}"
        );
        // Cut between two characters, never within one.
        assert!(parse_who("fourteen-bytesäö").unwrap_err().contains("\"fourteen-bytes\""));
    }
}
