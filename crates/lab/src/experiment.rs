//! Experiments as data: command lines in weathers, and the bands that their results must meet.

pub mod catalogue;
mod error;
pub mod plan;
pub mod runner;
pub mod runs;
pub mod values;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_units::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

pub use error::ExperimentError;

/// An experiment, as its TOML file states it.
///
/// Command lines are those of `hugepilot`, without that word. `{name}` stands for a variable of the
/// scale, for a file of `file`, or for a measure of `probe`; `{round}` is the number of the round,
/// from 1, and `{hugepilot}` the program. In acts, `{pid}`, `{pid2}` and so on are the pids of the
/// cell's programs, and `{pids}` is `-p PID` of each. A variable with several named values makes a
/// panel of each, and the experiment runs in every panel.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name for `lab run`.
    pub name: String,
    /// The claim that it tests, as a sentence.
    pub claim: String,
    /// Paper, section and figure of the claim.
    pub source: String,
    /// Rounds, each of which runs every cell once.
    pub rounds: u32,
    /// Values to read from the output of a cell.
    pub measure: Measure,
    /// Variables of all scales.
    #[serde(default)]
    pub variables: BTreeMap<String, Values>,
    /// Variables by scale.
    pub scale: BTreeMap<String, Scale>,
    /// Programs that the user provides.
    #[serde(default)]
    pub tool: Vec<Tool>,
    /// Files that are made once.
    #[serde(default)]
    pub file: Vec<PreparedFile>,
    /// Run whose result is a variable of the panel.
    #[serde(default)]
    pub probe: Vec<Probe>,
    /// Weathers, one after the other; without any, the weather of the day.
    #[serde(default)]
    pub weather: Vec<Weather>,
    /// Cells, interleaved; the first is the base of speedups.
    pub cell: Vec<Cell>,
    /// Bands of the claim.
    #[serde(default)]
    pub band: Vec<Band>,
}

/// Size of an experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Time of a run on 2 CPUs, in minutes.
    pub minutes: f64,
    /// Available memory that it requires, such as `6GiB`.
    #[serde(deserialize_with = "bytes")]
    pub memory: Bytes,
    /// Variables.
    #[serde(default)]
    pub variables: BTreeMap<String, Values>,
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Values of a variable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// The same in all panels.
    One(String),
    /// A panel each, which has its name.
    Named(BTreeMap<String, String>),
}

/// Values to read from the output of a cell.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Schema of the JSON object, such as `hugepilot.graph/2`.
    pub schema: String,
    /// Place of the value, as of [`values::number`] or [`values::Printed::number`].
    pub value: String,
    /// Unit of the value.
    pub unit: MeasureUnit,
    /// Pointer to a value that must be `true`.
    pub check: Option<String>,
    /// Places of further values, by name.
    #[serde(default)]
    pub also: BTreeMap<String, String>,
}

/// Unit of a measured value, which says whether more is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasureUnit {
    /// A time: less is better.
    Seconds,
    /// A time in nanoseconds, of which seconds are made.
    Nanoseconds,
    /// A rate: more is better.
    PerSecond,
    /// A speedup over something else, such as a simulated one: more is better.
    Speedup,
    /// A count or a share, such as page walks: less is better.
    Count,
}

/// Program that the user provides.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Variable that holds the path of its folder.
    pub name: String,
    /// Environment variable that names the folder; without it, the folders of `PATH` count.
    pub environment: String,
    /// File that the folder holds.
    pub file: String,
    /// Suggestion for a user who lacks it.
    pub help: String,
}

/// File that is made once, and kept for later runs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparedFile {
    /// Variable that holds its path.
    pub name: String,
    /// File name, which states what it contains.
    pub file: String,
    /// Command line that makes it.
    pub run: String,
}

/// Run whose result is a variable, such as the footprint.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Variable.
    pub name: String,
    /// Command line.
    pub run: String,
    /// Schema of its JSON object.
    pub schema: String,
    /// Place of the value.
    pub value: String,
}

/// State of the machine during cells.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weather {
    /// Name.
    pub name: String,
    /// Command lines that hold it, the first one outermost.
    #[serde(default)]
    pub run: Vec<String>,
}

/// Command line that is measured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name.
    pub name: String,
    /// Command line.
    pub run: String,
    /// Command lines that run one after the other while it runs, from its line `ready PID` on.
    #[serde(default)]
    pub act: Vec<String>,
    /// Command lines of programs that run at the same time, each with a value: `value2` and so on.
    #[serde(default)]
    pub beside: Vec<String>,
    /// Schema of its JSON object, if it differs from that of the measure.
    pub schema: Option<String>,
    /// Place of its value, if it differs from that of the measure.
    pub value: Option<String>,
    /// Weathers in which it runs; without any, all.
    #[serde(default)]
    pub weather: Vec<String>,
    /// Speedups over the base that the source published, by weather.
    #[serde(default)]
    pub published: BTreeMap<String, f64>,
}

/// Limit of a speedup, or of a share of a speedup.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Statement that holds within the band.
    pub claim: String,
    /// The speedup.
    #[serde(flatten)]
    pub speedup: Speedup,
    /// Further value of the cell, whose median is limited instead of the speedup.
    pub also: Option<String>,
    /// Whether the fairness of the slowdowns of the cell's programs is limited instead of the
    /// speedup: 1 - σ/μ (EMD, section 5.3.1).
    #[serde(default)]
    pub fairness: bool,
    /// The speedup of which this one is a share: (this - 1) / (that - 1).
    pub share_of: Option<Speedup>,
    /// Least value.
    pub at_least: Option<f64>,
    /// Largest value.
    pub at_most: Option<f64>,
    /// Value that the source published.
    pub published: Option<f64>,
}

/// Speedup of a cell over another one, in one weather.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Speedup {
    /// Cell.
    pub cell: String,
    /// Cell that it is compared with; the first, if none is named.
    pub over: Option<String>,
    /// Weather; the first, if none is named.
    pub weather: Option<String>,
}

impl Cell {
    /// Whether it runs in this weather.
    pub fn is_in(&self, weather: &Weather) -> bool {
        self.weather.is_empty() || self.weather.contains(&weather.name)
    }
}

impl Experiment {
    /// Reads an experiment from TOML, and checks that its names agree.
    ///
    /// # Errors
    /// [`ExperimentError::Experiment`] with the place and the cause.
    pub fn parse(text: &str, file: &str) -> Result<Self, ExperimentError> {
        let error = |cause: String| ExperimentError::Experiment { file: file.to_owned(), cause };
        let mut experiment: Self =
            toml::from_str(text).map_err(|cause| error(cause.to_string()))?;
        if experiment.weather.is_empty() {
            experiment.weather.push(Weather { name: "as it is".to_owned(), run: Vec::new() });
        }
        experiment.check().map_err(error)?;
        experiment.check_places().map_err(error)?;
        Ok(experiment)
    }

    fn check(&self) -> Result<(), String> {
        let cells: Vec<&str> = self.cell.iter().map(|one| &*one.name).collect();
        let weathers: Vec<&str> = self.weather.iter().map(|one| &*one.name).collect();
        let known = |names: &[&str], kind: &str, name: &str| match names.contains(&name) {
            true => Ok(()),
            false => Err(format!("no {kind} is named {name:?}")),
        };
        let cell = |name: &str| known(&cells, "cell", name);
        let weather = |name: &str| known(&weathers, "weather", name);
        if self.cell.is_empty() || !(1..=MAX_ROUNDS).contains(&self.rounds) {
            return Err(format!("an experiment requires a cell, and 1 to {MAX_ROUNDS} rounds"));
        }
        if !self.name.chars().all(|one| one.is_ascii_alphanumeric() || one == '-') {
            return Err("its name has other characters than letters, digits and -".to_owned());
        }
        for (kind, names) in [("cells", &cells), ("weathers", &weathers)] {
            if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
                return Err(format!("two {kind} have the same name"));
            }
        }
        if let Some(band) =
            self.band.iter().find(|band| band.at_least.is_none() && band.at_most.is_none())
        {
            return Err(format!("the band {:?} has no limit", band.claim));
        }
        for band in &self.band {
            let in_band = |cause: String| format!("the band {:?}: {cause}", band.claim);
            for speedup in [Some(&band.speedup), band.share_of.as_ref()].into_iter().flatten() {
                let over = speedup.over.as_deref();
                [Some(&*speedup.cell), over].into_iter().flatten().try_for_each(cell)?;
                speedup.weather.as_deref().map_or(Ok(()), weather)?;
                // A further value is of the cell alone.
                let base = band.also.is_none().then(|| self.cell_of(over));
                let held = &self.weather[self.weather_of(speedup.weather.as_deref())];
                for of in [Some(self.cell_of(Some(&speedup.cell))), base].into_iter().flatten() {
                    let Cell { name, .. } = &self.cell[of];
                    if !self.cell[of].is_in(held) {
                        let cause = format!("cell {name:?} does not run in {:?}", held.name);
                        return Err(in_band(cause));
                    }
                }
            }
        }
        let further: Vec<&str> = self.measure.also.keys().map(String::as_str).collect();
        for name in self.band.iter().filter_map(|band| band.also.as_deref()) {
            known(&further, "further value", name)?;
        }
        let named = self.cell.iter().flat_map(|one| one.weather.iter().chain(one.published.keys()));
        named.into_iter().try_for_each(|name| weather(name))
    }

    /// Checks what [`values::Printed::number`] requires of places.
    fn check_places(&self) -> Result<(), String> {
        let of_cells = self.cell.iter().filter_map(|cell| cell.value.as_ref());
        let of_all = self.measure.also.values().chain([&self.measure.value]);
        of_all.chain(of_cells).try_for_each(|place| values::check(place))
    }

    /// The panels of a scale: all combinations of the values of its variables, the last variable
    /// by name changing fastest. Each has its values by variable.
    ///
    /// # Errors
    /// [`ExperimentError::NoScale`].
    pub fn panels(&self, scale: &str) -> Result<Vec<Panel>, ExperimentError> {
        let Some(found) = self.scale.get(scale) else {
            return Err(ExperimentError::NoScale {
                experiment: self.name.clone(),
                scale: scale.to_owned(),
            });
        };
        let mut panels = vec![Panel::default()];
        let all: BTreeMap<&String, &Values> =
            self.variables.iter().chain(&found.variables).collect();
        for (name, values) in all {
            let values: Vec<(Option<&String>, &String)> = match values {
                Values::One(value) => vec![(None, value)],
                Values::Named(values) => {
                    values.iter().map(|(name, value)| (Some(name), value)).collect()
                }
            };
            let with = |panel: &Panel, &(value_name, value): &(Option<&String>, &String)| {
                let mut panel = panel.clone();
                panel.set(name, value);
                panel.stated.insert((*name).clone(), (*value).clone());
                panel.swept.extend(value_name.cloned());
                panel
            };
            panels = panels
                .iter()
                .flat_map(|panel| values.iter().map(move |value| with(panel, value)))
                .collect();
        }
        Ok(panels)
    }

    /// Each cell in each of its weathers, in these panels.
    pub fn places<'a>(
        &'a self,
        panels: &'a [Panel],
    ) -> impl Iterator<Item = (&'a Panel, &'a Weather, &'a Cell)> {
        let weathers =
            panels.iter().flat_map(|panel| self.weather.iter().map(move |one| (panel, one)));
        weathers.flat_map(|(panel, weather)| {
            let cells = self.cell.iter().filter(|cell| cell.is_in(weather));
            cells.map(move |cell| (panel, weather, cell))
        })
    }

    /// Digest of what determines the runs of a cell: all that is stated of them, but neither paths
    /// nor probed values, which differ between machines.
    pub fn digest(&self, scale: &str, panel: &Panel, weather: &Weather, cell: &Cell) -> String {
        let value = cell.value.as_ref().unwrap_or(&self.measure.value);
        let mut texts = vec![&*self.name, scale, &weather.name, &cell.name, &cell.run, value];
        texts.extend(panel.stated.iter().flat_map(|(name, value)| [&**name, value]));
        texts.extend(self.file.iter().flat_map(|file| [&*file.file, &file.run]));
        texts.extend(self.probe.iter().flat_map(|probe| [&*probe.run, &probe.value]));
        texts.extend(weather.run.iter().map(String::as_str));
        texts.extend(self.measure.check.as_deref());
        texts.extend(cell.act.iter().flat_map(|line| ["act", line]));
        texts.extend(cell.beside.iter().flat_map(|line| ["beside", line]));
        texts.extend(self.tool.iter().map(|tool| &*tool.file));
        runs::digest(texts.into_iter().chain(cell.schema.as_deref()))
    }

    /// Index of a weather by name; the first, without a name.
    pub fn weather_of(&self, name: Option<&str>) -> usize {
        name.and_then(|name| self.weather.iter().position(|one| one.name == name)).unwrap_or(0)
    }

    /// Index of a cell by name; the first, without a name.
    pub fn cell_of(&self, name: Option<&str>) -> usize {
        name.and_then(|name| self.cell.iter().position(|one| one.name == name)).unwrap_or(0)
    }
}

/// Whether a text between braces is a name, which may contain names, and no end of one.
fn is_name(text: &str) -> bool {
    text.find('{').is_none_or(|begin| text.find('}').is_some_and(|end| begin < end))
}

/// Rounds at most.
const MAX_ROUNDS: u32 = 1000;
/// Variables within variables at most.
const DEPTH: u32 = 4;

/// Combination of the values of variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Panel {
    /// Words of the value of each variable.
    pub variables: BTreeMap<String, Vec<String>>,
    /// Names of the values that differ between panels.
    pub swept: Vec<String>,
    /// Variables as the experiment states them, by name.
    pub stated: BTreeMap<String, String>,
}

impl Panel {
    /// Its name: those of the values that differ between panels.
    pub fn name(&self) -> String {
        self.swept.join(" ")
    }

    /// Sets a variable to the words of `value`.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables
            .insert(name.to_owned(), value.split_whitespace().map(str::to_owned).collect());
    }

    /// Sets a variable to one word, such as a path, in which blanks do not separate.
    pub fn set_word(&mut self, name: &str, value: String) {
        self.variables.insert(name.to_owned(), vec![value]);
    }

    /// The words of a command line, with the variables' values.
    ///
    /// # Errors
    /// [`ExperimentError::NoVariable`].
    pub fn words(&self, line: &str) -> Result<Vec<String>, ExperimentError> {
        let words = line.split_whitespace().map(|word| self.expanded(word, DEPTH));
        Ok(words.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// The words of a word: those of a variable, whose value may name other ones.
    fn expanded(&self, word: &str, depth: u32) -> Result<Vec<String>, ExperimentError> {
        match word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if is_name(name) && depth > 0 => {
                let words = self
                    .value(&self.filled(name)?)?
                    .iter()
                    .map(|word| self.expanded(word, depth - 1));
                Ok(words.collect::<Result<Vec<_>, _>>()?.concat())
            }
            _ => Ok(vec![self.filled(word)?]),
        }
    }

    fn value(&self, name: &str) -> Result<&[String], ExperimentError> {
        let value = self.variables.get(name).map(Vec::as_slice);
        value.ok_or_else(|| ExperimentError::NoVariable { name: name.to_owned() })
    }

    /// A text with the variables' values.
    ///
    /// # Errors
    /// [`ExperimentError::NoVariable`].
    pub fn filled(&self, text: &str) -> Result<String, ExperimentError> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            filled.push_str(before);
            filled.push_str(&self.value(name)?.join(" "));
            rest = after;
        }
        Ok(filled + rest)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TEXT: &str = r#"
        name = "order"
        claim = "the order decides"
        source = "a paper"
        rounds = 3
        [measure]
        schema = "s/1"
        value = "/seconds"
        unit = "seconds"
        also = { huge_bytes = "sum /arrays/*/huge" }
        [scale.small]
        minutes = 2
        memory = "1GiB"
        [scale.small.variables]
        kernel = { bfs = "bfs", pr = "pr" }
        graph = "kronecker:20"
        size = { 1 = "1", 2 = "2" }
        [[weather]]
        name = "none"
        [[weather]]
        name = "scarce"
        run = ["lab pressure --leave {size}GiB"]
        [[cell]]
        name = "base"
        run = "graph run {kernel} {graph} --json"
        [[cell]]
        name = "thp"
        run = "graph run {kernel} {graph} --pages all=thp --json"
        published = { scarce = 1.02 }
        [[band]]
        claim = "half of it is left"
        cell = "thp"
        weather = "scarce"
        share_of = { cell = "thp", weather = "none" }
        at_least = 0.5
    "#;

    #[test]
    fn each_combination_of_values_is_a_panel() {
        let experiment = Experiment::parse(TEXT, "x").unwrap();
        let panels = experiment.panels("small").unwrap();
        let names: Vec<String> = panels.iter().map(Panel::name).collect();
        assert_eq!(names, ["bfs 1", "bfs 2", "pr 1", "pr 2"]);
        let words = panels[2].words(&experiment.cell[0].run).unwrap();
        assert_eq!(words, ["graph", "run", "pr", "kronecker:20", "--json"]);
        assert_eq!(panels[1].filled("a{size}b{size}").unwrap(), "a2b2");
        let mut panel = panels[0].clone();
        panel.set("kernel", "pr --iterations {count}");
        panel.set("count", "1");
        panel.set("endless", "{endless}");
        assert!(panel.words("{endless}").is_ok(), "it ends");
        panel.set_word("file", "a b".to_owned());
        let words = panel.words("run {kernel} x{file}").unwrap();
        assert_eq!(words, ["run", "pr", "--iterations", "1", "xa b"]);
        assert!(panels[0].filled("{unknown}").unwrap_err().to_string().contains("unknown"));
        assert!(experiment.panels("paper").unwrap_err().to_string().contains("paper"));
    }

    #[test]
    fn a_name_may_hold_names() {
        let mut panel = Experiment::parse(TEXT, "x").unwrap().panels("small").unwrap()[0].clone();
        panel.set("flags-bfs", "--source {source}");
        panel.set("source", "7");
        assert_eq!(panel.words("{flags-{kernel}}").unwrap(), ["--source", "7"]);
        assert_eq!(panel.words("{kernel}/{source}").unwrap(), ["bfs/7"]);
        panel.set("kernel", "pr");
        assert!(panel.words("{flags-{kernel}}").unwrap_err().to_string().contains("{flags-pr}"));
    }

    #[test]
    fn what_runs_determines_the_digest() {
        let digest = |from: &str, to: &str| {
            let experiment = Experiment::parse(&TEXT.replacen(from, to, 1), "x").unwrap();
            let panel = &experiment.panels("small").unwrap()[0];
            experiment.digest("small", panel, &experiment.weather[0], &experiment.cell[1])
        };
        let with = |line: &str| digest("published =", &format!("{line}\npublished ="));
        let all = [
            digest("", ""),
            with("act = [\"a\", \"b\"]"),
            with("act = [\"a\"]\nbeside = [\"b\"]"),
            with("beside = [\"a\", \"b\"]"),
            with("schema = \"t/1\""),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        // Runs of version 0.1 count: what they ran has the same digest.
        assert_eq!(all[0], digest("half of it", "half"));
    }

    #[test]
    fn names_that_do_not_agree_are_refused_with_their_place() {
        let refused = |from: &str, to: &str, cause: &str| {
            let text = TEXT.replacen(from, to, 1);
            assert_ne!(text, TEXT, "{from}");
            let error = Experiment::parse(&text, "x.toml").unwrap_err().to_string();
            assert!(error.contains("x.toml") && error.contains(cause), "{error}");
        };
        refused("cell = \"thp\"\n        weather", "cell = \"thq\"\n        weather", "\"thq\"");
        refused("published = { scarce", "published = { scarse", "no weather is named \"scarse\"");
        refused("rounds = 3", "rounds = 0", "1 to 1000 rounds");
        refused("at_least = 0.5", "", "has no limit");
        refused("name = \"scarce\"", "name = \"none\"", "two weathers have the same name");
        refused("memory = \"1GiB\"", "memory = \"much\"", "much");
        refused("rounds = 3", "round = 3", "round");
        refused("unit = \"seconds\"", "unit = \"hours\"", "hours");
        refused("value = \"/seconds\"", "value = \"match (\"", "regular expression");
        refused("sum /arrays/*/huge", "settled column 0", "column from 1");
        // Keys within a band, whose fields are flattened, and within a share.
        refused("weather = \"scarce\"", "wether = \"scarce\"", "`wether`");
        refused("\"thp\", weather = \"none\"", "\"thp\", wether = \"none\"", "`wether`");
        refused("weather = \"none\" }", "weather = \"nome\" }", "no weather is named \"nome\"");
        for cell in ["base", "thp"] {
            let name = format!("name = \"{cell}\"\n");
            let only = format!("{name}weather = [\"none\"]\n");
            let cause =
                format!("\"half of it is left\": cell \"{cell}\" does not run in \"scarce\"");
            refused(&name, &only, &cause);
        }
    }
}
