//! By which names a process can be meant.

/// Bytes that the kernel keeps of a name (`TASK_COMM_LEN`, less the zero at the end).
const KEPT: usize = 15;

/// Whether some process can be called `who`, by number or name. The kernel keeps only so much of a name; what we escape,
/// for a terminal, is longer here.
pub(crate) fn can_match(who: &str) -> bool {
    who.len() <= KEPT || who.contains('\\')
}

/// `who`, as a flag names a process.
///
/// # Errors
/// Why no process can ever be called so.
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
        "no process is ever called so: the kernel keeps {KEPT} bytes of a name; did you mean {kept:?}? (`ps -o comm` shows it)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_process_can_have_is_refused_with_the_one_it_may_have() {
        for fine in ["postgres", "4711", "fifteen-bytes-x", "\\u{1b}[31m-escaped-by-us"] {
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
