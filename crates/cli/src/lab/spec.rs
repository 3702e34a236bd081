//! Conversion of the flags to a workload's specification.

use hugepilot_kernel::Pages;
use hugepilot_units::{Bytes, Nanos};
use hugepilot_workload::{
    HashInsertConfig, Hot, HotSetConfig, Layout, MemoryConfig, Pattern, RandomAccessConfig,
    RunConfig, Side, Spec, TlbFriendlyConfig,
};

use super::workload::{
    CommonArgs, HashInsertArgs, HotArg, HotSetArgs, LayoutArg, PagesArg, PatternArg, PlainArgs,
    RandomAccessArgs, SideArg, TlbFriendlyArgs, WorkArgs, Workload,
};

impl Workload {
    /// Converts the flags.
    pub(super) fn into_spec(self) -> (Spec, RunConfig) {
        match self {
            Self::HotSet(args) => (Spec::HotSet(args.config()), args.common.run()),
            Self::PointerChase(args) => (Spec::PointerChase(args.memory()), args.common.run()),
            Self::Gups(args) => (Spec::Gups(args.memory()), args.common.run()),
            Self::HashMap(args) => (Spec::HashMap(args.memory()), args.common.run()),
            Self::HashInsert(args) => (Spec::HashInsert(args.config()), args.run()),
            Self::Tree(args) => (Spec::Tree(args.memory()), args.common.run()),
            Self::Churn(args) => (Spec::Churn(args.memory()), args.common.run()),
            Self::Stream(args) => (Spec::Stream(args.memory()), args.common.run()),
            Self::TlbFriendly(args) => (Spec::TlbFriendly(args.config()), args.plain.common.run()),
            Self::RandomAccess(args) => (Spec::RandomAccess(args.config()), args.common.run()),
            Self::BTree(args) => (Spec::BTree(args.bloated_memory()), args.common.run()),
            Self::BTreeGrown(args) => (Spec::BTreeGrown(args.bloated_memory()), args.common.run()),
            Self::Memcached(args) => (Spec::Memcached(args.bloated_memory()), args.common.run()),
        }
    }
}

impl HotSetArgs {
    fn config(&self) -> HotSetConfig {
        let pattern = match self.pattern {
            PatternArg::Gather => Pattern::Gather,
            PatternArg::Chase => Pattern::Chase,
        };
        let memory = self.common.memory(self.footprint, Pages::Default);
        HotSetConfig { memory, hot: self.hot, pattern }
    }
}

impl PlainArgs {
    fn memory(&self) -> MemoryConfig {
        self.common.memory(self.footprint, Pages::Default)
    }

    /// The memory of a workload with bloat, which exists on huge pages only.
    fn bloated_memory(&self) -> MemoryConfig {
        self.common.memory(self.footprint, Pages::Huge)
    }
}

impl HashInsertArgs {
    fn config(&self) -> HashInsertConfig {
        let pages = pages_or(self.pages, Pages::Default);
        HashInsertConfig { entries: self.entries, pages }
    }

    /// Fills one table once, unless `--seconds` or `--ops` is given.
    fn run(&self) -> RunConfig {
        let mut run = self.work.run();
        if self.work.seconds.is_none() && run.ops.is_none() {
            (run.ops, run.seconds) = (Some(self.entries), None);
        }
        run
    }
}

impl TlbFriendlyArgs {
    fn config(&self) -> TlbFriendlyConfig {
        let (scan, hot_pages) = (self.scan, self.hot_pages);
        TlbFriendlyConfig { memory: self.plain.memory(), scan, hot_pages }
    }
}

impl RandomAccessArgs {
    fn config(&self) -> RandomAccessConfig {
        let side = match self.bloat_side {
            SideArg::Left => Side::Left,
            SideArg::Right => Side::Right,
        };
        let layout = match self.layout {
            LayoutArg::Contiguous => Layout::Contiguous,
            LayoutArg::Scattered => Layout::Scattered,
        };
        let hot = match self.hot {
            HotArg::Uniform => Hot::Uniform,
            HotArg::Bloated => Hot::Bloated,
            HotArg::Dense => Hot::Dense,
        };
        let (memory, bloat) = (self.common.memory(self.footprint, Pages::Huge), self.bloat.clone());
        RandomAccessConfig { memory, bloat, side, layout, hot, skew_percent: self.skew }
    }
}

impl CommonArgs {
    fn memory(&self, footprint: Bytes, default: Pages) -> MemoryConfig {
        MemoryConfig { footprint, pages: pages_or(self.pages, default), seed: self.seed }
    }

    fn run(&self) -> RunConfig {
        RunConfig { announce: self.announce, ..self.work.run() }
    }
}

fn pages_or(requested: Option<PagesArg>, default: Pages) -> Pages {
    match requested {
        None => default,
        Some(PagesArg::Default) => Pages::Default,
        Some(PagesArg::Base) => Pages::Base,
        Some(PagesArg::Huge) => Pages::Huge,
    }
}

impl WorkArgs {
    fn run(&self) -> RunConfig {
        let default = if self.ops.is_some() { None } else { RunConfig::DEFAULT.seconds };
        let seconds = self.seconds.map_or(default, |time| (time > Nanos::ZERO).then_some(time));
        let Self { threads, ops, interval, wait, steps, .. } = *self;
        RunConfig { threads, seconds, ops, interval, announce: false, wait, steps }
    }
}
