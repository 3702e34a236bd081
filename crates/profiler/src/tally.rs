//! Tally: the samples of a sampler by provenance, of all processes and of each wanted one.

use hashbrown::HashMap;
use hugepilot_code::NoAddress;
use hugepilot_record::{Pid, Provenance, ProvenanceCounts};

/// Processes that have counts of their own, if all are wanted. A build starts tens of thousands.
const MAX_COUNTED: usize = 4096;

/// Counts of a sampler, and the processes that it is to sample.
pub(crate) struct Tally {
    all: ProvenanceCounts,
    /// Counts of each process.
    counts: HashMap<Pid, ProvenanceCounts>,
    /// Whether only the processes that have counts from the start are wanted.
    is_bounded: bool,
}

impl Tally {
    /// Makes a tally that wants these processes, or all.
    pub(crate) fn new(wanted: Option<&[Pid]>) -> Self {
        let (pids, is_bounded) = (wanted.unwrap_or_default(), wanted.is_some());
        let counts = pids.iter().map(|&pid| (pid, ProvenanceCounts::default())).collect();
        Self { all: ProvenanceCounts::default(), counts, is_bounded }
    }

    /// Whether only the given processes are wanted.
    pub(crate) const fn is_bounded(&self) -> bool {
        self.is_bounded
    }

    /// Whether samples of `pid` are wanted: not those of a child that inherited an event.
    pub(crate) fn wants(&self, pid: Pid) -> bool {
        !self.is_bounded || self.counts.contains_key(&pid)
    }

    /// Counts a sample of a wanted process.
    pub(crate) fn count(
        &mut self,
        pid: Pid,
        provenance: Provenance,
        no_address: Option<NoAddress>,
    ) {
        if !self.is_bounded && self.counts.len() < MAX_COUNTED {
            self.counts.entry(pid).or_default();
        }
        let of = self.counts.get_mut(&pid);
        for counts in of.into_iter().chain([&mut self.all]) {
            counts.count(provenance);
            counts.undecoded += u64::from(no_address == Some(NoAddress::UnknownCode));
            counts.unresolved += u64::from(no_address.is_some_and(NoAddress::is_access));
        }
    }

    /// Counts samples that the kernel lost.
    pub(crate) const fn lose(&mut self, samples: u64) {
        self.all.lost += samples;
    }

    /// Counts a time that the kernel slowed the event down.
    pub(crate) const fn throttle(&mut self) {
        self.all.throttled += 1;
    }

    /// Returns the counts of all processes together.
    pub(crate) const fn all(&self) -> ProvenanceCounts {
        self.all
    }

    /// Returns the counts of `pid`, with the losses of all processes together, which share the
    /// rings; `None` for one without.
    pub(crate) fn of(&self, pid: Pid) -> Option<ProvenanceCounts> {
        let counts = self.counts.get(&pid)?;
        Some(ProvenanceCounts { lost: self.all.lost, throttled: self.all.throttled, ..*counts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wanted_process_has_counts_of_its_own_and_the_losses_of_all() {
        let mut tally = Tally::new(Some(&[Pid(1), Pid(2)]));
        assert!(tally.wants(Pid(2)) && !tally.wants(Pid(3)));
        tally.count(Pid(1), Provenance::Exact, None);
        tally.count(Pid(2), Provenance::None, Some(NoAddress::UnknownCode));
        tally.count(Pid(2), Provenance::None, Some(NoAddress::NoMemoryOperand));
        tally.count(Pid(2), Provenance::None, Some(NoAddress::Overwritten));
        tally.lose(5);
        tally.throttle();
        let counts = |counts: ProvenanceCounts| {
            (counts.total(), counts.undecoded, counts.unresolved, counts.lost, counts.throttled)
        };
        assert_eq!(counts(tally.all()), (4, 1, 1, 5, 1));
        assert_eq!(counts(tally.of(Pid(1)).unwrap()), (1, 0, 0, 5, 1));
        assert_eq!(counts(tally.of(Pid(2)).unwrap()), (3, 1, 1, 5, 1));
        assert_eq!(tally.of(Pid(3)), None);
    }

    #[test]
    fn without_a_list_all_are_wanted_and_counted() {
        let mut tally = Tally::new(None);
        tally.count(Pid(7), Provenance::Next, None);
        tally.count(Pid(8), Provenance::Next, None);
        assert!(tally.wants(Pid(9)) && !tally.is_bounded());
        let total = |pid| tally.of(Pid(pid)).map(|counts| counts.total());
        assert_eq!((tally.all().total(), total(7), total(9)), (2, Some(1), None));
    }
}
