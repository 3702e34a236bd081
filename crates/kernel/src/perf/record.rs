//! Records of a perf ring, parsed from bytes.
//!
//! The kernel's ABI is in perf_event_open(2), "MMAP layout". A ring holds data of the kernel, but a
//! recording may hold anything: every length is checked, and a record that does not fit its own
//! size is dropped.

use hugepilot_record::{Pid, Tid};
use hugepilot_units::{Nanos, VirtAddr};
use perf_event_open_sys::bindings as sys;

use super::chain::CallChain;

/// User registers of samples: the sixteen general ones and the instruction pointer. The kernel has
/// no segment registers on x86-64.
pub struct RegsMask;

impl RegsMask {
    /// `sample_regs_user`: AX BX CX DX SI DI BP SP IP FLAGS, then R8–R15, in the kernel's
    /// numbering.
    pub const X86_64: u64 = 0x00ff_03ff;
    /// Registers in the mask.
    const COUNT: usize = Self::X86_64.count_ones() as usize;
}

/// General-purpose registers of a sample, by hardware number: rax rcx rdx rbx rsp rbp rsi rdi r8 …
/// r15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regs(pub [u64; 16]);

impl Regs {
    /// Position of each hardware register in perf's order (of [`RegsMask::X86_64`]).
    const PERF_POSITION: [usize; 16] = [0, 2, 3, 1, 7, 6, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17];

    fn from_perf(words: &[u8]) -> Self {
        Self(Self::PERF_POSITION.map(|i| word(words, i * 8).unwrap_or(0)))
    }
    /// Returns the stack pointer.
    pub const fn stack_pointer(&self) -> VirtAddr {
        VirtAddr::new(self.0[4])
    }
}

/// Fields that the samples of an event carry, beyond ip, pid/tid and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleFormat {
    /// Whether they carry a data address (`PERF_SAMPLE_ADDR`).
    pub address: bool,
    /// Whether they carry a cost (`PERF_SAMPLE_WEIGHT`).
    pub weight: bool,
    /// Whether they carry the source of the data (`PERF_SAMPLE_DATA_SRC`).
    pub data_source: bool,
    /// Whether they carry user registers (`PERF_SAMPLE_REGS_USER`).
    pub registers: bool,
    /// Whether they carry the call chain in user mode (`PERF_SAMPLE_CALLCHAIN`).
    pub callers: bool,
}

impl SampleFormat {
    /// Format of the stall sampler.
    pub const REGISTERS: Self =
        Self { address: false, weight: false, data_source: false, registers: true, callers: false };

    /// Whether samples carry the word at the stack pointer (`PERF_SAMPLE_STACK_USER`).
    pub(super) const fn has_stack_top(self) -> bool {
        self.callers && self.registers
    }

    /// Returns the bits for `perf_event_attr.sample_type`.
    pub const fn sample_type(self) -> u64 {
        let mut bits = (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME) as u64;
        if self.address {
            bits |= sys::PERF_SAMPLE_ADDR as u64;
        }
        if self.weight {
            bits |= sys::PERF_SAMPLE_WEIGHT as u64;
        }
        if self.data_source {
            bits |= sys::PERF_SAMPLE_DATA_SRC as u64;
        }
        if self.registers {
            bits |= sys::PERF_SAMPLE_REGS_USER as u64;
        }
        if self.callers {
            bits |= sys::PERF_SAMPLE_CALLCHAIN as u64;
        }
        if self.has_stack_top() {
            bits |= sys::PERF_SAMPLE_STACK_USER as u64;
        }
        bits
    }
}

/// Record of a ring; fields that the event does not carry are `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // Records are never stored.
pub enum Record<'a> {
    /// A sample.
    Sample {
        /// Instruction pointer.
        ip: VirtAddr,
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Time.
        time: Nanos,
        /// Data address from the hardware.
        address: Option<VirtAddr>,
        /// Cost from the hardware.
        weight: Option<u64>,
        /// Bits of `perf_mem_data_src`.
        data_source: Option<u64>,
        /// User registers; `None` if the thread has none (a kernel thread, a 32-bit program).
        registers: Option<Regs>,
        /// Call chain; empty if the event does not carry it.
        chain: CallChain<'a>,
        /// Word at the stack pointer: the return address, in a function without a frame.
        stack_top: Option<VirtAddr>,
    },
    /// Samples that did not fit into the ring.
    Lost(u64),
    /// The kernel slowed the event down.
    Throttled,
    /// A process started another program.
    Exec(Pid),
    /// A process or thread was made.
    Fork {
        /// Process.
        pid: Pid,
        /// Thread.
        tid: Tid,
        /// Process that made it: the same for a thread.
        parent: Pid,
    },
    /// A process mapped executable memory.
    Mapped(Pid),
    /// Anything else.
    Other,
}

const HEADER: usize = 8;
const ABI_64: u64 = 2;

/// Iterates over the records in `bytes`, each with its header. Ends at the first that is longer
/// than the rest.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let size = usize::from(u16::from_ne_bytes(rest.get(6..HEADER)?.try_into().ok()?));
        if size < HEADER || size > rest.len() {
            return None;
        }
        let (record, after) = rest.split_at(size);
        rest = after;
        Some(record)
    })
}

/// Parses one record of an event with that `format`; `None` if it is cut short.
pub fn parse_record(record: &[u8], format: SampleFormat) -> Option<Record<'_>> {
    let kind = u32::from_ne_bytes(record.get(..4)?.try_into().ok()?);
    let misc = u32::from(u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?));
    let body = record.get(HEADER..)?;
    Some(match kind {
        sys::PERF_RECORD_SAMPLE => return sample(body, format),
        sys::PERF_RECORD_LOST => Record::Lost(word(body, 8)?),
        sys::PERF_RECORD_LOST_SAMPLES => Record::Lost(word(body, 0)?),
        sys::PERF_RECORD_THROTTLE => Record::Throttled,
        sys::PERF_RECORD_COMM if misc & sys::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Record::Exec(Pid(half(body, 0)?))
        }
        sys::PERF_RECORD_FORK => {
            let (pid, parent) = (Pid(half(body, 0)?), Pid(half(body, 4)?));
            Record::Fork { pid, tid: Tid(half(body, 8)?), parent }
        }
        sys::PERF_RECORD_MMAP | sys::PERF_RECORD_MMAP2 => Record::Mapped(Pid(half(body, 0)?)),
        _ => Record::Other,
    })
}

fn sample(body: &[u8], format: SampleFormat) -> Option<Record<'_>> {
    let mut fields = Fields(body.get(24..)?);
    // In the order in which the kernel writes them.
    let address = fields.optional(format.address)?;
    let frames = fields.optional(format.callers)?.unwrap_or(0);
    let chain = CallChain(fields.words(usize::try_from(frames).ok()?)?);
    let registers = match fields.optional(format.registers)? {
        None | Some(0) => None,
        Some(abi) => {
            let words = fields.words(RegsMask::COUNT)?;
            // A 32-bit program sends the same number of words; its addresses would need a decoder
            // of their own.
            (abi == ABI_64).then(|| Regs::from_perf(words))
        }
    };
    let stack_top = if format.has_stack_top() { fields.stack_top()? } else { None };
    let weight = fields.optional(format.weight)?;
    let data_source = fields.optional(format.data_source)?;
    Some(Record::Sample {
        ip: VirtAddr::new(word(body, 0)?),
        pid: Pid(half(body, 8)?),
        tid: Tid(half(body, 12)?),
        time: Nanos::new(word(body, 16)?),
        address: address.map(VirtAddr::new),
        weight,
        data_source,
        registers,
        chain,
        stack_top,
    })
}

/// Fields of a sample that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next field if it is `wanted`; the outer `None` if the sample is cut short.
    fn optional(&mut self, wanted: bool) -> Option<Option<u64>> {
        if wanted { word(self.words(1)?, 0).map(Some) } else { Some(None) }
    }

    /// Reads a copy of the stack, and the length of its valid part; the outer `None` if the sample
    /// is cut short.
    fn stack_top(&mut self) -> Option<Option<VirtAddr>> {
        let bytes = usize::try_from(self.optional(true)??).ok()?;
        if bytes == 0 {
            return Some(None);
        }
        let copy = self.words(bytes / 8)?;
        let valid = self.optional(true)??;
        Some(word(copy, 0).filter(|_| valid >= 8).map(VirtAddr::new))
    }

    fn words(&mut self, count: usize) -> Option<&'a [u8]> {
        let (words, rest) = self.0.split_at_checked(count.checked_mul(8)?)?;
        self.0 = rest;
        Some(words)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: SampleFormat = SampleFormat {
        address: true,
        weight: true,
        data_source: true,
        registers: true,
        callers: true,
    };

    fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
        let size = u16::try_from(HEADER + words.len() * 8).unwrap();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }
    fn pair(low: i32, high: i32) -> u64 {
        u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32
    }

    #[test]
    fn a_register_sample_is_read_in_hardware_order() {
        let mut words = vec![0x40_1000, pair(7, 8), 99, ABI_64];
        // Perf's order: ax bx cx dx si di bp sp ip flags r8..r15, each here its own position.
        words.extend(100..118);
        let bytes = record(sys::PERF_RECORD_SAMPLE, 0, &words);
        let Some(Record::Sample { ip, pid, tid, time, registers, address, .. }) =
            parse_record(&bytes, SampleFormat::REGISTERS)
        else {
            panic!("no sample")
        };
        assert_eq!(
            (ip.get(), pid, tid, time.get(), address),
            (0x40_1000, Pid(7), Tid(8), 99, None)
        );
        let regs = registers.unwrap();
        // rax rcx rdx rbx rsp rbp rsi rdi r8 .. r15
        assert_eq!(regs.0[..9], [100, 102, 103, 101, 107, 106, 104, 105, 110]);
        assert_eq!((regs.0[15], regs.stack_pointer().get()), (117, 107));
    }

    #[test]
    fn hardware_fields_are_in_the_kernels_order() {
        let words = [
            &[0x40_1000, pair(7, 8), 99, 0xdead_b000][..],
            &[3, sys::PERF_CONTEXT_USER, 0x40_1000, 0x40_2000, ABI_64],
            &[5; 18],
            &[8, 0x40_1500, 8],
            &[42, 0x10],
        ];
        let bytes = record(sys::PERF_RECORD_SAMPLE, 0, &words.concat());
        let Some(Record::Sample {
            address, weight, data_source, registers, chain, stack_top, ..
        }) = parse_record(&bytes, ALL)
        else {
            panic!("no sample")
        };
        assert_eq!(stack_top, Some(VirtAddr::new(0x40_1500)));
        assert_eq!(address, Some(VirtAddr::new(0xdead_b000)));
        assert_eq!((weight, data_source, registers.is_some()), (Some(42), Some(0x10), true));
        assert_eq!(chain.callers().collect::<Vec<_>>(), [VirtAddr::new(0x40_2000)]);
    }

    #[test]
    fn the_top_of_the_stack_may_be_missing() {
        let format = SampleFormat { callers: true, ..SampleFormat::REGISTERS };
        let top = |stack: &[u64]| {
            let words = [&[1, pair(7, 8), 99, 0, 0][..], stack].concat();
            match parse_record(&record(sys::PERF_RECORD_SAMPLE, 0, &words), format) {
                Some(Record::Sample { stack_top, .. }) => Some(stack_top.map(VirtAddr::get)),
                _ => None,
            }
        };
        assert_eq!(top(&[8, 77, 8]), Some(Some(77)));
        assert_eq!((top(&[0]), top(&[8, 77, 0])), (Some(None), Some(None)));
        assert_eq!((top(&[]), top(&[8, 77]), top(&[u64::MAX, 77, 8])), (None, None, None));
    }

    #[test]
    fn a_chain_longer_than_its_record_drops_the_sample() {
        let format = SampleFormat { registers: false, callers: true, ..SampleFormat::REGISTERS };
        let parse = |frames: u64| {
            let words = [1, pair(7, 8), 99, frames, sys::PERF_CONTEXT_USER, 0x40_1000];
            parse_record(&record(sys::PERF_RECORD_SAMPLE, 0, &words), format).is_some()
        };
        assert!(parse(0) && parse(2));
        for frames in [3, 1 << 32, 1 << 61, u64::MAX / 8 + 1, u64::MAX] {
            assert!(!parse(frames), "{frames}");
        }
    }

    #[test]
    fn a_32_bit_program_has_no_registers() {
        let words = [&[0x1000, pair(7, 8), 99, 1][..], &[5; 18]].concat();
        let bytes = record(sys::PERF_RECORD_SAMPLE, 0, &words);
        let parsed = parse_record(&bytes, SampleFormat::REGISTERS);
        assert!(matches!(parsed, Some(Record::Sample { registers: None, .. })));
    }

    #[test]
    fn losses_and_events_are_distinguished() {
        fn parse(bytes: &[u8]) -> Record<'_> {
            parse_record(bytes, SampleFormat::REGISTERS).unwrap()
        }
        assert_eq!(parse(&record(sys::PERF_RECORD_LOST, 0, &[1, 17])), Record::Lost(17));
        assert_eq!(parse(&record(sys::PERF_RECORD_LOST_SAMPLES, 0, &[5])), Record::Lost(5));
        assert_eq!(parse(&record(sys::PERF_RECORD_THROTTLE, 0, &[0, 0, 0])), Record::Throttled);
        assert_eq!(
            parse(&record(sys::PERF_RECORD_COMM, 1 << 13, &[pair(3, 3), 0])),
            Record::Exec(Pid(3))
        );
        assert_eq!(parse(&record(sys::PERF_RECORD_COMM, 0, &[pair(3, 3), 0])), Record::Other);
        let forked = record(sys::PERF_RECORD_FORK, 0, &[pair(3, 1), pair(4, 2), 0]);
        assert_eq!(parse(&forked), Record::Fork { pid: Pid(3), tid: Tid(4), parent: Pid(1) });
    }

    proptest! {
        #[test]
        fn junk_is_walked_to_its_end_without_panic(
            junk in prop::collection::vec(any::<u8>(), 0..600), bits in 0_u8..32,
        ) {
            let format = SampleFormat {
                address: bits & 1 != 0,
                weight: bits & 2 != 0,
                data_source: bits & 4 != 0,
                registers: bits & 8 != 0,
                callers: bits & 16 != 0,
            };
            let parse = |record: &[u8]| {
                if let Some(Record::Sample { chain, .. }) = parse_record(record, format) {
                    chain.callers().count();
                }
                record.len()
            };
            let length: usize = records(&junk).map(parse).sum();
            prop_assert!(length <= junk.len());
        }

        #[test]
        fn a_sample_cut_anywhere_is_none_or_whole(cut in 0_usize..240) {
            let words = [&[1, pair(7, 8), 99, 1, 5, ABI_64][..], &[5; 18], &[8, 7, 8]].concat();
            let whole = record(sys::PERF_RECORD_SAMPLE, 0, &words);
            let cut = cut.min(whole.len());
            let format = SampleFormat { callers: true, ..SampleFormat::REGISTERS };
            let parsed = parse_record(&whole[..cut], format);
            prop_assert_eq!(parsed.is_some(), cut == whole.len());
        }
    }
}
