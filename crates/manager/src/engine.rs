//! Engine: observe → snapshot → decide → act → verify, in rounds: the one loop of all controllers.
//!
//! A [`Controller`] knows when its next decision is due, reads what the decision needs, decides by
//! [`hugepilot_policy`], and acts by [`crate::act`] under its stop rule. The one in `tuning`
//! promotes the regions that pay. The one in `splits` frees bloat, for `debloat` and the daemon.
//! The engine depends on the machine only through [`World`], so that tests run the same loop. The
//! simulators of crate `sim` do not run it: their rounds begin by the same code of `policy`, in
//! simulated time.

mod due;
mod known_mappings;
pub mod live;
pub(crate) mod splits;
#[cfg(test)]
pub(crate) mod tests;
pub mod tuning;
mod until;
mod world;

use hugepilot_units::Nanos;

use tuning::Tuning;
pub use world::{NeededRegions, Scope, TuneWorld, World};

/// Controller of an engine: the steps of its rounds.
pub trait Controller<W: World>: Sized {
    /// Everything that a decision depends on, besides the past that the controller keeps.
    type Snapshot;
    /// Decision about a snapshot.
    type Decision;
    /// Snapshot, decision, and the outcomes of its acts.
    type Round;
    /// Error that ends the rounds.
    type Error;

    /// Returns the time of the next decision; `None` if there is none any more.
    fn due(engine: &mut Engine<W, Self>) -> Option<Nanos>;
    /// Samples until `end`, or until the next decision is due earlier.
    fn observe(engine: &mut Engine<W, Self>, end: Nanos) {
        engine.world.observe(end);
    }
    /// Reads what is due; `None` if nothing is.
    ///
    /// # Errors
    /// What the decision requires cannot be read.
    fn snapshot(engine: &mut Engine<W, Self>) -> Result<Option<Self::Snapshot>, Self::Error>;
    /// Decides. Depends on the snapshot and on the past only.
    fn decide(&self, snapshot: &Self::Snapshot) -> Self::Decision;
    /// Acts and verifies until the stop rule of the controller ends that. Promotions end at `end`.
    ///
    /// # Errors
    /// What the stop rule depends on cannot be read.
    fn act(
        engine: &mut Engine<W, Self>,
        snapshot: Self::Snapshot,
        decision: Self::Decision,
        end: Nanos,
    ) -> Result<Self::Round, Self::Error>;
}

/// The loop, with its controller.
pub struct Engine<W, C = Tuning> {
    /// The machine.
    pub world: W,
    pub(crate) controller: C,
}

impl<W: World, C: Controller<W>> Engine<W, C> {
    /// Observes until a decision is due, and runs its round. Returns `None` if that is not before
    /// `end`, or if nothing more can change. Promotions of the round end at `acts_end`.
    ///
    /// # Errors
    /// What a decision requires cannot be read.
    pub fn round(&mut self, end: Nanos, acts_end: Nanos) -> Result<Option<C::Round>, C::Error> {
        while let Some(due) = C::due(self) {
            let now = self.world.now();
            if now >= end {
                break;
            }
            if due > now {
                C::observe(self, due.min(end));
            } else if let Some(snapshot) = C::snapshot(self)? {
                return self.run(snapshot, acts_end).map(Some);
            }
        }
        Ok(None)
    }

    fn run(&mut self, snapshot: C::Snapshot, acts_end: Nanos) -> Result<C::Round, C::Error> {
        let decision = self.controller.decide(&snapshot);
        C::act(self, snapshot, decision, acts_end)
    }
}
