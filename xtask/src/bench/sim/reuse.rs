//! Kinds of page reuse by array: Figure 2.

use anyhow::Result;
use hugepilot_reports::sim::{KindOfReuse, KindShare, MappingReuse, SimReuseReport};
use serde::{Deserialize, Serialize};

use super::options::{Kernel, Order};
use super::record::Row;
use super::runner::{Bench, Made};
use super::table::{rounded_all, share};

pub(super) const METHOD: &str = "\
Base pages of each array by kind (Figure 2): TLB-friendly below a mean time distance of 1024
accesses, HUB if only that of its 2 MiB region is below, low reuse otherwise. Shares are those of
the pages of the array.";

pub(super) const HEAD: [&str; 8] =
    ["kernel", "order", "array", "pages", "share of accesses", "TLB-friendly", "HUB", "low reuse"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) kernel: String,
    pub(super) order: String,
    /// Array; `all` for all of them.
    pub(super) array: String,
    pub(super) pages: u64,
    pub(super) access_ratio: f64,
    pub(super) friendly_ratio: f64,
    pub(super) hub_ratio: f64,
    pub(super) low_ratio: f64,
}

impl Line {
    #[allow(clippy::cast_precision_loss)]
    fn of(kernel: &str, order: &str, array: &str, kinds: &[KindShare], accesses: u64) -> Self {
        let pages: u64 = kinds.iter().map(|kind| kind.pages).sum();
        let own: u64 = kinds.iter().map(|kind| kind.accesses).sum();
        let of = |wanted: KindOfReuse| {
            let of_kind = kinds.iter().filter(|kind| kind.kind == wanted);
            share(of_kind.map(|kind| kind.pages).sum::<u64>() as f64, pages as f64)
        };
        Self {
            kernel: kernel.to_owned(),
            order: order.to_owned(),
            array: array.to_owned(),
            pages,
            access_ratio: share(own as f64, accesses as f64),
            friendly_ratio: of(KindOfReuse::TlbFriendly),
            hub_ratio: of(KindOfReuse::Hub),
            low_ratio: of(KindOfReuse::LowReuse),
        }
    }

    pub(super) fn cells(&self) -> Vec<String> {
        let ratios = [self.access_ratio, self.friendly_ratio, self.hub_ratio, self.low_ratio];
        let mut cells = [&self.kernel, &self.order, &self.array].map(String::clone).to_vec();
        cells.push(self.pages.to_string());
        cells.extend(ratios.map(|ratio| rounded_all([ratio])));
        cells
    }
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<()> {
    let orders = bench.options.orders();
    let with = |&kernel: &Kernel| orders.iter().map(move |&order| (kernel, order));
    let items: Vec<_> = bench.options.kernels.iter().flat_map(with).collect();
    bench.each(&items, |&(kernel, order)| run(bench, kernel, order))
}

fn run(bench: &Bench<'_>, kernel: Kernel, order: Order) -> Result<Vec<Made>> {
    let flags = format!("reuse {}", bench.graph(kernel.name(), order));
    let ran = bench.sim::<SimReuseReport>(&flags, &[])?;
    let SimReuseReport { input, kinds, per_mapping, .. } = ran.report;
    let line = |array: &str, kinds: &[KindShare]| {
        let line = Line::of(kernel.name(), order.name(), array, kinds, input.accesses);
        (ran.command.clone(), Row::Reuse(line))
    };
    let of = |one: &MappingReuse| line(&one.mapping, &one.kinds);
    Ok([line("all", &kinds)].into_iter().chain(per_mapping.iter().map(of)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_pages() {
        let kind = |kind, pages, accesses| KindShare { kind, pages, accesses };
        let kinds = [kind(KindOfReuse::Hub, 3, 30), kind(KindOfReuse::LowReuse, 1, 10)];
        let line = Line::of("bfs", "dbg", "edges", &kinds, 80);
        assert_eq!(line.cells(), ["bfs", "dbg", "edges", "4", "50 %", "0 %", "75 %", "25 %"]);
        assert_eq!(Line::of("bfs", "dbg", "edges", &[], 80).cells()[5], "-");
    }
}
