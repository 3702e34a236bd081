//! Recipes for short pieces of machine code, assembled by GNU as.

use hugepilot_code::{Boundary, NoAddress, Recipe, Regs, Stride, analyse};
use hugepilot_record::Provenance;
use iced_x86::Register::{self, RAX, RBX, RCX, RDI, RDX, RSI, RSP};

const START: u64 = 0x40_0000;

/// Returns the recipe of a sample at offset `ip` of a function with these instructions.
fn recipe(ip: u64, instructions: &[&str]) -> Recipe {
    let bytes = instructions.iter().flat_map(|one| one.split(' '));
    let code: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    analyse(&code, START, Boundary::Function, START + ip)
}

/// Returns registers that all differ, in both halves.
fn regs() -> Regs {
    Regs::new(START, std::array::from_fn(|at| 0x0123_4567_9abc_def1_u64.rotate_left(4 * at as u32)))
}

fn reg(register: Register) -> u64 {
    regs().get(register).unwrap()
}

#[track_caller]
fn assert_address(recipe: &Recipe, provenance: Provenance, address: u64) {
    assert_eq!((recipe.provenance, recipe.no_address), (provenance, None));
    let found = recipe.address(&regs()).unwrap().get();
    assert!(found == address, "found {found:#x}, expected {address:#x}");
}

#[track_caller]
fn assert_no_address(recipe: &Recipe, reason: NoAddress) {
    assert_eq!((recipe.provenance, recipe.no_address), (Provenance::None, Some(reason)));
    assert_eq!(recipe.address(&regs()), None);
}

#[test]
fn a_gather_with_intact_registers_is_exact() {
    // mov rdx, [rbx+rcx*4+16]; add rax, rdx; ret
    let found = recipe(5, &["48 8b 54 8b 10", "48 01 d0", "c3"]);
    let address = reg(RBX).wrapping_add(reg(RCX).wrapping_mul(4)).wrapping_add(16);
    assert_address(&found, Provenance::Exact, address);
    assert_eq!((found.accessing_ip, found.writes, found.stride), (START, false, Stride::Unknown));
}

#[test]
fn a_store_is_a_write() {
    // mov [rdi+rcx*8], rax; ret
    let found = recipe(4, &["48 89 04 cf", "c3"]);
    assert_address(&found, Provenance::Exact, reg(RDI).wrapping_add(reg(RCX).wrapping_mul(8)));
    assert!(found.writes);
}

#[test]
fn an_index_that_the_load_overwrote_is_recomputed() {
    // mov rdx, rax; shr rdx, 33; and rdx, 0xfffffff; mov edx, [rbx+rdx*4]; add rsi, rdx; ret
    let code = ["48 89 c2", "48 c1 ea 21", "48 81 e2 ff ff ff 0f", "8b 14 93", "48 01 d6", "c3"];
    let found = recipe(17, &code);
    let index = reg(RAX) >> 33 & 0x0fff_ffff;
    assert_address(&found, Provenance::Recomputed, reg(RBX).wrapping_add(index * 4));
    assert_eq!(found.accessing_ip, START + 14);
}

#[test]
fn a_branch_into_the_slice_stops_it() {
    // mov rdx, rax; l: and rdx, 0xfffffff; mov edx, [rbx+rdx*4]; add rsi, rdx; dec rcx; jne l; ret
    let code =
        ["48 89 c2", "48 81 e2 ff ff ff 0f", "8b 14 93", "48 01 d6", "48 ff c9", "75 ee", "c3"];
    assert_ne!(recipe(13, &code).provenance, Provenance::Recomputed);
    // The same with the branch to the ret, not into the slice.
    let code =
        ["48 89 c2", "48 81 e2 ff ff ff 0f", "8b 14 93", "48 01 d6", "48 ff c9", "75 00", "c3"];
    let address = reg(RBX).wrapping_add((reg(RAX) & 0x0fff_ffff) * 4);
    assert_address(&recipe(13, &code), Provenance::Recomputed, address);
}

#[test]
fn a_copy_of_an_overwritten_register_is_used() {
    // mov rdx, rax; mov rax, [rax+8]; ret
    let found = recipe(7, &["48 89 c2", "48 8b 40 08", "c3"]);
    assert_address(&found, Provenance::Recomputed, reg(RDX).wrapping_add(8));
}

#[test]
fn a_pointer_chase_gives_the_next_address() {
    // l: mov rax, [rax+8]; dec rcx; jne l; ret
    let found = recipe(4, &["48 8b 40 08", "48 ff c9", "75 f7", "c3"]);
    assert_address(&found, Provenance::Next, reg(RAX).wrapping_add(8));
    assert_eq!(found.stride, Stride::Unknown);
}

#[test]
fn an_index_chase_is_run_on_to_its_next_access() {
    // l: mov rdx, [rbx+rdx*8]; add rdx, rsi; and edx, 0xffff; jne l; ret
    let found = recipe(4, &["48 8b 14 d3", "48 01 f2", "81 e2 ff ff 00 00", "75 f1", "c3"]);
    let index = reg(RDX).wrapping_add(reg(RSI)) & 0xffff;
    assert_address(&found, Provenance::Next, reg(RBX).wrapping_add(index * 8));
}

#[test]
fn a_register_that_a_skipped_instruction_changes_is_unknown() {
    // l: mov rax, [rax+8]; cmp rax, rcx; jne m; mov rax, rbx; m: dec rdx; jne l; ret
    let found =
        recipe(4, &["48 8b 40 08", "48 39 c8", "75 03", "48 89 d8", "48 ff ca", "75 ef", "c3"]);
    assert_no_address(&found, NoAddress::Overwritten);
    assert_eq!(found.accessing_ip, START);
}

#[test]
fn the_way_to_the_next_access_must_be_certain() {
    // h: add rdx, rsi; jne m; mov rdx, [rbx+rdx*8]; nop; m: dec rcx; jne h; ret
    // The next iteration may skip the load.
    let skipped = ["48 01 f2", "75 05", "48 8b 14 d3", "90", "48 ff c9", "75 f1", "c3"];
    assert_no_address(&recipe(9, &skipped), NoAddress::Overwritten);
    // l: mov rcx, [rbx+rcx*8]; loop l; ret. The branch itself decrements rcx.
    assert_no_address(&recipe(4, &["48 8b 0c cb", "e2 fa", "c3"]), NoAddress::Overwritten);
    // l: mov rax, [rax+8]; nop; i: add rax, 8; dec rdx; jne i; dec rcx; jne l; ret
    // The number of additions is unknown.
    let inner =
        ["48 8b 40 08", "90", "48 83 c0 08", "48 ff ca", "75 f7", "48 ff c9", "75 ed", "c3"];
    assert_no_address(&recipe(4, &inner), NoAddress::Overwritten);
}

#[test]
fn an_overwritten_pointer_outside_a_loop_is_gone() {
    // mov rdx, [rbx]; mov rdx, [rdx]; ret
    assert_no_address(&recipe(6, &["48 8b 13", "48 8b 12", "c3"]), NoAddress::Overwritten);
}

#[test]
fn an_ip_that_is_branched_to_is_ambiguous() {
    // mov rdx, [rbx]; l: inc rdx; cmp rdx, rsi; jne l; ret
    let code = ["48 8b 13", "48 ff c2", "48 39 f2", "75 f8", "c3"];
    assert_no_address(&recipe(3, &code), NoAddress::BranchTarget);
}

#[test]
fn a_target_with_one_way_in_is_not_ambiguous() {
    // cmp rax, [rbx+rcx*8]; je m; inc rdx; ret; m: inc rsi; ret
    // The fused compare and branch stalled.
    let one_way = ["48 3b 04 cb", "74 04", "48 ff c2", "c3", "48 ff c6", "c3"];
    let found = recipe(10, &one_way);
    assert_eq!((found.provenance, found.accessing_ip), (Provenance::Exact, START));
    let mut gpr = [0; 16];
    (gpr[3], gpr[1]) = (0x10_0000, 5);
    assert_eq!(found.address(&Regs::new(START + 10, gpr)).unwrap().get(), 0x10_0028);
    // Code that continues into m, a second branch to m, or a computed jump: two entries.
    let runs_on = ["48 3b 04 cb", "74 04", "48 ff c2", "90", "48 ff c6", "c3"];
    assert_no_address(&recipe(10, &runs_on), NoAddress::BranchTarget);
    let two_branches = ["48 3b 04 cb", "74 04", "48 ff c2", "c3", "48 ff c6", "74 fb", "c3"];
    assert_no_address(&recipe(10, &two_branches), NoAddress::BranchTarget);
    let computed = ["48 3b 04 cb", "74 04", "90", "ff e2", "c3", "48 ff c6", "c3"];
    assert_no_address(&recipe(10, &computed), NoAddress::BranchTarget);
}

#[test]
fn the_target_of_indirect_branches_is_ambiguous() {
    // mov rdx, [rbx]; endbr64; ret
    assert_no_address(&recipe(3, &["48 8b 13", "f3 0f 1e fa", "c3"]), NoAddress::BranchTarget);
    // mov rdx, rax; endbr64; mov edx, [rbx+rdx*4]; ret
    let code = ["48 89 c2", "f3 0f 1e fa", "8b 14 93", "c3"];
    assert_no_address(&recipe(10, &code), NoAddress::Overwritten);
}

#[test]
fn after_a_call_another_instruction_ran_last() {
    // call f; ret; f: ret
    assert_no_address(&recipe(5, &["e8 01 00 00 00", "c3", "c3"]), NoAddress::AfterTransfer);
    // hlt; ret
    assert_no_address(&recipe(1, &["f4", "c3"]), NoAddress::AfterTransfer);
    // mov rdx, rax; jmp z; mov edx, [rbx+rdx*4]; inc rcx; z: ret
    // The load does not follow the first line.
    let jumped = recipe(8, &["48 89 c2", "eb 06", "8b 14 93", "48 ff c1", "c3"]);
    assert_no_address(&jumped, NoAddress::Overwritten);
}

#[test]
fn code_that_was_just_entered_and_read_nothing_may_wait_for_its_fetch() {
    // push rbp; mov rbp, rsp; lea rax, [rdi+rdi*2]; mov rdx, [rax]; ret
    let code = ["55", "48 89 e5", "48 8d 04 7f", "48 8b 10", "c3"];
    let may_fetch = |ip| recipe(ip, &code).may_fetch;
    assert!(may_fetch(1) && may_fetch(4) && may_fetch(8), "the start of a function");
    assert!(!may_fetch(11), "the load may have stalled");
    // ret; nop; add rax, rdx; ret
    assert!(recipe(5, &["c3", "90", "48 01 d0", "c3"]).may_fetch, "behind the end of another");
    // Eight additions, then ret.
    let long = ["48 01 d0"; 8];
    assert!(!recipe(24, &[&long[..], &["c3"]].concat()).may_fetch, "long after it was entered");
}

#[test]
fn instructions_that_only_name_memory_do_not_count() {
    // nop; lea rdx, [rbx+rcx*8]; ret
    assert_no_address(&recipe(5, &["90", "48 8d 14 cb", "c3"]), NoAddress::NoMemoryOperand);
    // prefetcht0 [rax]; ret
    assert_no_address(&recipe(3, &["0f 18 08", "c3"]), NoAddress::NoMemoryOperand);
    // nop dword ptr [rax]; ret
    assert_no_address(&recipe(3, &["0f 1f 00", "c3"]), NoAddress::NoMemoryOperand);
}

#[test]
fn a_rip_relative_address_is_static() {
    // mov eax, [rip+0x1234]; ret
    assert_address(&recipe(6, &["8b 05 34 12 00 00", "c3"]), Provenance::Exact, START + 6 + 0x1234);
}

#[test]
fn push_and_pop_access_the_stack() {
    let push = recipe(1, &["50", "c3"]);
    assert_address(&push, Provenance::Recomputed, reg(RSP));
    assert!(push.writes);
    let pop = recipe(1, &["58", "c3"]);
    assert_address(&pop, Provenance::Recomputed, reg(RSP).wrapping_sub(8));
    assert!(!pop.writes);
    // push [rax+8]; ret: the load stalls
    let memory = recipe(3, &["ff 70 08", "c3"]);
    assert_address(&memory, Provenance::Exact, reg(RAX).wrapping_add(8));
    assert!(!memory.writes);
}

#[test]
fn string_instructions_walk_their_registers() {
    // rep movsb; ret: rsi is past the last byte
    let movs = recipe(2, &["f3 a4", "c3"]);
    assert_address(&movs, Provenance::Exact, reg(RSI).wrapping_sub(1));
    assert_eq!((movs.stride, movs.writes), (Stride::Bytes(1), false));
    // rep stosq; ret
    let stos = recipe(3, &["f3 48 ab", "c3"]);
    assert_address(&stos, Provenance::Exact, reg(RDI).wrapping_sub(8));
    assert_eq!((stos.stride, stos.writes), (Stride::Bytes(8), true));
    // mov rcx, rdx; rep movsb; ret: interrupted half-way
    let within = recipe(3, &["48 89 d1", "f3 a4", "c3"]);
    assert_address(&within, Provenance::Exact, reg(RSI));
    assert_eq!(within.accessing_ip, START + 3);
    // lodsd; ret
    assert_address(&recipe(1, &["ad", "c3"]), Provenance::Exact, reg(RSI).wrapping_sub(4));
}

#[test]
fn an_addition_after_the_access_is_inverted() {
    // mov rdx, [rdi+rcx*8]; add rcx, 1; add rax, rdx; ret
    let found = recipe(11, &["48 8b 14 cf", "48 83 c1 01", "48 01 d0", "c3"]);
    let address = reg(RDI).wrapping_add(reg(RCX).wrapping_sub(1).wrapping_mul(8));
    assert_address(&found, Provenance::Recomputed, address);
    assert_eq!(found.accessing_ip, START);
    // mov rdx, [rdi]; lea rdi, [rdi+rcx*2+8]; add rax, rdx; ret
    let moved = recipe(11, &["48 8b 17", "48 8d 7c 4f 08", "48 01 d0", "c3"]);
    let address = reg(RDI).wrapping_sub(reg(RCX).wrapping_mul(2)).wrapping_sub(8);
    assert_address(&moved, Provenance::Recomputed, address);
}

#[test]
fn a_consumer_retires_with_its_load() {
    // mov rdx, [rdi]; inc rcx; add rax, rdx; ret
    let found = recipe(9, &["48 8b 17", "48 ff c1", "48 01 d0", "c3"]);
    assert_address(&found, Provenance::Exact, reg(RDI));
    // mov rdx, [rdi]; add rax, rcx; ret: does not depend on the load
    assert_no_address(&recipe(6, &["48 8b 17", "48 01 c8", "c3"]), NoAddress::NoMemoryOperand);
    // mov rdx, [rdi]; mov edx, ecx; add rax, rdx; ret: nor does this
    assert_no_address(
        &recipe(8, &["48 8b 17", "89 ca", "48 01 d0", "c3"]),
        NoAddress::NoMemoryOperand,
    );
    // mov rdx, [rdi]; l: add rax, rdx; dec rcx; jne l; ret: the branch skips the load
    let entered = ["48 8b 17", "48 01 d0", "48 ff c9", "75 f8", "c3"];
    assert_no_address(&recipe(6, &entered), NoAddress::NoMemoryOperand);
    // cmp dword ptr [rdi+rcx*4], -1; je x; inc rcx; x: ret
    let fused = recipe(6, &["83 3c 8f ff", "74 03", "48 ff c1", "c3"]);
    assert_address(&fused, Provenance::Exact, reg(RDI).wrapping_add(reg(RCX).wrapping_mul(4)));
    // movsd xmm0, [rdi+rcx*8]; addsd xmm1, xmm0; ret
    let vector = recipe(9, &["f2 0f 10 04 cf", "f2 0f 58 c8", "c3"]);
    assert_address(&vector, Provenance::Exact, reg(RDI).wrapping_add(reg(RCX).wrapping_mul(8)));
}

#[test]
fn addresses_out_of_reach_are_refused() {
    // mov rax, fs:[0x28]; ret
    assert_no_address(&recipe(9, &["64 48 8b 04 25 28 00 00 00", "c3"]), NoAddress::Segment);
    // vpgatherdd ymm0, [rax+ymm1*4], ymm2; ret
    assert_no_address(&recipe(6, &["c4 e2 6d 90 04 88", "c3"]), NoAddress::Unaddressable);
    // bt [rdi], rax; ret
    assert_no_address(&recipe(4, &["48 0f a3 07", "c3"]), NoAddress::Unaddressable);
}

#[test]
fn an_address_of_32_bits_is_truncated() {
    // mov eax, [ebx+ecx*4-4]; ret
    let found = recipe(5, &["67 8b 44 8b fc", "c3"]);
    let address = reg(RBX).wrapping_add(reg(RCX).wrapping_mul(4)).wrapping_sub(4) & 0xffff_ffff;
    assert_address(&found, Provenance::Exact, address);
}

#[test]
fn strides_come_from_the_loop() {
    // l: mov rdx, [rdi+rcx*8]; add rax, rdx; add rcx, 1; cmp rcx, rsi; jne l; ret
    let forward = ["48 8b 14 cf", "48 01 d0", "48 83 c1 01", "48 39 f1", "75 f0", "c3"];
    assert_eq!(recipe(4, &forward).stride, Stride::Bytes(8));
    // l: mov rdx, [rdi+16]; add rax, rdx; add rcx, 1; cmp rcx, rsi; jne l; ret
    let fixed = ["48 8b 57 10", "48 01 d0", "48 83 c1 01", "48 39 f1", "75 f0", "c3"];
    assert_eq!(recipe(4, &fixed).stride, Stride::Constant);
    // l: mov rax, [rdi]; add rdx, rax; lea rdi, [rdi+64]; cmp rdi, rsi; jb l; ret
    let pointer = ["48 8b 07", "48 01 c2", "48 8d 7f 40", "48 39 f7", "72 f1", "c3"];
    assert_eq!(recipe(3, &pointer).stride, Stride::Bytes(64));
    // l: mov [r12+rbx*4-4], eax; call f; sub rbx, 1; jne l; ret; f: ret
    // A callee preserves rbx and r12.
    let backward = ["41 89 44 9c fc", "e8 06 00 00 00", "48 83 eb 01", "75 f0", "c3", "c3"];
    assert_eq!(recipe(5, &backward).stride, Stride::Bytes(-4));
    // l: mov rdx, [rdi]; call f; add rbx, 8; jne l; ret; f: ret
    // A callee may change rdi.
    let clobbered = ["48 8b 17", "e8 06 00 00 00", "48 83 c3 08", "75 f2", "c3", "c3"];
    assert_eq!(recipe(3, &clobbered).stride, Stride::Unknown);
}

#[test]
fn the_innermost_loop_counts() {
    // o: mov rdi, r8; i: mov rdx, [rdi]; add rdi, 8; cmp rdi, rsi; jne i; dec rcx; jne o; ret
    let inner =
        ["4c 89 c7", "48 8b 17", "48 83 c7 08", "48 39 f7", "75 f4", "48 ff c9", "75 ec", "c3"];
    assert_eq!(recipe(6, &inner).stride, Stride::Bytes(8));
    // l: mov rdx, [rdi]; nop; i: add rdi, 8; dec rsi; jne i; dec rcx; jne l; ret
    // The number of additions is unknown.
    let outer = ["48 8b 17", "90", "48 83 c7 08", "48 ff ce", "75 f7", "48 ff c9", "75 ee", "c3"];
    assert_eq!(recipe(3, &outer).stride, Stride::Unknown);
}

#[test]
fn data_among_the_code_does_not_mislead() {
    // jmp x; two bytes that start a ten-byte instruction; x: mov rax, [rdi]; ret
    let found = recipe(7, &["eb 02", "48 b8", "48 8b 07", "c3"]);
    assert_no_address(&found, NoAddress::UnknownCode);
    // jmp x; a byte that starts no instruction; x: mov rax, [rdi]; ret
    // The correct decoding is chance.
    let found = recipe(6, &["eb 01", "06", "48 8b 07", "c3"]);
    assert_no_address(&found, NoAddress::UnknownCode);
    // With enough code after the data, all decodings agree.
    let padding = ["90"; 40];
    let found = recipe(46, &[&["eb 01", "06"], &padding[..], &["48 8b 07", "c3"]].concat());
    assert_eq!(found.accessing_ip, START + 43);
}

#[test]
fn code_of_unknown_bounds_is_decoded_if_all_decodings_agree() {
    // A loop of:
    // mov rdx, rax; shr rdx, 33; and rdx, 0xfffffff; mov edx, [rbx+rdx*4]; add rsi, rdx; inc rax
    let body = "48 89 c2 48 c1 ea 21 48 81 e2 ff ff ff 0f 8b 14 93 48 01 d6 48 ff c0";
    let once: Vec<u8> = body.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let code = once.repeat(20);
    let ip = START + 10 * once.len() as u64 + 17;
    for cut in 0..once.len() {
        let found = analyse(&code[cut..], START + cut as u64, Boundary::Unknown, ip);
        let index = reg(RAX) >> 33 & 0x0fff_ffff;
        assert_address(&found, Provenance::Recomputed, reg(RBX).wrapping_add(index * 4));
    }
    // Inside an instruction: decodings that end there disagree or are few.
    let inside = analyse(&code, START, Boundary::Unknown, ip - 1);
    assert_eq!(inside.provenance, Provenance::None);
    // Pairs of b0 are the same instruction from any byte. From every second byte, the last one
    // includes the 48 of mov rax, [rdi] and leaves mov eax, [rdi].
    let mut divided = vec![0xb0; 300];
    divided.extend([0x48, 0x8b, 0x07, 0xc3]);
    assert_no_address(
        &analyse(&divided, START, Boundary::Unknown, START + 303),
        NoAddress::UnknownCode,
    );
    // Too little code before the IP.
    let short = analyse(&code[10 * once.len()..], START, Boundary::Unknown, START + 17);
    assert_no_address(&short, NoAddress::UnknownCode);
}

#[test]
fn an_ip_outside_the_code_is_unknown() {
    for ip in [0, START - 1, START, START + 6, u64::MAX] {
        for boundary in [Boundary::Function, Boundary::Unknown] {
            assert_no_address(
                &analyse(&[0x48, 0x8b, 0x07], START, boundary, ip),
                NoAddress::UnknownCode,
            );
        }
    }
    // A function that ends with the access.
    let last = analyse(&[0x48, 0x8b, 0x07], START, Boundary::Function, START + 3);
    assert_address(&last, Provenance::Exact, reg(RDI));
    let wrapping = analyse(&[0x90; 64], u64::MAX - 10, Boundary::Function, 5);
    assert_no_address(&wrapping, NoAddress::UnknownCode);
}
