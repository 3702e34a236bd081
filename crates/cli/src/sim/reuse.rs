//! `hugepilot sim reuse`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use hugepilot_reports::sim::KindOfReuse;
use hugepilot_sim::ReuseConfig;
use hugepilot_trace::simulate::{PlacedReuse, reuse};
use hugepilot_units::Share;

use super::source::SourceArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::new_file::Output;
use crate::output::finish_report;

/// Measure the reuse of pages: stack distances, miss-ratio curves, and kinds of pages
///
/// The stack distance is the number of distinct pages since the last use of a page; it decides
/// whether a TLB with LRU replacement still holds it. Kinds follow from the time distance, the
/// accesses in between (Manocha et al., MICRO 2023, section 2.2): a page is TLB-friendly, a HUB
/// (high reuse, TLB-sensitive), for which a huge page pays, or of low reuse.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim reuse --graph kronecker:20 --kernel bfs          HUBs by array
  hugepilot sim reuse --rate 1% --max-accesses 1000000000 -- ./solve
                                                                 a sample of the pages
  hugepilot sim reuse solve.trace --scatter pages.csv            each page, for a plot

Exit status: 0 measured, also if interrupted; 2 error")]
pub(crate) struct ReuseArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Share of the pages whose stack distance is measured, chosen by a hash (SHARDS, FAST 2015)
    #[arg(long, value_name = "SHARE", default_value = "100%")]
    rate: Share,
    /// File for a line of CSV for each base page: process, mapping, ordinal, address, accesses,
    /// mean time distance of the page, of its 2 MiB and of its 1 GiB region (empty if used once),
    /// kind
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    scatter: Option<PathBuf>,
    /// JSON on stdout (schema hugepilot.sim-reuse/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReuseArgs) -> anyhow::Result<Exit> {
    let sources = args.source.sources()?;
    args.source.check_outputs(&[args.scatter.as_deref()])?;
    if args.rate.get() <= 0.0 {
        let help = "sample some of the pages: --rate 1%".to_owned();
        let failure = Failure::new("--rate 0% measures no page", Exit::Error);
        return Err(failure.with_help([help]).into());
    }
    let create = |path| Output::create(path, "the table", "--scatter", true);
    let mut scatter = args.scatter.as_deref().map(create).transpose()?;
    if let Some(file) = &mut scatter {
        file.write_all(b"process,mapping,ordinal,address,accesses,base,huge,giant,kind\n")?;
    }
    let mut files = args.source.files(None)?;
    files.begin_simulated(None)?;
    let config = ReuseConfig { rate: args.rate.get() };
    let report = sources.simulate(|job| {
        reuse(job, config, |page| -> anyhow::Result<()> {
            if let Some(file) = &mut scatter {
                file.write_all(line(&page).as_bytes())?;
            }
            Ok(())
        })
    })?;
    scatter.map(Output::finish).transpose()?;
    files.add_report(&report);
    finish_report(&report, args.json)?;
    files.finish()?;
    Ok(Exit::Yes)
}

/// Line of a page. The name of its mapping is quoted.
fn line(page: &PlacedReuse) -> String {
    let PlacedReuse { process, mapping, ordinal, address, accesses, .. } = page;
    let name = mapping.replace('"', "\"\"");
    let distance = |mean: f64| if mean.is_finite() { format!("{mean:.1}") } else { String::new() };
    let kind = match page.kind {
        KindOfReuse::TlbFriendly => "tlb_friendly",
        KindOfReuse::Hub => "hub",
        KindOfReuse::LowReuse => "low_reuse",
    };
    let [base, huge, giant] = [page.base, page.huge, page.giant].map(distance);
    format!("{process},\"{name}\",{ordinal},{address:#x},{accesses},{base},{huge},{giant},{kind}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_a_line_of_csv() {
        let page = PlacedReuse {
            process: 1,
            mapping: "/a \"b\",c".to_owned(),
            ordinal: 2,
            address: 0x1000,
            accesses: 9,
            base: f64::INFINITY,
            huge: 12.34,
            giant: 2.0,
            kind: KindOfReuse::LowReuse,
        };
        assert_eq!(line(&page), "1,\"/a \"\"b\"\",c\",2,0x1000,9,,12.3,2.0,low_reuse\n");
    }
}
