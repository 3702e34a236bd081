//! Random instructions.

use proptest::prelude::*;

use super::{Arith, Memory, One, Op, RDX, RSP, Shift};

/// Few registers, so that instructions share them; sometimes any.
fn register() -> impl Strategy<Value = usize> {
    prop_oneof![8 => prop::sample::select(vec![0_usize, 1, 2, 3, 6, 7, 13]), 1 => 0..16_usize]
}

fn place() -> impl Strategy<Value = Memory> {
    let index = register().prop_map(|index| if index == RSP { 12 } else { index });
    let displacement = prop_oneof![Just(0), -128..128, any::<i32>()];
    let registers = (prop::option::of(register()), prop::option::of(index));
    (registers, prop::sample::select(vec![1_u32, 2, 4, 8]), displacement).prop_map(
        |((base, index), scale, displacement)| {
            let (base, scale) =
                (base.or_else(|| index.is_none().then_some(RDX)), index.map_or(1, |_| scale));
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

/// A load into `to` from the address in `base`.
pub(crate) fn load_through(base: usize, to: usize) -> impl Strategy<Value = Op> {
    let direct = move |place: Memory| Memory { base: Some(base), index: None, scale: 1, ..place };
    (any::<bool>(), place()).prop_map(move |(wide, place)| Op::Load {
        wide,
        to,
        place: direct(place),
    })
}

/// An instruction that changes `to`, mostly with an inverse.
pub(crate) fn changing(to: usize) -> impl Strategy<Value = Op> {
    let kinds = (
        0..6_usize,
        arith(),
        prop::sample::select(vec![One::Inc, One::Dec, One::Neg, One::Not, One::Swap]),
    );
    (kinds, register(), any::<i32>(), any::<bool>(), place()).prop_map(
        move |((kind, what, one), from, number, left, place)| match kind {
            0 => Op::One { what: one, wide: true, to },
            1 if !matches!(what, Arith::Imul) => Op::ArithNumber { what, wide: true, to, number },
            2 => {
                let what = if left { Shift::RotateLeft } else { Shift::RotateRight };
                Op::Shift { what, wide: true, to, by: (number as u8) % 64 }
            }
            3 => Op::Lea { wide: true, to, place: Memory { base: Some(to), ..place } },
            4 => Op::Swap { a: to, b: from },
            _ => Op::Arith { what, wide: true, to, from },
        },
    )
}

/// Any instruction except a branch.
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
            5 => Op::Lea {
                wide,
                to,
                place: Memory { base: Some(to), index: None, scale: 1, ..place },
            },
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
    (
        0..17_usize,
        any::<bool>(),
        one,
        shift,
        registers,
        any::<i64>(),
        prop::sample::select(vec![1_u8, 2, 4]),
    )
        .prop_map(|(kind, wide, one, shift, (to, from, third), number, bytes)| {
            let by = (number as u8) % if wide { 64 } else { 32 };
            let plain = if matches!(shift, Shift::RotateLeft | Shift::RotateRight) {
                Shift::Signed
            } else {
                shift
            };
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
        })
}

/// Instructions that cannot be followed: partial and conditional writes, and the stack.
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
    prop::sample::select(vec![
        Arith::Add,
        Arith::Sub,
        Arith::And,
        Arith::Or,
        Arith::Xor,
        Arith::Imul,
    ])
}
