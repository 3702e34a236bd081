//! Formats of reports.

use std::fmt;
use std::path::Path;

use clap::ValueEnum;

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for a terminal
    Text,
    /// JSON, schema hugepilot.report/1
    Json,
    /// CSV, a row for each value
    Csv,
    /// Markdown
    Markdown,
    /// OpenMetrics text
    Openmetrics,
    /// SVG of all plots
    Svg,
    /// HTML in one file
    Html,
    /// Profile of pprof
    Pprof,
    /// Folded stacks
    Folded,
}

/// Extensions of file names, with the format that each means.
const EXTENSIONS: [(&str, Format); 13] = [
    (".txt", Format::Text),
    (".json", Format::Json),
    (".csv", Format::Csv),
    (".md", Format::Markdown),
    (".markdown", Format::Markdown),
    (".om", Format::Openmetrics),
    (".prom", Format::Openmetrics),
    (".svg", Format::Svg),
    (".html", Format::Html),
    (".htm", Format::Html),
    (".folded", Format::Folded),
    (".pprof", Format::Pprof),
    (".pb.gz", Format::Pprof),
];

impl Format {
    /// The format that the extension of a file name means.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        EXTENSIONS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| *format)
    }

    /// Whether it has only the stalls by code.
    pub(super) const fn is_profile(self) -> bool {
        matches!(self, Self::Pprof | Self::Folded)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_chooses_the_format() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!(of("a/solve.HTML"), Some(Format::Html));
        assert_eq!(of("solve.pb.gz"), Some(Format::Pprof));
        assert_eq!(of("solve.recording"), None);
        assert_eq!(of(".."), None);
    }
}
