//! Feeds: pieces of the sources, each from a thread of its own.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use hugepilot_record::trace::{TraceAccess, TraceMapping, TracePiece};

use super::{AccessSource, pattern};
use crate::TraceError;
use crate::source::{self, TraceEnd, TraceOptions};

/// Pieces of a source that wait. Those of a pattern have 1 MiB, and few of them stay in the CPU's
/// cache.
const WAITING: usize = 16;
const WAITING_OF_PATTERN: usize = 1;

/// All mappings of a process from here on.
pub(super) struct NewMappings {
    pub(super) all: Vec<TraceMapping>,
    /// Position of the block, in a stored trace.
    pub(super) at: Option<u64>,
    /// Accesses of the source before them.
    pub(super) accesses: u64,
}

/// Pieces of one source.
pub(super) struct Feed {
    receiver: Receiver<(TracePiece, Option<u64>)>,
    /// Mappings before the next access.
    mappings: Option<NewMappings>,
    /// Threads that have ended before the next access.
    ended: Vec<u16>,
    thread: u16,
    accesses: Vec<TraceAccess>,
    taken: usize,
    /// Accesses that were taken so far.
    all_taken: u64,
    is_over: bool,
}

impl Feed {
    /// Waits until accesses or mappings are there, or the source is over. Mappings do not wait for
    /// accesses: a trace may have any number of them in between.
    fn wait(&mut self) {
        while self.taken == self.accesses.len() && self.mappings.is_none() && !self.is_over {
            match self.receiver.recv() {
                Ok((TracePiece::Accesses { thread, accesses }, _)) => {
                    (self.thread, self.accesses, self.taken) = (thread, accesses, 0);
                }
                Ok((TracePiece::Mappings(all), at)) => {
                    self.mappings = Some(NewMappings { all, at, accesses: self.all_taken });
                }
                Ok((TracePiece::ThreadEnd(thread), _)) => self.ended.push(thread),
                Ok((TracePiece::Phase(_), _)) => {}
                Err(_) => self.is_over = true,
            }
        }
    }

    /// Takes the mappings that precede the next access.
    pub(super) fn mappings(&mut self) -> Option<NewMappings> {
        self.mappings.take()
    }

    /// Takes the threads that have ended before the next access.
    pub(super) fn ended(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.ended)
    }

    /// Returns the next accesses, at most `most`, and their thread.
    pub(super) fn accesses(&mut self, most: usize) -> Option<(u16, &[TraceAccess])> {
        let left = &self.accesses[self.taken..];
        let taken = left.len().min(most);
        self.taken += taken;
        self.all_taken += taken as u64;
        (taken > 0).then(|| (self.thread, &left[..taken]))
    }
}

/// All sources, in turn.
pub(super) struct Feeds<'scope> {
    feeds: Vec<Feed>,
    threads: Vec<ScopedJoinHandle<'scope, Result<TraceEnd, TraceError>>>,
    turn: usize,
}

impl<'scope> Feeds<'scope> {
    /// Starts a thread for each source.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        sources: &'env [AccessSource],
        options: &'env TraceOptions,
        interrupted: &'env (dyn Fn() -> bool + Sync),
    ) -> Self {
        let (mut feeds, mut threads) = (Vec::new(), Vec::new());
        for source in sources {
            let is_pattern = matches!(source, AccessSource::Pattern(..));
            let waiting = if is_pattern { WAITING_OF_PATTERN } else { WAITING };
            let (sender, receiver) = sync_channel(waiting);
            threads.push(scope.spawn(move || deliver(source, options, interrupted, &sender)));
            feeds.push(Feed {
                receiver,
                mappings: None,
                ended: Vec::new(),
                thread: 0,
                accesses: Vec::new(),
                taken: 0,
                all_taken: 0,
                is_over: false,
            });
        }
        Self { feeds, threads, turn: 0 }
    }

    /// Returns the process that is next, if one has accesses or mappings left.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn next_process(&mut self) -> Option<u16> {
        for _ in 0..self.feeds.len() {
            self.turn = (self.turn + 1) % self.feeds.len();
            let feed = &mut self.feeds[self.turn];
            feed.wait();
            if !feed.is_over || feed.mappings.is_some() {
                return Some(self.turn as u16);
            }
        }
        None
    }

    /// Returns the feed of a process.
    pub(super) fn of(&mut self, process: u16) -> Option<&mut Feed> {
        self.feeds.get_mut(usize::from(process))
    }

    /// Returns the ends of all sources.
    pub(super) fn finish(self) -> Result<Vec<TraceEnd>, TraceError> {
        drop(self.feeds);
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        self.threads.into_iter().map(join).collect()
    }
}

fn deliver(
    source: &AccessSource,
    options: &TraceOptions,
    interrupted: &(dyn Fn() -> bool + Sync),
    sender: &SyncSender<(TracePiece, Option<u64>)>,
) -> Result<TraceEnd, TraceError> {
    let mut sink = |piece, at| match sender.send((piece, at)) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    match source {
        AccessSource::Trace(source) => source::trace(source, options, &|| interrupted(), &mut sink),
        AccessSource::Pattern(rule, seed) => {
            let end = source::select(options, &|| interrupted(), &mut sink, |sink| {
                pattern(*rule, *seed, sink);
            });
            // A pattern has no end, so what it makes beyond the limit is not omitted.
            Ok(TraceEnd { omitted: 0, ..end })
        }
    }
}
