//! A tiny x86-64: the integer instructions that addresses are made with, each as the processor manual has it.

use hugepilot_profiler::code::Regs;
use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};
use proptest::prelude::*;

/// Where programs begin.
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

/// One instruction. `wide` is 64 bits, otherwise 32.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Mov { wide: bool, to: usize, from: usize },
    MovNumber { wide: bool, to: usize, number: i32 },
    MovLong { to: usize, number: i64 },
    /// Changes 8 or 16 bits only.
    MovPart { bytes: u8, to: usize, from: usize },
    Arith { what: Arith, wide: bool, to: usize, from: usize },
    ArithNumber { what: Arith, wide: bool, to: usize, number: i32 },
    /// `andn` and the `imul` with two sources.
    Andn { wide: bool, to: usize, a: usize, b: usize },
    ImulNumber { wide: bool, to: usize, from: usize, number: i32 },
    One { what: One, wide: bool, to: usize },
    Shift { what: Shift, wide: bool, to: usize, by: u8 },
    ShiftByCl { what: Shift, wide: bool, to: usize },
    ShiftThree { what: Shift, wide: bool, to: usize, from: usize, by: usize },
    Rorx { wide: bool, to: usize, from: usize, by: u8 },
    /// From the low 8, 16 or 32 bits; `signed` or not.
    Extend { signed: bool, bytes: u8, wide: bool, to: usize, from: usize },
    /// `movzx r32, ah` and so on; both registers among the first four.
    FromHigh { to: usize, from: usize },
    Lea { wide: bool, to: usize, place: Memory },
    Swap { a: usize, b: usize },
    Cdqe,
    Cwde,
    Cdq,
    Cqo,
    Push { from: usize },
    Pop { to: usize },
    Load { wide: bool, to: usize, place: Memory },
    Store { from: usize, place: Memory },
    /// Sets the flags from a sum that is not kept.
    Compare { a: usize, b: usize },
    ConditionalMove { to: usize, from: usize },
    /// Goes there or not, as it happens.
    Branch { to: usize },
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

/// Registers, and memory that holds something else at every look.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    regs: [u64; 16],
    random: u64,
}

impl Machine {
    pub(crate) fn new(regs: [u64; 16], seed: u64) -> Self {
        Self { regs, random: seed }
    }

    /// What perf would sample.
    pub(crate) fn sample(&self, ip: u64) -> Regs {
        Regs::new(ip, self.regs)
    }

    /// Which instruction runs after `op`, which is number `pc`.
    pub(crate) fn next_pc(&mut self, op: &Op, pc: usize) -> usize {
        match op {
            Op::Branch { to } if self.chance() % 2 == 0 => *to,
            _ => pc + 1,
        }
    }

    /// Runs one instruction; returns the address it accessed.
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
            Op::Shift { what, wide, to, by } => self.set(wide, to, what.of(wide, regs[to], u64::from(by))),
            Op::ShiftByCl { what, wide, to } => self.set(wide, to, what.of(wide, regs[to], regs[RCX] & 0xff)),
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
            Op::ConditionalMove { to, from } if self.chance() % 2 == 0 => self.regs[to] = regs[from],
            _ => {}
        }
    }

    fn address(&self, place: Memory) -> u64 {
        let base = place.base.map_or(0, |base| self.regs[base]);
        let index = place.index.map_or(0, |index| self.regs[index].wrapping_mul(u64::from(place.scale)));
        base.wrapping_add(index).wrapping_add(i64::from(place.displacement) as u64)
    }

    /// A write of 32 bits clears the upper half.
    fn set(&mut self, wide: bool, to: usize, value: u64) {
        self.regs[to] = if wide { value } else { value % (1 << 32) };
    }

    fn chance(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random.rotate_right(29) ^ self.random >> 7
    }
}

/// The low `bits` of a value, widened by copying the sign bit or by zeros.
fn extended(value: u64, bits: u32, signed: bool) -> u64 {
    let low = value % (1 << bits);
    if signed && low >> (bits - 1) == 1 { low.wrapping_sub(1 << bits) } else { low }
}

impl Arith {
    /// The low half of each result does not depend on the upper halves of the inputs, so 64 bits serve for both.
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

/// Machine code, and where each instruction of it is.
pub(crate) struct Program {
    pub(crate) code: Vec<u8>,
    ips: Vec<u64>,
}

impl Program {
    /// Ends in a `ret`.
    pub(crate) fn assemble(ops: &[Op]) -> Self {
        // Branches are as long to anywhere, so a first pass with any targets gives all places.
        let mut ips = vec![START; ops.len() + 1];
        let mut code = Vec::new();
        for _ in 0..2 {
            let mut encoder = Encoder::new(64);
            let mut ip = START;
            for at in 0..ops.len() {
                ips[at] = ip;
                let instruction = ops[at].instruction(&ips);
                ip += encoder.encode(&instruction, ip).unwrap_or_else(|why| panic!("{:?}: {why}", ops[at])) as u64;
            }
            ips[ops.len()] = ip;
            encoder.encode(&Instruction::with(Code::Retnq), ip).unwrap();
            code = encoder.take_buffer();
        }
        Self { code, ips }
    }

    /// Where instruction number `at` is.
    pub(crate) fn ip(&self, at: usize) -> u64 {
        self.ips[at]
    }
}

fn r64(number: usize) -> Register {
    Register::RAX + number as u32
}

fn r32(number: usize) -> Register {
    Register::EAX + number as u32
}

fn sized(wide: bool, number: usize) -> Register {
    if wide { r64(number) } else { r32(number) }
}

/// The low part of a register.
fn part(bytes: u8, number: usize) -> Register {
    const LOW: [Register; 8] = {
        use Register::{AL, BL, BPL, CL, DIL, DL, SIL, SPL};
        [AL, CL, DL, BL, SPL, BPL, SIL, DIL]
    };
    match bytes {
        1 if number < 8 => LOW[number],
        1 => Register::R8L + (number - 8) as u32,
        2 => Register::AX + number as u32,
        _ => r32(number),
    }
}

impl Memory {
    fn operand(self) -> MemoryOperand {
        let register = |number: Option<usize>| number.map_or(Register::None, r64);
        let (base, index) = (register(self.base), register(self.index));
        let displacement = i64::from(self.displacement);
        let bytes = if i8::try_from(displacement).is_ok() && self.base.is_some() { 1 } else { 8 };
        MemoryOperand::new(base, index, self.scale, displacement, bytes, false, Register::None)
    }
}

impl Op {
    /// An instruction that waits for what this load loads.
    pub(crate) fn consumer(&self) -> Self {
        match *self {
            Self::Load { to, .. } => Self::Compare { a: to, b: to },
            _ => Self::Cqo,
        }
    }

    /// This load, but into its own index, where it has one and `index` says so, or base.
    pub(crate) fn into_own_address(self, index: bool) -> Self {
        match self {
            Self::Load { wide, place, to } => {
                let own = if index { place.index.or(place.base) } else { place.base.or(place.index) };
                Self::Load { wide, to: own.unwrap_or(to), place }
            }
            other => other,
        }
    }

    #[allow(clippy::too_many_lines)]
    fn instruction(&self, ips: &[u64]) -> Instruction {
        let code = self.code();
        let made = match *self {
            Self::Mov { wide, to, from } | Self::Arith { wide, to, from, .. } => {
                Instruction::with2(code, sized(wide, to), sized(wide, from))
            }
            Self::MovNumber { wide, to, number } | Self::ArithNumber { wide, to, number, .. } => {
                Instruction::with2(code, sized(wide, to), number)
            }
            Self::MovLong { to, number } => Instruction::with2(code, r64(to), number),
            Self::MovPart { bytes, to, from } => Instruction::with2(code, part(bytes, to), part(bytes, from)),
            Self::Andn { wide, to, a, b } => {
                Instruction::with3(code, sized(wide, to), sized(wide, a), sized(wide, b))
            }
            Self::ImulNumber { wide, to, from, number } => {
                Instruction::with3(code, sized(wide, to), sized(wide, from), number)
            }
            Self::One { wide, to, .. } => Instruction::with1(code, sized(wide, to)),
            Self::Shift { wide, to, by, .. } => Instruction::with2(code, sized(wide, to), u32::from(by)),
            Self::ShiftByCl { wide, to, .. } => Instruction::with2(code, sized(wide, to), Register::CL),
            Self::ShiftThree { wide, to, from, by, .. } => {
                Instruction::with3(code, sized(wide, to), sized(wide, from), sized(wide, by))
            }
            Self::Rorx { wide, to, from, by } => {
                Instruction::with3(code, sized(wide, to), sized(wide, from), u32::from(by))
            }
            Self::Extend { bytes, wide, to, from, .. } => {
                Instruction::with2(code, sized(wide, to), part(bytes, from))
            }
            Self::FromHigh { to, from } => Instruction::with2(code, r32(to), Register::AH + from as u32),
            Self::Lea { wide, to, place } | Self::Load { wide, to, place } => {
                Instruction::with2(code, sized(wide, to), place.operand())
            }
            Self::Store { from, place } => Instruction::with2(code, place.operand(), r64(from)),
            Self::Swap { a, b } | Self::Compare { a, b } => Instruction::with2(code, r64(a), r64(b)),
            Self::ConditionalMove { to, from } => Instruction::with2(code, r64(to), r64(from)),
            Self::Push { from: only } | Self::Pop { to: only } => Instruction::with1(code, r64(only)),
            Self::Cdqe | Self::Cwde | Self::Cdq | Self::Cqo => Ok(Instruction::with(code)),
            Self::Branch { to } => Instruction::with_branch(code, ips[to]),
        };
        made.unwrap_or_else(|why| panic!("{self:?}: {why}"))
    }

    fn code(&self) -> Code {
        let by_width = |wide: bool, of: [Code; 2]| of[usize::from(wide)];
        match *self {
            Self::Mov { wide, .. } => by_width(wide, [Code::Mov_rm32_r32, Code::Mov_r64_rm64]),
            Self::MovNumber { wide, .. } => by_width(wide, [Code::Mov_r32_imm32, Code::Mov_rm64_imm32]),
            Self::MovLong { .. } => Code::Mov_r64_imm64,
            Self::MovPart { bytes, .. } => by_width(bytes == 2, [Code::Mov_r8_rm8, Code::Mov_r16_rm16]),
            Self::Arith { what, wide, .. } => by_width(wide, what.codes()),
            Self::ArithNumber { what, wide, number, .. } => by_width(wide, what.number_codes(number)),
            Self::Andn { wide, .. } => by_width(wide, [Code::VEX_Andn_r32_r32_rm32, Code::VEX_Andn_r64_r64_rm64]),
            Self::ImulNumber { wide, .. } => {
                by_width(wide, [Code::Imul_r32_rm32_imm32, Code::Imul_r64_rm64_imm32])
            }
            Self::One { what, wide, .. } => by_width(wide, what.codes()),
            Self::Shift { what, wide, .. } => by_width(wide, what.codes()),
            Self::ShiftByCl { what, wide, .. } => by_width(wide, what.cl_codes()),
            Self::ShiftThree { what, wide, .. } => by_width(wide, what.three_codes()),
            Self::Rorx { wide, .. } => by_width(wide, [Code::VEX_Rorx_r32_rm32_imm8, Code::VEX_Rorx_r64_rm64_imm8]),
            Self::Extend { signed, bytes, wide, .. } => extend_code(signed, bytes, wide),
            Self::FromHigh { .. } => Code::Movzx_r32_rm8,
            Self::Lea { wide, .. } => by_width(wide, [Code::Lea_r32_m, Code::Lea_r64_m]),
            Self::Load { wide, .. } => by_width(wide, [Code::Mov_r32_rm32, Code::Mov_r64_rm64]),
            Self::Store { .. } => Code::Mov_rm64_r64,
            Self::Swap { .. } => Code::Xchg_rm64_r64,
            Self::Cdqe => Code::Cdqe,
            Self::Cwde => Code::Cwde,
            Self::Cdq => Code::Cdq,
            Self::Cqo => Code::Cqo,
            Self::Push { .. } => Code::Push_r64,
            Self::Pop { .. } => Code::Pop_r64,
            Self::Compare { .. } => Code::Cmp_r64_rm64,
            Self::ConditionalMove { .. } => Code::Cmovne_r64_rm64,
            Self::Branch { .. } => Code::Jne_rel32_64,
        }
    }
}

fn extend_code(signed: bool, bytes: u8, wide: bool) -> Code {
    match (signed, bytes, wide) {
        (true, 1, false) => Code::Movsx_r32_rm8,
        (true, 1, true) => Code::Movsx_r64_rm8,
        (true, 2, false) => Code::Movsx_r32_rm16,
        (true, 2, true) => Code::Movsx_r64_rm16,
        (true, _, _) => Code::Movsxd_r64_rm32,
        (false, 1, false) => Code::Movzx_r32_rm8,
        (false, 1, true) => Code::Movzx_r64_rm8,
        (false, _, false) => Code::Movzx_r32_rm16,
        (false, _, true) => Code::Movzx_r64_rm16,
    }
}

impl Arith {
    fn codes(self) -> [Code; 2] {
        match self {
            Self::Add => [Code::Add_r32_rm32, Code::Add_rm64_r64],
            Self::Sub => [Code::Sub_r32_rm32, Code::Sub_rm64_r64],
            Self::And => [Code::And_r32_rm32, Code::And_rm64_r64],
            Self::Or => [Code::Or_r32_rm32, Code::Or_rm64_r64],
            Self::Xor => [Code::Xor_r32_rm32, Code::Xor_rm64_r64],
            Self::Imul => [Code::Imul_r32_rm32, Code::Imul_r64_rm64],
        }
    }
    /// In the short form where the number fits.
    fn number_codes(self, number: i32) -> [Code; 2] {
        let short = i8::try_from(number).is_ok();
        match self {
            Self::Add if short => [Code::Add_rm32_imm8, Code::Add_rm64_imm8],
            Self::Sub if short => [Code::Sub_rm32_imm8, Code::Sub_rm64_imm8],
            Self::And if short => [Code::And_rm32_imm8, Code::And_rm64_imm8],
            Self::Add => [Code::Add_rm32_imm32, Code::Add_rm64_imm32],
            Self::Sub => [Code::Sub_rm32_imm32, Code::Sub_rm64_imm32],
            Self::And => [Code::And_rm32_imm32, Code::And_rm64_imm32],
            Self::Or => [Code::Or_rm32_imm32, Code::Or_rm64_imm32],
            Self::Xor | Self::Imul => [Code::Xor_rm32_imm32, Code::Xor_rm64_imm32],
        }
    }
}

impl One {
    fn codes(self) -> [Code; 2] {
        match self {
            Self::Inc => [Code::Inc_rm32, Code::Inc_rm64],
            Self::Dec => [Code::Dec_rm32, Code::Dec_rm64],
            Self::Neg => [Code::Neg_rm32, Code::Neg_rm64],
            Self::Not => [Code::Not_rm32, Code::Not_rm64],
            Self::Swap => [Code::Bswap_r32, Code::Bswap_r64],
        }
    }
}

impl Shift {
    fn codes(self) -> [Code; 2] {
        match self {
            Self::Left => [Code::Shl_rm32_imm8, Code::Shl_rm64_imm8],
            Self::Right => [Code::Shr_rm32_imm8, Code::Shr_rm64_imm8],
            Self::Signed => [Code::Sar_rm32_imm8, Code::Sar_rm64_imm8],
            Self::RotateLeft => [Code::Rol_rm32_imm8, Code::Rol_rm64_imm8],
            Self::RotateRight => [Code::Ror_rm32_imm8, Code::Ror_rm64_imm8],
        }
    }
    fn cl_codes(self) -> [Code; 2] {
        match self {
            Self::Left => [Code::Shl_rm32_CL, Code::Shl_rm64_CL],
            Self::Right => [Code::Shr_rm32_CL, Code::Shr_rm64_CL],
            Self::Signed => [Code::Sar_rm32_CL, Code::Sar_rm64_CL],
            Self::RotateLeft => [Code::Rol_rm32_CL, Code::Rol_rm64_CL],
            Self::RotateRight => [Code::Ror_rm32_CL, Code::Ror_rm64_CL],
        }
    }
    fn three_codes(self) -> [Code; 2] {
        match self {
            Self::Left => [Code::VEX_Shlx_r32_rm32_r32, Code::VEX_Shlx_r64_rm64_r64],
            Self::Right => [Code::VEX_Shrx_r32_rm32_r32, Code::VEX_Shrx_r64_rm64_r64],
            _ => [Code::VEX_Sarx_r32_rm32_r32, Code::VEX_Sarx_r64_rm64_r64],
        }
    }
}

/// Few registers, so that they meet; now and then any.
fn register() -> impl Strategy<Value = usize> {
    prop_oneof![8 => prop::sample::select(vec![0_usize, 1, 2, 3, 6, 7, 13]), 1 => 0..16_usize]
}

fn place() -> impl Strategy<Value = Memory> {
    let index = register().prop_map(|index| if index == RSP { 12 } else { index });
    let displacement = prop_oneof![Just(0), -128..128, any::<i32>()];
    let registers = (prop::option::of(register()), prop::option::of(index));
    (registers, prop::sample::select(vec![1_u32, 2, 4, 8]), displacement).prop_map(
        |((base, index), scale, displacement)| {
            let (base, scale) = (base.or_else(|| index.is_none().then_some(RDX)), index.map_or(1, |_| scale));
            Memory { base, index, scale, displacement }
        },
    )
}

/// A load of 32 or 64 bits.
pub(crate) fn load() -> impl Strategy<Value = Op> {
    (any::<bool>(), register(), place()).prop_map(|(wide, to, place)| Op::Load { wide, to, place })
}

/// An instruction that computes one register from others.
pub(crate) fn followable() -> impl Strategy<Value = Op> {
    prop_oneof![computing(), simple()]
}

/// Any instruction but a branch.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![5 => computing(), 4 => simple(), 1 => load(), 1 => unknowable()]
}

fn simple() -> impl Strategy<Value = Op> {
    let number = prop_oneof![-128..128, any::<i32>()];
    (0..7_usize, arith(), any::<bool>(), register(), register(), number, place()).prop_map(
        |(kind, what, wide, to, from, number, place)| match kind {
            0 => Op::Mov { wide, to, from },
            1 => Op::MovNumber { wide, to, number },
            2 | 3 if !matches!(what, Arith::Imul) => Op::ArithNumber { what, wide, to, number },
            4 => Op::Lea { wide, to, place },
            5 => Op::Lea { wide, to, place: Memory { base: Some(to), index: None, scale: 1, ..place } },
            _ => Op::Arith { what, wide, to, from },
        },
    )
}

fn computing() -> impl Strategy<Value = Op> {
    let one = prop::sample::select(vec![One::Inc, One::Dec, One::Neg, One::Not, One::Swap]);
    let shift = prop::sample::select(vec![
        Shift::Left,
        Shift::Right,
        Shift::Signed,
        Shift::RotateLeft,
        Shift::RotateRight,
    ]);
    let registers = (register(), register(), register());
    (0..17_usize, any::<bool>(), one, shift, registers, any::<i64>(), prop::sample::select(vec![1_u8, 2, 4])).prop_map(
        |(kind, wide, one, shift, (to, from, third), number, bytes)| {
            let by = (number as u8) % if wide { 64 } else { 32 };
            let plain = if matches!(shift, Shift::RotateLeft | Shift::RotateRight) { Shift::Signed } else { shift };
            match kind {
                0 => Op::MovLong { to, number },
                1 => Op::Andn { wide, to, a: from, b: third },
                2 => Op::ImulNumber { wide, to, from, number: number as i32 },
                3 | 4 => Op::One { what: one, wide, to },
                5 | 6 => Op::Shift { what: shift, wide, to, by },
                7 => Op::ShiftByCl { what: shift, wide, to },
                8 => Op::ShiftThree { what: plain, wide, to, from, by: third },
                9 => Op::Rorx { wide, to, from, by },
                10 | 11 => {
                    let signed = bytes == 4 || number % 2 == 0;
                    Op::Extend { signed, bytes, wide: wide || bytes == 4, to, from }
                }
                12 => Op::FromHigh { to: to % 4, from: from % 4 },
                13 => Op::Swap { a: to, b: from },
                14 => Op::Cdqe,
                15 => [Op::Cwde, Op::Cdq][usize::from(wide)],
                _ => Op::Cqo,
            }
        },
    )
}

/// What cannot be followed: partial and conditional writes; and the stack.
fn unknowable() -> impl Strategy<Value = Op> {
    (0..6_usize, register(), register(), place()).prop_map(|(kind, to, from, place)| match kind {
        0 => Op::MovPart { bytes: 1, to, from },
        1 => Op::MovPart { bytes: 2, to, from },
        2 => Op::ConditionalMove { to, from },
        3 => Op::Push { from },
        4 => Op::Pop { to },
        _ => Op::Store { from, place },
    })
}

fn arith() -> impl Strategy<Value = Arith> {
    prop::sample::select(vec![Arith::Add, Arith::Sub, Arith::And, Arith::Or, Arith::Xor, Arith::Imul])
}
