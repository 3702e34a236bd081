//! Model-specific registers (MSRs) of x86 processors, by the driver `msr`.
//!
//! A processor has a file; its offset is the number of a register, and each access has 8 bytes.
//! Access requires root, the module `msr`, and a kernel without lockdown.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::{KernelError, Result, Root};

/// Returns the file of a processor, below a [`Root`].
pub fn file(cpu: u32) -> String {
    format!("dev/cpu/{cpu}/msr")
}

/// Reads a register.
///
/// # Errors
/// [`KernelError::Read`]: ENOENT without the module, EIO if the register does not exist, EPERM and
/// EACCES without permission.
pub fn read(root: &Root, cpu: u32, register: u32) -> Result<u64> {
    let path = root.join(file(cpu));
    let mut value = [0; 8];
    let read = File::open(&path).and_then(|file| file.read_exact_at(&mut value, register.into()));
    read.map(|()| u64::from_le_bytes(value)).map_err(|source| KernelError::read(&path, source))
}

/// Writes a register. The caller reads it back, because processors may ignore bits.
///
/// # Errors
/// [`KernelError::Write`], as in [`read`]; EPERM also if the driver forbids writes
/// (`msr.allow_writes`).
pub fn write(root: &Root, cpu: u32, register: u32, value: u64) -> Result<()> {
    let path = root.join(file(cpu));
    let open = OpenOptions::new().write(true).open(&path);
    let written = open.and_then(|file| file.write_all_at(&value.to_le_bytes(), register.into()));
    written.map_err(|source| KernelError::write(&path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_register_is_at_its_number() {
        let (_directory, root) = fixture(&[("dev/cpu/3/msr", "")]);
        write(&root, 3, 0xc000_0108, 0x1122_3344_5566_7788).unwrap();
        assert_eq!(read(&root, 3, 0xc000_0108).unwrap(), 0x1122_3344_5566_7788);
        assert_eq!(read(&root, 3, 0x1a4).unwrap(), 0);
        assert!(read(&root, 4, 0x1a4).is_err());
    }
}
