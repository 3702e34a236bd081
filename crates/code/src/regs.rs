//! Registers of a sample.

use iced_x86::Register;

/// User registers of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regs {
    /// Address of the next instruction.
    pub ip: u64,
    gpr: [u64; 16],
}

impl Regs {
    /// Creates them from the general registers in hardware encoding order (rax, rcx, rdx, rbx, rsp,
    /// rbp, rsi, rdi, r8 to r15).
    pub const fn new(ip: u64, gpr: [u64; 16]) -> Self {
        Self { ip, gpr }
    }

    /// Returns the value of a general register, of a part of one (zero-extended), or of the
    /// instruction pointer.
    pub fn get(&self, register: Register) -> Option<u64> {
        if register.full_register() == Register::RIP {
            return Some(self.ip);
        }
        let whole = self.gpr(Gpr::of(register)?);
        Some(match register.size() {
            8 => whole,
            4 => whole & 0xffff_ffff,
            2 => whole & 0xffff,
            _ if is_high_byte(register) => whole >> 8 & 0xff,
            _ => whole & 0xff,
        })
    }

    pub(super) fn gpr(&self, register: Gpr) -> u64 {
        self.gpr[usize::from(register.0)]
    }
}

/// A general register, by its hardware encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr(u8);

impl Gpr {
    pub(super) const RAX: Self = Self(0);
    pub(super) const RDX: Self = Self(2);
    pub(super) const RSP: Self = Self(4);
    pub(super) const RSI: Self = Self(6);
    pub(super) const RDI: Self = Self(7);

    /// Returns the general register that contains `register`.
    pub(super) fn of(register: Register) -> Option<Self> {
        let number = register.is_gpr().then(|| register.full_register().number())?;
        u8::try_from(number).ok().filter(|&number| number < 16).map(Self)
    }
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
    /// Returns this register as a set.
    pub(super) const fn bit(self) -> u16 {
        1 << self.0
    }
    /// Returns the members of a set of registers.
    pub(super) fn in_set(set: u16) -> impl Iterator<Item = Self> {
        (0..16).map(Self).filter(move |register| set & register.bit() != 0)
    }
}

/// Whether it is ah, bh, ch or dh.
pub(super) fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_registers_are_cut_out() {
        let regs = Regs::new(0, [0x1122_3344_5566_7788; 16]);
        assert_eq!(regs.get(Register::EBX), Some(0x5566_7788));
        assert_eq!(regs.get(Register::R9W), Some(0x7788));
        assert_eq!(regs.get(Register::CH), Some(0x77));
        assert_eq!(regs.get(Register::SIL), Some(0x88));
        assert_eq!(regs.get(Register::XMM0), None);
        assert_eq!(regs.get(Register::FS), None);
    }
}
