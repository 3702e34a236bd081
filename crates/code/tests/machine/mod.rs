//! A tiny x86-64: the integer instructions that compute addresses, each as in the processor manual.

pub(crate) mod assemble;
pub(crate) mod generate;

use hugepilot_code::Regs;

/// Address of programs.
pub(crate) const START: u64 = 0x7f00_0040_1000;

const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;

/// `base + index * scale + displacement`; the index is never rsp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    base: Option<usize>,
    index: Option<usize>,
    scale: u32,
    displacement: i32,
}

/// An instruction. `wide` is 64 bits, otherwise 32.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Mov {
        wide: bool,
        to: usize,
        from: usize,
    },
    MovNumber {
        wide: bool,
        to: usize,
        number: i32,
    },
    MovLong {
        to: usize,
        number: i64,
    },
    /// Changes 8 or 16 bits only.
    MovPart {
        bytes: u8,
        to: usize,
        from: usize,
    },
    Arith {
        what: Arith,
        wide: bool,
        to: usize,
        from: usize,
    },
    ArithNumber {
        what: Arith,
        wide: bool,
        to: usize,
        number: i32,
    },
    /// `andn` and the `imul` with two sources.
    Andn {
        wide: bool,
        to: usize,
        a: usize,
        b: usize,
    },
    ImulNumber {
        wide: bool,
        to: usize,
        from: usize,
        number: i32,
    },
    One {
        what: One,
        wide: bool,
        to: usize,
    },
    Shift {
        what: Shift,
        wide: bool,
        to: usize,
        by: u8,
    },
    ShiftByCl {
        what: Shift,
        wide: bool,
        to: usize,
    },
    ShiftThree {
        what: Shift,
        wide: bool,
        to: usize,
        from: usize,
        by: usize,
    },
    Rorx {
        wide: bool,
        to: usize,
        from: usize,
        by: u8,
    },
    /// From the low 8, 16 or 32 bits; `signed` or not.
    Extend {
        signed: bool,
        bytes: u8,
        wide: bool,
        to: usize,
        from: usize,
    },
    /// `movzx r32, ah` and so on; both registers among the first four.
    FromHigh {
        to: usize,
        from: usize,
    },
    Lea {
        wide: bool,
        to: usize,
        place: Memory,
    },
    Swap {
        a: usize,
        b: usize,
    },
    Cdqe,
    Cwde,
    Cdq,
    Cqo,
    Push {
        from: usize,
    },
    Pop {
        to: usize,
    },
    Load {
        wide: bool,
        to: usize,
        place: Memory,
    },
    Store {
        from: usize,
        place: Memory,
    },
    /// Sets the flags from a sum without storing it.
    Compare {
        a: usize,
        b: usize,
    },
    ConditionalMove {
        to: usize,
        from: usize,
    },
    /// Branches or not, at random.
    Branch {
        to: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Arith {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Imul,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum One {
    Inc,
    Dec,
    Neg,
    Not,
    Swap,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Shift {
    Left,
    Right,
    Signed,
    RotateLeft,
    RotateRight,
}

impl Op {
    /// Returns an instruction that uses the result of this load.
    pub(crate) fn consumer(&self) -> Self {
        match *self {
            Self::Load { to, .. } => Self::Compare { a: to, b: to },
            _ => Self::Cqo,
        }
    }

    /// Returns this load, but into its own index, if it has one and `index` is set, or its base.
    pub(crate) fn into_own_address(self, index: bool) -> Self {
        match self {
            Self::Load { wide, place, to } => {
                let own =
                    if index { place.index.or(place.base) } else { place.base.or(place.index) };
                Self::Load { wide, to: own.unwrap_or(to), place }
            }
            other => other,
        }
    }
}

/// Registers, and memory that has another value at every read.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    regs: [u64; 16],
    random: u64,
}

impl Machine {
    pub(crate) fn new(regs: [u64; 16], seed: u64) -> Self {
        Self { regs, random: seed }
    }

    /// Returns the registers that perf would sample.
    pub(crate) fn sample(&self, ip: u64) -> Regs {
        Regs::new(ip, self.regs)
    }

    /// Returns the index of the instruction after `op`, which has index `pc`.
    pub(crate) fn next_pc(&mut self, op: &Op, pc: usize) -> usize {
        match op {
            Op::Branch { to } if self.toss() => *to,
            _ => pc + 1,
        }
    }

    /// Runs one instruction; returns the address that it accessed.
    pub(crate) fn run(&mut self, op: &Op) -> Option<u64> {
        match *op {
            Op::Load { wide, to, place } => {
                let (address, value) = (self.address(place), self.chance());
                self.set(wide, to, value);
                return Some(address);
            }
            Op::Store { place, .. } => return Some(self.address(place)),
            Op::Push { .. } => {
                self.regs[RSP] = self.regs[RSP].wrapping_sub(8);
                return Some(self.regs[RSP]);
            }
            Op::Pop { to } => {
                let address = self.regs[RSP];
                self.regs[RSP] = address.wrapping_add(8);
                self.regs[to] = self.chance();
                return Some(address);
            }
            _ => self.compute(op),
        }
        None
    }

    fn compute(&mut self, op: &Op) {
        let regs = self.regs;
        match *op {
            Op::Mov { wide, to, from } => self.set(wide, to, regs[from]),
            Op::MovNumber { wide, to, number } => self.set(wide, to, i64::from(number) as u64),
            Op::MovLong { to, number } => self.regs[to] = number as u64,
            Op::MovPart { bytes, to, from } => {
                let mask = if bytes == 1 { 0xff } else { 0xffff };
                self.regs[to] = regs[to] & !mask | regs[from] & mask;
            }
            Op::Arith { what, wide, to, from } => self.set(wide, to, what.of(regs[to], regs[from])),
            Op::ArithNumber { what, wide, to, number } => {
                self.set(wide, to, what.of(regs[to], i64::from(number) as u64));
            }
            Op::Andn { wide, to, a, b } => self.set(wide, to, !regs[a] & regs[b]),
            Op::ImulNumber { wide, to, from, number } => {
                self.set(wide, to, Arith::Imul.of(regs[from], i64::from(number) as u64));
            }
            Op::One { what, wide, to } => self.set(wide, to, what.of(wide, regs[to])),
            Op::Shift { what, wide, to, by } => {
                self.set(wide, to, what.of(wide, regs[to], u64::from(by)))
            }
            Op::ShiftByCl { what, wide, to } => {
                self.set(wide, to, what.of(wide, regs[to], regs[RCX] & 0xff))
            }
            Op::ShiftThree { what, wide, to, from, by } => {
                self.set(wide, to, what.of(wide, regs[from], regs[by]));
            }
            Op::Rorx { wide, to, from, by } => {
                self.set(wide, to, Shift::RotateRight.of(wide, regs[from], u64::from(by)));
            }
            Op::Extend { signed, bytes, wide, to, from } => {
                self.set(wide, to, extended(regs[from], u32::from(bytes) * 8, signed));
            }
            Op::FromHigh { to, from } => self.regs[to] = regs[from].to_le_bytes()[1].into(),
            Op::Lea { wide, to, place } => self.set(wide, to, self.address(place)),
            Op::Swap { a, b } => self.regs.swap(a, b),
            Op::Cdqe => self.regs[RAX] = extended(regs[RAX], 32, true),
            Op::Cwde => self.set(false, RAX, extended(regs[RAX], 16, true)),
            Op::Cdq => self.set(false, RDX, if regs[RAX] >> 31 & 1 == 1 { u64::MAX } else { 0 }),
            Op::Cqo => self.regs[RDX] = if regs[RAX] >> 63 == 1 { u64::MAX } else { 0 },
            Op::ConditionalMove { to, from } if self.toss() => self.regs[to] = regs[from],
            _ => {}
        }
    }

    fn address(&self, place: Memory) -> u64 {
        let base = place.base.map_or(0, |base| self.regs[base]);
        let index =
            place.index.map_or(0, |index| self.regs[index].wrapping_mul(u64::from(place.scale)));
        base.wrapping_add(index).wrapping_add(i64::from(place.displacement) as u64)
    }

    /// A write of 32 bits clears the upper half.
    fn set(&mut self, wide: bool, to: usize, value: u64) {
        self.regs[to] = if wide { value } else { value % (1 << 32) };
    }

    fn toss(&mut self) -> bool {
        self.chance().count_ones().is_multiple_of(2)
    }

    fn chance(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random.rotate_right(29) ^ self.random >> 7
    }
}

/// Returns the low `bits` of a value, extended with the sign bit or with zeros.
fn extended(value: u64, bits: u32, signed: bool) -> u64 {
    let low = value % (1 << bits);
    if signed && low >> (bits - 1) == 1 { low.wrapping_sub(1 << bits) } else { low }
}

impl Arith {
    /// The low half of each result does not depend on the upper halves of the inputs, so 64 bits
    /// serve both widths.
    fn of(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Add => (u128::from(a) + u128::from(b)) as u64,
            Self::Sub => a.wrapping_add((!b).wrapping_add(1)),
            Self::And => !(!a | !b),
            Self::Or => !(!a & !b),
            Self::Xor => (a & !b) | (!a & b),
            Self::Imul => (i128::from(a as i64) * i128::from(b as i64)) as u64,
        }
    }
}

impl One {
    fn of(self, wide: bool, a: u64) -> u64 {
        match self {
            Self::Inc => a.wrapping_add(1),
            Self::Dec => a.wrapping_sub(1),
            Self::Neg => (!a).wrapping_add(1),
            Self::Not => u64::MAX - a,
            Self::Swap => {
                let bytes = a.to_le_bytes();
                let kept = if wide { &bytes[..] } else { &bytes[..4] };
                kept.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            }
        }
    }
}

impl Shift {
    fn of(self, wide: bool, a: u64, by: u64) -> u64 {
        let bits = if wide { 64_u32 } else { 32 };
        let by = (by % u64::from(bits)) as u32;
        let a = u128::from(if wide { a } else { a % (1 << 32) });
        let doubled = a << bits | a;
        let signs = if a >> (bits - 1) == 1 { !0_u128 << bits } else { 0 };
        (match self {
            Self::Left => a << by,
            Self::Right => a >> by,
            Self::Signed => (a | signs) >> by,
            Self::RotateLeft => doubled >> (bits - by),
            Self::RotateRight => doubled >> by,
        }) as u64
    }
}
