//! Analysis of one IP: its recipe.

use hugepilot_record::Provenance;
use hugepilot_units::VirtAddr;
use iced_x86::Instruction;

use super::access::{Access, stalled_access, stalled_before_branch};
use super::effects::{Effects, is_barrier, reads};
use super::expression::Expression;
use super::listing::{Boundary, Listing};
use super::next::next_address;
use super::regs::Regs;
use super::rewind::Rewind;
use super::stride::{Stride, stride};

/// Longest line of instructions that retire together after the fetch of the first one.
const MAX_ENTERED: usize = 6;

/// Reason why an IP gives no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoAddress {
    /// The instruction that ends at the IP is not certain.
    UnknownCode,
    /// A branch leads to the IP, so the instruction before it is not necessarily the last one
    /// executed.
    BranchTarget,
    /// The instruction before the IP is a jump, call, return or trap, so another one was executed
    /// last.
    AfterTransfer,
    /// The instruction accesses no memory.
    NoMemoryOperand,
    /// The address is relative to the fs or gs segment, whose base perf does not sample.
    Segment,
    /// The address is in vector registers, or is not computed in the ordinary way.
    Unaddressable,
    /// A register of the address was overwritten, and its value cannot be recovered.
    Overwritten,
}

impl NoAddress {
    /// Whether the instruction certainly accesses memory. After a branch, another one may have run.
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Segment | Self::Unaddressable | Self::Overwritten)
    }
}

/// Computation of the data address of samples at one IP. Made once by [`analyse`], used for every
/// sample there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Provenance of the address.
    pub provenance: Provenance,
    /// The instruction that stalled; the IP itself if unknown.
    pub accessing_ip: u64,
    /// Stride of that instruction through memory.
    pub stride: Stride,
    /// Whether it writes to memory.
    pub writes: bool,
    /// Reason why there is no address; `None` if there is one.
    pub no_address: Option<NoAddress>,
    /// Whether the instruction is in a function without a frame: the return address is at the stack
    /// pointer. False if unknown.
    pub frameless: bool,
    /// Whether the code may have stalled on its own fetch: a jump leads to the IP, or shortly
    /// before it, and no instruction between reads memory.
    pub may_fetch: bool,
    address: Option<Expression>,
}

impl Recipe {
    /// Returns the address on which a sample with these registers stalled. Costs a few nanoseconds,
    /// without allocation.
    pub fn address(&self, regs: &Regs) -> Option<VirtAddr> {
        self.address.as_ref().map(|address| VirtAddr::new(address.value(regs)))
    }

    /// Returns the recipe of an instruction pointer without an address, for this reason.
    pub fn without_address(ip: u64, no_address: NoAddress) -> Self {
        Self {
            provenance: Provenance::None,
            accessing_ip: ip,
            stride: Stride::Unknown,
            writes: false,
            no_address: Some(no_address),
            frameless: false,
            may_fetch: matches!(no_address, NoAddress::BranchTarget | NoAddress::AfterTransfer),
            address: None,
        }
    }
}

/// Finds the instruction that stalled before a sample at `ip`, and how its address follows from the
/// registers.
///
/// `code` is the memory from `code_start`; `boundary` states whether that is a whole function or a
/// window. A window should include 1 KiB before and a few hundred bytes after. Costs about 50 ns
/// per instruction of `code`, so keep the recipe. Any bytes are accepted: invalid code gives a
/// recipe without an address.
///
/// ```
/// use hugepilot_code::{Boundary, Regs, analyse};
/// use hugepilot_record::Provenance;
///
/// // mov rax, [rdi + rcx*8]; ret
/// let code = [0x48, 0x8b, 0x04, 0xcf, 0xc3];
/// // The load stalled, so the sample has the IP of `ret`.
/// let recipe = analyse(&code, 0x1000, Boundary::Function, 0x1004);
/// assert_eq!((recipe.accessing_ip, recipe.provenance), (0x1000, Provenance::Exact));
///
/// let (mut registers, rcx, rdi) = ([0; 16], 1, 7);
/// (registers[rcx], registers[rdi]) = (3, 0x7000);
/// let address = recipe.address(&Regs::new(0x1004, registers)).expect("an address");
/// assert_eq!(address.get(), 0x7018);
/// ```
pub fn analyse(code: &[u8], code_start: u64, boundary: Boundary, ip: u64) -> Recipe {
    let Some(mut listing) = Listing::around(ip, code, code_start, boundary) else {
        return Recipe::without_address(ip, NoAddress::UnknownCode);
    };
    let mut effects = Effects::new();
    let mut stalled = stalled_access(&listing, &mut effects);
    let mut jumped = false;
    if stalled
        .err()
        .is_some_and(|reason| matches!(reason, NoAddress::BranchTarget | NoAddress::AfterTransfer))
        && let Some(branch) = listing.only_branch_here()
    {
        // The branch is the only way to the IP, and no instruction ran since. The code before the
        // branch continues at the IP.
        listing.here = branch + 1;
        jumped = true;
        stalled = stalled_before_branch(&listing, &mut effects);
    }
    let access = match stalled {
        Ok(access) => access,
        Err(reason) => {
            let recipe = Recipe::without_address(ip, reason);
            let may_fetch = recipe.may_fetch || may_fetch(&listing, code_start, &mut effects);
            return Recipe { may_fetch, ..recipe };
        }
    };
    let computed = past_address(&listing, &access, &mut effects).or_else(|| {
        if access.string_step.is_some() || jumped {
            return None;
        }
        let address = next_address(&listing, &access, &mut effects)?;
        Some((Provenance::Next, address))
    });
    let (provenance, address) = computed.unzip();
    Recipe {
        provenance: provenance.unwrap_or(Provenance::None),
        accessing_ip: listing.instructions[access.at].ip(),
        stride: stride(&listing, &access, &mut effects),
        writes: access.writes,
        no_address: address.is_none().then_some(NoAddress::Overwritten),
        frameless: false,
        may_fetch: !access.reads && may_fetch(&listing, code_start, &mut effects),
        address,
    }
}

/// Whether control entered the straight line to the IP by a jump, and its few instructions read no
/// memory. Writes, as of registers to the stack, wait for nothing.
fn may_fetch(listing: &Listing, code_start: u64, effects: &mut Effects) -> bool {
    let first = listing.line_start(listing.here);
    let line = &listing.instructions[first..listing.here];
    let Some(start) = line.first().map(Instruction::ip) else { return false };
    let is_entered = start == code_start
        || listing.is_target(start)
        || first.checked_sub(1).is_some_and(|before| is_barrier(&listing.instructions[before]));
    let mut may_wait = |instruction: &Instruction| {
        effects.memory(instruction).iter().any(|used| reads(used.access()))
    };
    is_entered && line.len() <= MAX_ENTERED && !line.iter().any(&mut may_wait)
}

/// Returns the accessed address, as far as registers still hold it.
fn past_address(
    listing: &Listing,
    access: &Access,
    effects: &mut Effects,
) -> Option<(Provenance, Expression)> {
    let first = listing.line_start(listing.here).min(access.registers_at);
    let at = access.registers_at - first;
    let mut rewind = Rewind::new(listing, first, effects);
    let intact = rewind.intact(access.place.registers(), at);
    let root = access.place.address(&mut rewind.at(at))?;
    let provenance = if intact { Provenance::Exact } else { Provenance::Recomputed };
    Some((provenance, rewind.into_exprs().finish(root)))
}
