//! Delivery of pieces to the sink: phases, skipped accesses, windows, limit, interrupt.

use std::ops::ControlFlow;

use hugepilot_record::trace::{TraceAccess, TraceMapping, TracePiece};

use super::{TraceEnd, TraceOptions, TraceSink, TraceStop, TraceWindow};

/// Names of phases in an error.
const MAX_KNOWN: usize = 8;

/// Pieces on their way to the sink.
pub(super) struct Delivery<'a> {
    sink: &'a mut TraceSink<'a>,
    /// Position of the block of the next pieces, if they are of a stored trace.
    pub(super) block: Option<u64>,
    interrupted: &'a dyn Fn() -> bool,
    /// Phase for which it waits.
    from_phase: Option<String>,
    to_phase: Option<String>,
    /// Phases that were not that one.
    known: Vec<String>,
    skip: u64,
    /// Accesses that may still be delivered.
    left: u64,
    window: TraceWindow,
    /// Position in the current period of the window.
    at: u64,
    delivered: u64,
    omitted: u64,
    stop: TraceStop,
}

impl<'a> Delivery<'a> {
    pub(super) fn new<'s: 'a>(
        options: &TraceOptions,
        interrupted: &'a dyn Fn() -> bool,
        sink: &'a mut TraceSink<'s>,
    ) -> Self {
        Self {
            sink,
            block: None,
            interrupted,
            from_phase: options.from_phase.clone(),
            to_phase: options.to_phase.clone(),
            known: Vec::new(),
            skip: options.skip,
            left: options.max_accesses.unwrap_or(u64::MAX),
            window: options.window.unwrap_or(TraceWindow { deliver: u64::MAX, of: u64::MAX }),
            at: 0,
            delivered: 0,
            omitted: 0,
            stop: TraceStop::End,
        }
    }

    /// Ends the source if the user wants it.
    pub(super) fn check(&mut self) -> ControlFlow<()> {
        if self.stop == TraceStop::End && (self.interrupted)() {
            self.stop = TraceStop::Interrupted;
        }
        if self.stop == TraceStop::End { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Delivers the selected part of a piece.
    pub(super) fn piece(&mut self, piece: TracePiece) -> ControlFlow<()> {
        self.check()?;
        match piece {
            TracePiece::Accesses { accesses, .. } if self.from_phase.is_some() => {
                self.omitted += accesses.len() as u64;
                ControlFlow::Continue(())
            }
            TracePiece::Accesses { thread, accesses } => self.accesses(thread, accesses),
            TracePiece::Phase(name) => {
                self.begin_phase(&name)?;
                if self.from_phase.is_some() {
                    return ControlFlow::Continue(());
                }
                self.send(TracePiece::Phase(name))
            }
            other => self.send(other),
        }
    }

    /// Begins or ends the selected part, if it is that of this phase.
    fn begin_phase(&mut self, name: &str) -> ControlFlow<()> {
        if let Some(from) = &self.from_phase {
            if from == name {
                self.from_phase = None;
            } else if self.known.len() < MAX_KNOWN && !self.known.iter().any(|one| one == name) {
                self.known.push(name.to_owned());
            }
        } else if self.to_phase.as_deref() == Some(name) {
            self.stop = TraceStop::Phase;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Returns the phase that did not begin, and some that did.
    pub(super) fn missing_phase(self) -> Option<(String, Vec<String>)> {
        Some((self.from_phase?, self.known))
    }

    /// Delivers mappings after the last access, also if the source is to end.
    pub(super) fn last_mappings(&mut self, mappings: Vec<TraceMapping>) {
        if self.stop != TraceStop::Sink {
            let _ = (self.sink)(TracePiece::Mappings(mappings), self.block);
        }
    }

    fn accesses(&mut self, thread: u16, accesses: Vec<TraceAccess>) -> ControlFlow<()> {
        let selected = self.select(accesses);
        self.delivered += selected.len() as u64;
        self.left -= selected.len() as u64;
        if !selected.is_empty() {
            self.send(TracePiece::Accesses { thread, accesses: selected })?;
        }
        if self.left == 0 {
            self.stop = TraceStop::MaxAccesses;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Returns the selected part of `accesses`. In the usual case that is the same vector.
    fn select(&mut self, mut accesses: Vec<TraceAccess>) -> Vec<TraceAccess> {
        let seen = accesses.len() as u64;
        let skipped = self.skip.min(seen);
        self.skip -= skipped;
        let rest = seen - skipped;
        let is_whole = self.window.deliver == u64::MAX && rest <= self.left;
        if !(skipped == 0 && is_whole) {
            let (mut skipped, mut left) = (skipped, self.left);
            accesses.retain(|_| {
                if skipped > 0 {
                    skipped -= 1;
                    return false;
                }
                let is_inside = self.at < self.window.deliver && left > 0;
                self.at = (self.at + 1) % self.window.of;
                left -= u64::from(is_inside);
                is_inside
            });
        }
        self.omitted += seen - accesses.len() as u64;
        accesses
    }

    fn send(&mut self, piece: TracePiece) -> ControlFlow<()> {
        let flow = (self.sink)(piece, self.block);
        if flow.is_break() {
            self.stop = TraceStop::Sink;
        }
        flow
    }

    /// Returns the end of the trace.
    pub(super) const fn end(&self) -> TraceEnd {
        TraceEnd::new(self.stop, self.delivered, self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(addresses: std::ops::Range<u64>) -> TracePiece {
        let access = |address| TraceAccess { address, store: false };
        TracePiece::Accesses { thread: 0, accesses: addresses.map(access).collect() }
    }

    /// Delivers 0 to 99 in pieces of 7, and returns the received addresses.
    fn deliver(options: &TraceOptions, interrupted: &dyn Fn() -> bool) -> (Vec<u64>, TraceEnd) {
        let mut received = Vec::new();
        let mut sink = |piece, _| {
            if let TracePiece::Accesses { accesses, .. } = piece {
                received.extend(accesses.iter().map(|access| access.address));
            }
            ControlFlow::Continue(())
        };
        let mut delivery = Delivery::new(options, interrupted, &mut sink);
        for start in (0..100).step_by(7) {
            if delivery.piece(piece(start..(start + 7).min(100))).is_break() {
                break;
            }
        }
        let end = delivery.end();
        assert_eq!(end.delivered, received.len() as u64);
        (received, end)
    }

    #[test]
    fn skip_window_and_limit_select_accesses() {
        let table = [
            ((0, None, None), (0..100).collect::<Vec<u64>>()),
            ((13, None, None), (13..100).collect()),
            ((0, Some(20), None), (0..20).collect()),
            ((13, Some(20), None), (13..33).collect()),
            ((0, None, Some((3, 10))), (0..100).filter(|n| n % 10 < 3).collect()),
            ((5, Some(7), Some((3, 10))), vec![5, 6, 7, 15, 16, 17, 25]),
            ((200, None, None), vec![]),
        ];
        for ((skip, max_accesses, window), expected) in table {
            let window = window.map(|(deliver, of)| TraceWindow { deliver, of });
            let options = TraceOptions { skip, max_accesses, window, ..TraceOptions::default() };
            let (received, end) = deliver(&options, &|| false);
            assert_eq!(received, expected, "{options:?}");
            let stop = if max_accesses.is_some() { TraceStop::MaxAccesses } else { TraceStop::End };
            assert_eq!(end.stop, stop, "{options:?}");
        }
    }

    /// Phases 0 to 4, five accesses each, twice.
    #[test]
    fn phases_select_accesses() {
        let selected = |from: Option<&str>, to: Option<&str>, skip| {
            let (mut received, mut last) = (Vec::new(), None);
            let mut sink = |piece, _| {
                match piece {
                    TracePiece::Accesses { accesses, .. } => {
                        received.extend(accesses.iter().map(|access| access.address));
                    }
                    TracePiece::Phase(name) => last = Some(name),
                    _ => {}
                }
                ControlFlow::Continue(())
            };
            let [from_phase, to_phase] = [from, to].map(|name| name.map(str::to_owned));
            let options = TraceOptions { from_phase, to_phase, skip, ..TraceOptions::default() };
            let mut delivery = Delivery::new(&options, &|| false, &mut sink);
            let _ = (0..10).try_for_each(|phase| {
                delivery.piece(TracePiece::Phase((phase % 5).to_string()))?;
                delivery.piece(piece(phase * 5..phase * 5 + 5))
            });
            let (end, missing) = (delivery.end(), delivery.missing_phase());
            assert!(to.is_none() || last.as_deref() != to, "the end phase is not in the trace");
            (received, end.omitted, end.stop, missing)
        };
        let none = || None::<(String, Vec<String>)>;
        let all = |range: std::ops::Range<u64>| range.collect::<Vec<u64>>();
        let (end, phase) = (TraceStop::End, TraceStop::Phase);
        assert_eq!(selected(Some("3"), None, 0), (all(15..50), 15, end, none()));
        assert_eq!(selected(Some("3"), Some("0"), 0), (all(15..25), 15, phase, none()));
        assert_eq!(selected(Some("1"), Some("1"), 7), (all(12..30), 12, phase, none()));
        assert_eq!(selected(None, Some("2"), 0), (all(0..10), 0, phase, none()));
        assert_eq!(selected(None, Some("x"), 0), (all(0..50), 0, end, none()));
        let known = ["0", "1", "2", "3", "4"].map(str::to_owned).to_vec();
        let missing = Some(("x".to_owned(), known));
        assert_eq!(selected(Some("x"), None, 0), (vec![], 50, end, missing));
    }

    #[test]
    fn last_mappings_are_delivered_unless_the_sink_has_enough() {
        for (flow, pieces) in [(ControlFlow::Continue(()), 2), (ControlFlow::Break(()), 1)] {
            let mut received = Vec::new();
            let mut sink = |piece, _| {
                received.push(piece);
                flow
            };
            let options = TraceOptions { max_accesses: Some(3), ..TraceOptions::default() };
            let mut delivery = Delivery::new(&options, &|| false, &mut sink);
            assert!(delivery.piece(piece(0..7)).is_break());
            delivery.last_mappings(Vec::new());
            assert_eq!(received.len(), pieces, "{received:?}");
        }
    }

    #[test]
    fn an_interrupt_and_the_sink_end_the_source() {
        let (received, end) = deliver(&TraceOptions::default(), &|| true);
        assert_eq!((received.len(), end.stop), (0, TraceStop::Interrupted));
        let mut sink = |_, _| ControlFlow::Break(());
        let mut delivery = Delivery::new(&TraceOptions::default(), &|| false, &mut sink);
        assert!(delivery.piece(piece(0..7)).is_break());
        assert!(delivery.piece(piece(7..9)).is_break());
        assert_eq!((delivery.end().stop, delivery.end().delivered), (TraceStop::Sink, 7));
    }
}
