//! Machine code of the instructions.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, Register};

use super::{Arith, Memory, One, Op, START, Shift};

/// Machine code, with the position of each instruction.
pub(crate) struct Program {
    pub(crate) code: Vec<u8>,
    ips: Vec<u64>,
}

impl Program {
    /// Assembles the instructions and a final `ret`.
    pub(crate) fn assemble(ops: &[Op]) -> Self {
        // All branches have the same length, so a first pass with any targets gives all positions.
        let mut ips = vec![START; ops.len() + 1];
        let mut code = Vec::new();
        for _ in 0..2 {
            let mut encoder = Encoder::new(64);
            let mut ip = START;
            for at in 0..ops.len() {
                ips[at] = ip;
                let instruction = ops[at].instruction(&ips);
                ip += encoder
                    .encode(&instruction, ip)
                    .unwrap_or_else(|error| panic!("{:?}: {error}", ops[at]))
                    as u64;
            }
            ips[ops.len()] = ip;
            encoder.encode(&Instruction::with(Code::Retnq), ip).unwrap();
            code = encoder.take_buffer();
        }
        Self { code, ips }
    }

    /// Returns the address of an instruction, by its index.
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

/// Returns the low part of a register.
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
    #[allow(clippy::too_many_lines)]
    fn instruction(&self, ips: &[u64]) -> Instruction {
        let code = self.code();
        let instruction = match *self {
            Self::Mov { wide, to, from } | Self::Arith { wide, to, from, .. } => {
                Instruction::with2(code, sized(wide, to), sized(wide, from))
            }
            Self::MovNumber { wide, to, number } | Self::ArithNumber { wide, to, number, .. } => {
                Instruction::with2(code, sized(wide, to), number)
            }
            Self::MovLong { to, number } => Instruction::with2(code, r64(to), number),
            Self::MovPart { bytes, to, from } => {
                Instruction::with2(code, part(bytes, to), part(bytes, from))
            }
            Self::Andn { wide, to, a, b } => {
                Instruction::with3(code, sized(wide, to), sized(wide, a), sized(wide, b))
            }
            Self::ImulNumber { wide, to, from, number } => {
                Instruction::with3(code, sized(wide, to), sized(wide, from), number)
            }
            Self::One { wide, to, .. } => Instruction::with1(code, sized(wide, to)),
            Self::Shift { wide, to, by, .. } => {
                Instruction::with2(code, sized(wide, to), u32::from(by))
            }
            Self::ShiftByCl { wide, to, .. } => {
                Instruction::with2(code, sized(wide, to), Register::CL)
            }
            Self::ShiftThree { wide, to, from, by, .. } => {
                Instruction::with3(code, sized(wide, to), sized(wide, from), sized(wide, by))
            }
            Self::Rorx { wide, to, from, by } => {
                Instruction::with3(code, sized(wide, to), sized(wide, from), u32::from(by))
            }
            Self::Extend { bytes, wide, to, from, .. } => {
                Instruction::with2(code, sized(wide, to), part(bytes, from))
            }
            Self::FromHigh { to, from } => {
                Instruction::with2(code, r32(to), Register::AH + from as u32)
            }
            Self::Lea { wide, to, place } | Self::Load { wide, to, place } => {
                Instruction::with2(code, sized(wide, to), place.operand())
            }
            Self::Store { from, place } => Instruction::with2(code, place.operand(), r64(from)),
            Self::Swap { a, b } | Self::Compare { a, b } => {
                Instruction::with2(code, r64(a), r64(b))
            }
            Self::ConditionalMove { to, from } => Instruction::with2(code, r64(to), r64(from)),
            Self::Push { from: only } | Self::Pop { to: only } => {
                Instruction::with1(code, r64(only))
            }
            Self::Cdqe | Self::Cwde | Self::Cdq | Self::Cqo => Ok(Instruction::with(code)),
            Self::Branch { to } => Instruction::with_branch(code, ips[to]),
        };
        instruction.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn code(&self) -> Code {
        let by_width = |wide: bool, of: [Code; 2]| of[usize::from(wide)];
        match *self {
            Self::Mov { wide, .. } => by_width(wide, [Code::Mov_rm32_r32, Code::Mov_r64_rm64]),
            Self::MovNumber { wide, .. } => {
                by_width(wide, [Code::Mov_r32_imm32, Code::Mov_rm64_imm32])
            }
            Self::MovLong { .. } => Code::Mov_r64_imm64,
            Self::MovPart { bytes, .. } => {
                by_width(bytes == 2, [Code::Mov_r8_rm8, Code::Mov_r16_rm16])
            }
            Self::Arith { what, wide, .. } => by_width(wide, what.codes()),
            Self::ArithNumber { what, wide, number, .. } => {
                by_width(wide, what.number_codes(number))
            }
            Self::Andn { wide, .. } => {
                by_width(wide, [Code::VEX_Andn_r32_r32_rm32, Code::VEX_Andn_r64_r64_rm64])
            }
            Self::ImulNumber { wide, .. } => {
                by_width(wide, [Code::Imul_r32_rm32_imm32, Code::Imul_r64_rm64_imm32])
            }
            Self::One { what, wide, .. } => by_width(wide, what.codes()),
            Self::Shift { what, wide, .. } => by_width(wide, what.codes()),
            Self::ShiftByCl { what, wide, .. } => by_width(wide, what.cl_codes()),
            Self::ShiftThree { what, wide, .. } => by_width(wide, what.three_codes()),
            Self::Rorx { wide, .. } => {
                by_width(wide, [Code::VEX_Rorx_r32_rm32_imm8, Code::VEX_Rorx_r64_rm64_imm8])
            }
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
    /// Returns the codes, in the short form if the number fits.
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
