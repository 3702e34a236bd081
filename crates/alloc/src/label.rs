//! Name of memory in `/proc/PID/maps`.

use std::ffi::CStr;
use std::fmt;

use crate::{AllocError, Result};

/// Name that the kernel accepts for anonymous memory (`[anon:NAME]`): up to 79 printable ASCII
/// characters without ``[]\$` `` (prctl(2), `PR_SET_VMA_ANON_NAME`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// Ends with at least one zero.
    text: [u8; Self::MAX_LEN + 1],
    len: usize,
}

impl Label {
    /// Largest number of characters.
    pub const MAX_LEN: usize = 79;

    /// Checks `name`.
    ///
    /// # Errors
    /// [`AllocError::Label`] for a name that the kernel refuses.
    pub fn new(name: &str) -> Result<Self> {
        let fits = |byte: u8| (b' '..=b'~').contains(&byte) && !b"[]\\$`".contains(&byte);
        if name.is_empty() || name.len() > Self::MAX_LEN || !name.bytes().all(fits) {
            return Err(AllocError::Label);
        }
        let mut text = [0; Self::MAX_LEN + 1];
        text[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { text, len: name.len() })
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }

    /// Returns the name in the form that the kernel reads.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or_default()
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_the_kernel_takes() {
        let longest = "x".repeat(Label::MAX_LEN);
        for name in ["index", "my program: edges (2)", &longest] {
            let label = Label::new(name).unwrap();
            assert_eq!((label.as_str(), label.as_c_str().to_str().unwrap()), (name, name));
        }
        for name in
            ["", "a[b]", "a\\b", "$x", "`", "a\nb", "a\0b", "ä", &"x".repeat(Label::MAX_LEN + 1)]
        {
            assert_eq!(Label::new(name).unwrap_err(), AllocError::Label, "{name:?}");
        }
    }
}
