//! Memory that `tune` would not promote, with the help that applies to it.

use hugepilot_record::SkipReason;
use hugepilot_render::sentence::Sentence;
use hugepilot_units::{Bytes, PageSizes};
use serde::Serialize;

use super::SMALL;
use crate::status::{MappingStatus, SkipShare, StatusReport};

/// Memory that is skipped for one reason.
#[derive(Clone, Copy, Serialize)]
#[serde(transparent)]
pub(super) struct Skip<'a> {
    pub(super) share: &'a SkipShare,
    /// Whether the help of the reason is about memory of this process.
    #[serde(skip)]
    has_help: bool,
    /// Its part at the edges of mappings in which a huge page may fit elsewhere.
    #[serde(skip)]
    edges: Bytes,
}

/// The reasons of a report.
pub(super) fn skips(report: &StatusReport) -> impl Iterator<Item = Skip<'_>> {
    report.skips.iter().map(|share| {
        let bytes = |is: fn(&MappingStatus) -> bool| skipped(report, share.code, is);
        let (mut has_help, mut edges) = (true, Bytes::ZERO);
        // It is about small mappings, not about the edges of large ones.
        if share.code == SkipReason::Unaligned {
            has_help = bytes(is_small) >= SMALL;
            edges = bytes(|one| !is_small(one));
        }
        Skip { share, has_help, edges }
    })
}

/// Memory that is skipped for `reason`, in mappings that satisfy `is`.
fn skipped(report: &StatusReport, reason: SkipReason, is: fn(&MappingStatus) -> bool) -> Bytes {
    let of = |mapping: &MappingStatus| mapping.sizes.not_huge_bytes.get(&reason).copied();
    report.mappings.iter().filter(|mapping| is(mapping)).filter_map(of).sum()
}

fn is_small(mapping: &MappingStatus) -> bool {
    mapping.sizes.size_bytes < PageSizes::X86_64.huge
}

impl Sentence for Skip<'_> {
    fn text(&self) -> String {
        let text = self.share.text();
        match self.edges {
            Bytes::ZERO => text,
            edges => format!("{text}; {edges} is in mappings of 2MiB or more"),
        }
    }

    fn help(&self) -> Vec<String> {
        if self.has_help { self.share.help() } else { Vec::new() }
    }
}

/// The line about memory on large pages below the huge page, of all processes; none without such
/// memory.
pub(super) fn large_pages(all: impl IntoIterator<Item = Option<Bytes>>) -> Option<String> {
    let bytes: Bytes = all.into_iter().flatten().sum();
    (!bytes.is_zero())
        .then(|| format!("on large pages that are smaller than a huge page: {bytes}\n"))
}

/// The line about memory that large pages hold and the process does not map, with its help; empty
/// without such memory.
pub(super) fn stranded(report: &StatusReport) -> String {
    let Some(bytes) = report.stranded_bytes.filter(|bytes| !bytes.is_zero()) else {
        return String::new();
    };
    format!(
        "held by large pages and not mapped: {bytes}\nhelp: free it, at no cost to the program: \
         sudo hugepilot debloat -p {}\n",
        report.target.pid
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::text::tests::report;

    #[test]
    fn help_is_about_memory_that_the_process_has() {
        let mut report = report(&[(Bytes::mib(4), Bytes::ZERO)]);
        let (mib, mapping) = (Bytes::mib(1), report.mappings[0].clone());
        let mut has_help = |code, size_bytes| {
            report.skips = vec![SkipShare { code, bytes: mib }];
            let mut mapping = mapping.clone();
            mapping.sizes.size_bytes = size_bytes;
            mapping.sizes.not_huge_bytes.insert(code, mib);
            report.mappings = vec![mapping];
            let skip = skips(&report).next().unwrap();
            let is_edge = code == SkipReason::Unaligned && size_bytes > mib;
            let edges = if is_edge { "; 1MiB is in mappings of 2MiB or more" } else { "" };
            assert_eq!(skip.text(), code.text() + edges);
            assert_eq!(serde_json::to_value(skip).unwrap()["bytes"], mib.get());
            !skip.help().is_empty()
        };
        assert!(!has_help(SkipReason::Unaligned, Bytes::mib(600)), "its edges");
        assert!(has_help(SkipReason::Unaligned, mib));
        assert!(has_help(SkipReason::Mlocked, Bytes::mib(600)));
    }
}
