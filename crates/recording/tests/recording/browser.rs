//! The HTML in a headless Chromium, without a network.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use hugepilot_recording::{Window, recording_report};
use hugepilot_render::back_end;
use hugepilot_render::model::{
    Area, Chart, HeatCell, HeatMap, HeatRow, Mark, Plot, Report, Section, TimeLine, TimePlot, Unit,
};
use hugepilot_testkit::{need, requires};
use serde_json::json;

use crate::example;

/// Script that a test adds to the page: it hovers each plot, and writes the outcome into the page.
const PROBE: &str = r#"<script>
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
// Width of the widest thing that a plot over time draws.
const drawn = (figure) => Math.max(0, ...[...figure.querySelectorAll("figure > svg > :is(path, .point)")]
  .map((shape) => shape.getBBox().width));
const legendShades = (figure) => [...figure.querySelectorAll(".legend rect:first-child")]
  .map((rect) => rect.style.fill.replaceAll(" ", ""));
// Colours of the first row of a heat map from left to right.
const rowShades = (figure) => {
  const canvas = figure.querySelector("canvas"), found = [];
  if (!canvas) return found;
  const factor = canvas.height / parseFloat(canvas.style.height), y = Math.round(45 * factor);
  const row = canvas.getContext("2d").getImageData(0, y, canvas.width, 1).data;
  for (let at = 0; at < row.length; at += 4) {
    const shade = `rgb(${row[at]},${row[at + 1]},${row[at + 2]})`;
    if (row[at + 3] === 255 && shade !== found[found.length - 1]) found.push(shade);
  }
  return found;
};
addEventListener("load", () => {
  const tips = [], keys = [], legends = [], shades = [], widths = [], marks = [];
  for (const figure of document.querySelectorAll("figure[data-plot]")) {
    const target = figure.querySelector("canvas") || figure.querySelector("figure > svg");
    const rect = target.getBoundingClientRect();
    let shown = "";
    for (let y = 5; y < rect.height && !/sample|:/.test(shown); y += 7) {
      target.dispatchEvent(new PointerEvent("pointermove",
        { clientX: rect.left + rect.width * 0.4, clientY: rect.top + y, bubbles: true }));
      const tip = figure.querySelector(".tip");
      if (tip && !tip.hidden) shown = tip.textContent;
    }
    tips.push(shown.replaceAll("\n", " / "));
    legends.push([...figure.querySelectorAll(".legend li")].map((item) => item.textContent));
    widths.push(drawn(figure));
    marks.push([...figure.querySelectorAll(".markname, .marks li")].map((item) => item.textContent));
    shades.push([legendShades(figure), rowShades(figure)]);
    const press = (key) => {
      target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      const tip = figure.querySelector(".tip");
      return Boolean(tip) && !tip.hidden;
    };
    target.focus();
    keys.push([document.activeElement === target, press("ArrowRight"), press("Escape")]);
  }
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({ tips, keys, legends, shades, widths, marks, wide: document.documentElement.scrollWidth,
    width: innerWidth, requests: performance.getEntriesByType("resource").length,
    error: document.body.dataset.error || null });
  document.body.appendChild(out);
});
</script>"#;

/// Runs Chromium on `page` with a window this wide, and returns what the probe wrote.
fn probe(page: &str, width: u32, is_dark: bool) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    fs::write(&file, page.replacen("<script>", &format!("{PROBE}<script>"), 1)).unwrap();
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={}", u32::from(!is_dark)))
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{}", file.display()));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let child = command.spawn().unwrap();
    let pid = child.id();
    let watchdog = thread::spawn(move || child.wait_with_output().unwrap());
    for _ in 0..600 {
        if watchdog.is_finished() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    if !watchdog.is_finished() {
        let _ = Command::new("kill").arg(pid.to_string()).status();
        panic!("chromium did not end");
    }
    let output = watchdog.join().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    let messages: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(messages.is_empty(), "{messages:?}");
    let dom = String::from_utf8_lossy(&output.stdout);
    let text = dom.split_once("<pre id=\"probe\">").expect("the probe ran").1;
    let text = text.split_once("</pre>").unwrap().0;
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_browser_shows_values_without_errors_or_a_network() {
    requires!(need::program("chromium"));
    let hostile = "x</script><script>document.body.dataset.error='injected'</script>\u{202e}";
    for (name, width, is_dark) in
        [("solve", 1280, false), ("solve", 400, true), (hostile, 1280, true)]
    {
        let timeline = example::timeline(10, name, Window::default());
        let page = back_end::html(&recording_report(&timeline, name));
        let found = probe(&page, width, is_dark);
        assert_eq!(found["error"], serde_json::Value::Null, "{found}");
        assert_eq!(found["requests"], 0, "{found}");
        let tips = found["tips"].as_array().unwrap();
        assert!(tips.len() >= 6, "{found}");
        assert!(tips.iter().all(|tip| tip.as_str().is_some_and(|tip| !tip.is_empty())), "{found}");
        assert!(tips[0].as_str().unwrap().contains("sample"), "the heat map: {found}");
        // Focus, a value after an arrow key, none after Escape.
        let keys = found["keys"].as_array().unwrap();
        let by_keys = serde_json::json!([true, true, false]);
        assert!(keys.len() == tips.len() && keys.iter().all(|key| *key == by_keys), "{found}");
        assert!(found["wide"].as_f64() <= found["width"].as_f64(), "{width}: {found}");
    }
}

#[test]
fn a_line_with_the_name_of_its_plot_has_no_legend() {
    requires!(need::program("chromium"));
    let plot = |line: &str| {
        let line = TimeLine { name: line.to_owned(), values: vec![Some(1.0), Some(2.0)] };
        let (unit, stacked, times_seconds) = (Unit::Bytes, false, vec![0.1, 0.2]);
        let (lines, marks) = (vec![line], Vec::new());
        let chart = Chart::Time(TimePlot { unit, stacked, times_seconds, lines, marks });
        Plot { title: "rss_bytes".to_owned(), text: String::new(), chart }
    };
    let report = |lines: &[&str]| {
        let mut report = Report::new("Memory");
        let section = Section::new("Memory", "");
        report.add(lines.iter().fold(section, |section, line| section.with(plot(line))));
        report
    };
    let found = probe(&back_end::html(&report(&["rss_bytes", "thp_bytes"])), 1280, false);
    assert_eq!(found["legends"], json!([[], ["thp_bytes"]]), "{found}");
    for (line, count) in [("rss_bytes", 0), ("thp_bytes", 1)] {
        let svg = back_end::svg(&report(&[line]));
        assert_eq!(svg.matches(">rss_bytes<").count(), 1, "the title: {svg}");
        assert_eq!(svg.matches(">thp_bytes<").count(), count, "{svg}");
    }
}

#[test]
fn each_mark_has_its_name_at_its_line_or_in_a_legend() {
    requires!(need::program("chromium"));
    let mark = |time_seconds, name: &str| Mark { time_seconds, name: name.to_owned() };
    let marks = vec![mark(1.0, "early"), mark(1.01, "crowded"), mark(9.99, "14 promoted")];
    let line = TimeLine { name: "a".to_owned(), values: vec![Some(1.0); 10] };
    let times_seconds = (1..=10).map(f64::from).collect();
    let (unit, stacked, lines) = (Unit::Bytes, false, vec![line]);
    let chart = TimePlot { unit, stacked, times_seconds, lines, marks: marks.clone() };
    let plot = |chart| Plot { title: "a".to_owned(), text: String::new(), chart };
    let mut report = Report::new("Memory");
    report.add(Section::new("", "").with(plot(Chart::Time(chart))));
    let svg = back_end::svg(&report);
    for text in [">early<", "class=\"end\">14 promoted<", ">dashed: 1.01s crowded<"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    let mut map = heat_map(&[1, 8, 80]);
    map.marks = marks;
    report.add(Section::new("", "").with(plot(Chart::HeatMap(map))));
    for width in [400, 1280] {
        let found = probe(&back_end::html(&report), width, false);
        assert_eq!(found["marks"][0], json!(["early", "14 promoted", "1.01s crowded"]), "{found}");
        // A canvas draws its names.
        assert_eq!(found["marks"][1], json!(["1.01s crowded"]), "{found}");
        let legend = found["legends"][1].as_array().unwrap();
        assert_eq!(legend[legend.len() - 2], "a phase begins, or a round changed pages", "{found}");
    }
}

#[test]
fn a_recording_of_one_slice_has_points_instead_of_lines() {
    requires!(need::program("chromium"));
    let plot = |title: &str, stacked| {
        let line = TimeLine { name: "a".to_owned(), values: vec![Some(1.0)] };
        let (unit, times_seconds) = (Unit::Bytes, vec![0.1]);
        let (lines, marks) =
            (vec![line.clone(), TimeLine { name: "b".to_owned(), ..line }], vec![]);
        let chart = Chart::Time(TimePlot { unit, stacked, times_seconds, lines, marks });
        Plot { title: title.to_owned(), text: String::new(), chart }
    };
    let mut report = Report::new("Memory");
    report.add(Section::new("", "").with(plot("lines", false)).with(plot("areas", true)));
    let found = probe(&back_end::html(&report), 400, false);
    let widths = found["widths"].as_array().unwrap();
    assert!(widths.len() == 2 && widths.iter().all(|width| width.as_f64() >= Some(6.0)), "{found}");
    assert_eq!(back_end::svg(&report).matches("<circle").count(), 4);
}

/// A heat map with a row with these numbers of samples, one a second.
fn heat_map(samples: &[u32]) -> HeatMap {
    let area = Area { name: "[heap]".to_owned(), start: 0, end: 4 << 20 };
    HeatMap {
        areas: vec![area],
        rows: vec![HeatRow { area: 0, start: 0, end: 2 << 20 }],
        edges_seconds: (0..=samples.len()).map(|second| second as f64).collect(),
        cells: (0..).zip(samples).map(|(column, &count)| HeatCell(column, 0, count, 0)).collect(),
        marks: Vec::new(),
    }
}

#[test]
fn the_legend_of_a_heat_map_has_its_numbers_of_samples_and_the_shades_of_its_cells() {
    requires!(need::program("chromium"));
    let maps: [(&[u32], &[&str]); 4] = [
        (&[1], &["1 sample"]),
        (&[5], &["1 sample", "5 samples"]),
        (&[80], &["1 sample", "8 samples", "80 samples"]),
        (&[1, 8, 80], &["1 sample", "8 samples", "80 samples"]),
    ];
    let mut report = Report::new("Heat");
    report.add(maps.iter().fold(Section::new("Heat", ""), |section, (samples, _)| {
        let (title, text) = ("Heat".to_owned(), String::new());
        section.with(Plot { title, text, chart: Chart::HeatMap(heat_map(samples)) })
    }));
    let page = back_end::html(&report);
    for is_dark in [false, true] {
        let found = probe(&page, 1280, is_dark);
        for (at, (samples, expected)) in maps.iter().enumerate() {
            let legend = found["legends"][at].as_array().unwrap();
            assert_eq!(legend[..legend.len() - 1], **expected, "{found}");
            let tip = found["tips"][at].as_str().unwrap();
            let is_one = samples.len() == 1;
            assert!(!is_one || tip.contains(&format!("/ {}, ", expected.last().unwrap())), "{tip}");
        }
        let [legend, row] = [0, 1].map(|of| found["shades"][3][of].as_array().unwrap());
        assert_eq!((legend.len(), &legend[..3]), (4, &row[..]), "{found}");
    }
}

#[test]
fn go_reads_the_pprof_profile() {
    requires!(need::program("go"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("solve.pb.gz");
    let timeline = example::timeline(4, "solve", Window::default());
    fs::write(&file, hugepilot_recording::profile::pprof(&timeline).unwrap()).unwrap();
    let top = top(&file);
    let total: u64 = timeline.processes.iter().map(|process| process.code.samples()).sum();
    assert!(top.contains("Type: stalls"), "{top}");
    assert!(top.contains("gather") && top.contains("hash_find"), "{top}");
    assert!(top.contains(&format!("of {total}samples total")), "{total}: {top}");
}

fn top(file: &Path) -> String {
    let output = Command::new("go").args(["tool", "pprof", "-top"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
