//! Code of this program that is resident and no longer needed.
//!
//! # Safety
//! Only executable mappings of the own file are advised. They are private and never written, so the
//! kernel maps the same bytes again from the file at the next access.
#![allow(unsafe_code)]

use hugepilot_units::AddrRange;

use crate::Root;

/// Lets the kernel unmap this program's code until it runs again. A daemon does that once after its
/// start, whose code is half of its resident memory.
pub fn drop_own_code(root: &Root) {
    let own = std::fs::read_link(root.join("proc/self/exe")).unwrap_or_default();
    let maps = root.read_text("proc/self/maps").unwrap_or_default();
    for range in code_of(&maps, &own.to_string_lossy()) {
        // SAFETY: see the module: a private, unwritten mapping of a file, which a fault restores.
        unsafe {
            libc::madvise(
                range.start.get() as *mut libc::c_void,
                range.len().as_usize(),
                libc::MADV_DONTNEED,
            );
        }
    }
}

/// Returns the executable mappings of the file `own` that cannot be written.
fn code_of(maps: &str, own: &str) -> Vec<AddrRange> {
    let code = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, protection) = (words.next()?, words.next()?);
        let is_own = words.nth(3) == Some(own) && words.next().is_none();
        (is_own && protection == "r-xp").then(|| range.parse().ok())?
    };
    maps.lines().filter_map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_own_file_is_dropped() {
        let maps = "\
            561000000000-561000400000 r--p 00000000 fd:00 12 /usr/bin/hugepilot\n\
            561000400000-561001800000 r-xp 00400000 fd:00 12 /usr/bin/hugepilot\n\
            561001800000-561001a00000 r--p 01800000 fd:00 12 /usr/bin/hugepilot\n\
            561001a00000-561001a02000 rwxp 01a00000 fd:00 12 /usr/bin/hugepilot\n\
            7f0000000000-7f0000100000 r-xp 00000000 fd:00 13 /usr/lib/libc.so.6\n\
            7f0000200000-7f0000300000 r-xp 00000000 fd:00 14 /usr/bin/hugepilot (deleted)\n\
            7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0 [vdso]\n";
        let code: Vec<AddrRange> = code_of(maps, "/usr/bin/hugepilot");
        let expected = "561000400000-561001800000".parse();
        assert_eq!(code, [expected.unwrap_or_default()]);
        assert!(!code[0].is_empty());
    }

    #[test]
    fn this_program_runs_on_after_its_code_was_dropped() {
        drop_own_code(&Root::live());
        assert_eq!("7".parse::<u32>(), Ok(7));
    }
}
