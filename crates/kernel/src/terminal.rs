//! Size of a terminal.

use std::os::fd::AsFd;

/// Columns of the terminal at `descriptor`; `None` if it is not a terminal or its size is unknown.
pub fn columns(descriptor: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(descriptor).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_columns() {
        assert_eq!(columns(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
