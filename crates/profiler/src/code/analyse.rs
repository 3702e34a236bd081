//! What can be known about one IP, found out once.

use hugepilot_record::Provenance;
use hugepilot_units::VirtAddr;

use super::access::{Access, waiting, waiting_before_branch};
use super::effects::Effects;
use super::expression::Expression;
use super::listing::{Boundary, Listing};
use super::next::next_address;
use super::regs::Regs;
use super::rewind::Rewind;
use super::stride::{Stride, stride};

/// Why an IP gives no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoAddress {
    /// It is not certain which instruction ends at the IP.
    UnknownCode,
    /// A branch leads to the IP, so the instruction before it need not be the one that ran.
    BranchTarget,
    /// The instruction before the IP is a jump, call, return or trap: another one ran last.
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

/// How to get the data address of a sample at one IP. Made once by [`analyse`], used for every sample there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// How the address is found.
    pub provenance: Provenance,
    /// The instruction that was waiting; the IP itself when that is unknown.
    pub accessing_ip: u64,
    /// How that instruction walks through memory.
    pub stride: Stride,
    /// Whether it writes there.
    pub writes: bool,
    /// Why there is no address; `None` when there is one.
    pub refusal: Option<NoAddress>,
    address: Option<Expression>,
}

impl Recipe {
    /// The address that a sample with these registers waited for. Costs a few nanoseconds and no memory.
    pub fn address(&self, regs: &Regs) -> Option<VirtAddr> {
        self.address.as_ref().map(|address| VirtAddr::new(address.value(regs)))
    }

    fn refused(ip: u64, refusal: NoAddress) -> Self {
        Self {
            provenance: Provenance::None,
            accessing_ip: ip,
            stride: Stride::Unknown,
            writes: false,
            refusal: Some(refusal),
            address: None,
        }
    }
}

/// Finds the instruction that a sample at `ip` waited for, and how its address follows from the registers.
///
/// `code` is what lies in memory from `code_start`; whether that is a whole function or just a window is said by
/// `boundary`. A window should reach back 1 KiB and forward a few hundred bytes. Costs about 50 ns per instruction
/// of `code`, so keep the recipe. Any bytes will do: what makes no sense gives a recipe without an address.
pub fn analyse(code: &[u8], code_start: u64, boundary: Boundary, ip: u64) -> Recipe {
    let Some(mut listing) = Listing::around(ip, code, code_start, boundary) else {
        return Recipe::refused(ip, NoAddress::UnknownCode);
    };
    let mut effects = Effects::new();
    let mut waited = waiting(&listing, &mut effects);
    let mut jumped = false;
    if waited.err().is_some_and(|refusal| {
        matches!(refusal, NoAddress::BranchTarget | NoAddress::AfterTransfer)
    }) && let Some(branch) = listing.only_branch_here()
    {
        // There is one way here only, and nothing ran since: the line that leads to the branch goes on at the IP.
        listing.here = branch + 1;
        jumped = true;
        waited = waiting_before_branch(&listing, &mut effects);
    }
    let access = match waited {
        Ok(access) => access,
        Err(refusal) => return Recipe::refused(ip, refusal),
    };
    let found = past_address(&listing, &access, &mut effects).or_else(|| {
        if access.string_step.is_some() || jumped {
            return None;
        }
        let address = next_address(&listing, &access, &mut effects)?;
        Some((Provenance::Next, address))
    });
    let (provenance, address) = found.unzip();
    Recipe {
        provenance: provenance.unwrap_or(Provenance::None),
        accessing_ip: listing.instructions[access.at].ip(),
        stride: stride(&listing, &access, &mut effects),
        writes: access.writes,
        refusal: address.is_none().then_some(NoAddress::Overwritten),
        address,
    }
}

/// The address that was accessed, as far as the registers still tell.
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
