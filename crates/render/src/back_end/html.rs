//! HTML: one file that needs no network. Tables are markup; plots are drawn by a script of the
//! file, from data in it.

use std::fmt::Write;

use serde_json::{Value, json};

use super::escape::{printable, script_json, xml};
use crate::model::{Block, Cell, Plot, Report, Section, Table};

const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: [&str; 3] = [
    include_str!("../../assets/frame.js"),
    include_str!("../../assets/charts.js"),
    include_str!("../../assets/heat.js"),
];

/// The policy of the page: nothing is loaded from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:";

/// The report as one HTML file.
pub fn html(report: &Report) -> String {
    let mut page = Page { body: String::new(), plots: Vec::new() };
    page.head(report);
    let (overview, others) = report.sections.split_at(overview(&report.sections));
    overview.iter().for_each(|section| page.section(0, section));
    page.navigation(&report.sections);
    for (index, section) in (overview.len()..).zip(others) {
        page.section(index, section);
    }
    page.body.push_str("</main>\n");
    let title = xml(&report.title);
    let mut plots = serde_json::to_value(&page.plots).unwrap_or_default();
    make_printable(&mut plots);
    let data = with_shared_times(plots).to_string();
    let (body, data, script) = (page.body, script_json(&data), SCRIPT.concat());
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"hugepilot\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\
         <script type=\"application/json\" id=\"plots\">{data}</script>\n\
         <script>\n(() => {{\n\"use strict\";\n{script}}})();\n</script>\n</body>\n</html>\n"
    )
}

/// Returns 1 if the first section is about all files or processes, which have sections of their
/// own: it stands before the links to these.
fn overview(sections: &[Section]) -> usize {
    usize::from(matches!(sections, [all, one, ..] if all.group.is_empty() && !one.group.is_empty()))
}

/// Returns plots and their times: most plots have the slices of one process or of the system, so
/// each list of times is there once, and a plot has its index.
fn with_shared_times(mut plots: Value) -> Value {
    let mut lists: Vec<Value> = Vec::new();
    for plot in plots.as_array_mut().into_iter().flatten() {
        let Some(times) = plot.pointer_mut("/chart/times_seconds") else { continue };
        let own = times.take();
        let known = lists.iter().position(|list| *list == own);
        *times = Value::from(known.unwrap_or(lists.len()));
        if known.is_none() {
            lists.push(own);
        }
    }
    json!({ "plots": plots, "times": lists })
}

/// Escapes control characters in all texts of the data.
fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => fields.values_mut().for_each(make_printable),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

struct Page<'a> {
    body: String,
    plots: Vec<&'a Plot>,
}

impl<'a> Page<'a> {
    fn head(&mut self, report: &Report) {
        let _ = write!(self.body, "<header>\n<h1>{}</h1>\n", xml(&report.title));
        for sentence in &report.summary {
            let _ = writeln!(self.body, "<p>{}</p>", xml(sentence));
        }
        self.body.push_str("</header>\n<main>\n");
        self.body.push_str(
            "<noscript><p class=\"warning\">The plots need JavaScript. The tables do not.</p>\
             </noscript>\n",
        );
    }

    /// Links to the sections, a list for those of the same file or process.
    fn navigation(&mut self, sections: &[Section]) {
        self.body.push_str("<nav aria-label=\"Sections\">\n");
        let mut index = 0;
        for group in sections.chunk_by(|a, b| a.group == b.group) {
            self.body.push_str("<ul>\n");
            if let [Section { group, .. }, ..] = group
                && !group.is_empty()
            {
                let _ = writeln!(self.body, "<li><b>{}:</b></li>", xml(group));
            }
            for section in group {
                let name = xml(section.name());
                let _ = writeln!(self.body, "<li><a href=\"#s{index}\">{name}</a></li>");
                index += 1;
            }
            self.body.push_str("</ul>\n");
        }
        self.body.push_str("</nav>\n");
    }

    fn section(&mut self, index: usize, section: &'a Section) {
        let _ = write!(self.body, "<section id=\"s{index}\">\n<h2>{}</h2>\n", xml(&section.title));
        if !section.text.is_empty() {
            let _ = writeln!(self.body, "<p>{}</p>", xml(&section.text));
        }
        for block in &section.blocks {
            match block {
                Block::Table(part) => self.table(section, part),
                Block::Plot(plot) => self.plot(plot),
                Block::Notice(notice) => {
                    let (word, text) = (notice.level.word(), xml(&notice.text));
                    let _ = write!(self.body, "<p class=\"{word}\"><b>{word}:</b> {text}");
                    for help in notice.help.iter().flat_map(|help| help.lines()) {
                        let _ = write!(self.body, "<br>help: {}", xml(help));
                    }
                    self.body.push_str("</p>\n");
                }
                Block::Lines(part) => {
                    let lines: Vec<String> = part.lines.iter().map(|line| xml(line)).collect();
                    let _ = writeln!(self.body, "<p>{}</p>", lines.join("<br>\n"));
                }
            }
        }
        self.body.push_str("</section>\n");
    }

    fn plot(&mut self, plot: &'a Plot) {
        let (index, title, text) = (self.plots.len(), xml(&plot.title), xml(&plot.text));
        if let Some(absence) = plot.absence() {
            let _ = writeln!(self.body, "<p><b>{title}</b> {}</p>", xml(absence));
            return;
        }
        let _ = writeln!(
            self.body,
            "<figure data-plot=\"{index}\"><figcaption><b>{title}</b> {text}</figcaption></figure>"
        );
        self.plots.push(plot);
    }

    fn table(&mut self, section: &Section, table: &Table) {
        self.body.push_str("<div class=\"table\" tabindex=\"0\"><table>\n");
        if table.title != section.name() {
            let _ = writeln!(self.body, "<caption>{}</caption>", xml(&table.title));
        }
        self.body.push_str("<thead><tr>");
        let class = |at: usize| if table.is_number(at) { " class=\"number\"" } else { "" };
        for (at, column) in table.columns.iter().enumerate() {
            let _ = write!(self.body, "<th scope=\"col\"{}>{}</th>", class(at), xml(column));
        }
        self.body.push_str("</tr></thead>\n<tbody>\n");
        for row in &table.rows {
            self.body.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                let _ = match cell {
                    Cell::Missing { missing } => {
                        let missing = xml(missing);
                        write!(self.body, "<td{} title=\"{missing}\">–</td>", class(at))
                    }
                    _ => write!(self.body, "<td{}>{}</td>", class(at), xml(&cell.text())),
                };
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody>\n</table></div>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Notice;

    fn report(title: &str) -> Report {
        let mut report = Report::new(title);
        report
            .add(Section::new("Rounds: all", "").with(Notice::note(format!("a note on {title}"))));
        report
    }

    #[test]
    fn links_stand_in_the_list_of_their_file_whatever_its_name() {
        let files = ["weird: name.rec", "weird: other.rec"];
        let joined = Report::joined(files.map(|name| (name.to_owned(), report(name))).to_vec());
        let page = html(&joined);
        assert!(page.contains("<h1>weird: name.rec and weird: other.rec</h1>"), "{page}");
        for (at, name) in files.iter().enumerate() {
            let link = format!(
                "<ul>\n<li><b>{name}:</b></li>\n<li><a href=\"#s{at}\">Rounds: all</a></li>\n</ul>"
            );
            assert!(page.contains(&link), "{page}");
            assert!(page.contains(&format!("<h2>{name}: Rounds: all</h2>")), "{page}");
        }
        // A colon in a title makes no list.
        let page = html(&Report::joined(vec![(files[0].to_owned(), report("x"))]));
        assert!(page.contains("<li><a href=\"#s0\">Rounds: all</a></li>"), "{page}");
    }

    #[test]
    fn a_section_about_all_files_stands_before_the_links() {
        let joined = ["a", "b"].map(|name| (name.to_owned(), report(name)));
        let mut joined = Report::joined(joined.to_vec());
        let places = |report: &Report| {
            let page = html(report);
            ["<nav", "<h2>Overview", "<h2>a: Rounds"].map(|part| page.find(part))
        };
        let [links, none, first] = places(&joined);
        assert!(none.is_none() && links < first);
        joined.begin_with(Section::new("Overview", "").with(Notice::note("of all")));
        let [links, overview, first] = places(&joined);
        assert!(overview.is_some() && overview < links && links < first);
    }

    #[test]
    fn plots_of_the_same_slices_share_their_times() {
        let plot = |times: &[f64]| json!({ "chart": { "type": "time", "times_seconds": times } });
        let bars = json!({ "chart": { "type": "bars" } });
        let all = json!([plot(&[0.1, 0.2]), bars, plot(&[0.5]), plot(&[0.1, 0.2])]);
        let shared = with_shared_times(all);
        assert_eq!(shared["times"], json!([[0.1, 0.2], [0.5]]));
        let index = |at: usize| &shared["plots"][at]["chart"]["times_seconds"];
        assert_eq!([index(0), index(2), index(3)], [0, 1, 0]);
        assert_eq!(shared["plots"][1], bars);
    }
}
