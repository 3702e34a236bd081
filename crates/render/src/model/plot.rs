//! Plots as data. A back end chooses how to draw them.

use schemars::JsonSchema;
use serde::Serialize;

use super::Unit;

/// A plot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Plot {
    /// Title.
    pub title: String,
    /// How to read it; may be empty.
    pub text: String,
    /// Data.
    pub chart: Chart,
}

impl Plot {
    /// A plot without an explanation.
    pub fn new(title: impl Into<String>, chart: Chart) -> Self {
        Self { title: title.into(), text: String::new(), chart }
    }

    /// Bars, the values of `name`.
    pub fn bars(title: &str, name: &str, unit: Unit, bars: impl IntoIterator<Item = Bar>) -> Self {
        let bars = bars.into_iter().collect();
        Self::new(title, Chart::Bars(Bars { name: name.to_owned(), unit, bars }))
    }

    /// Lines between points; each axis has a name and a unit.
    pub fn curves(title: &str, x: (&str, Unit), y: (&str, Unit), curves: Vec<Curve>) -> Self {
        let ((x_name, x_unit), (y_name, y_unit)) = (x, y);
        let (x_name, y_name, steps) = (x_name.to_owned(), y_name.to_owned(), false);
        let curves = Curves { x_name, x_unit, y_name, y_unit, steps, curves };
        Self::new(title, Chart::Curves(curves))
    }

    /// Shares of things with at most the value of the horizontal axis, in steps.
    pub fn distributions(title: &str, x: (&str, Unit), y_name: &str, curves: Vec<Curve>) -> Self {
        let mut plot = Self::curves(title, x, (y_name, Unit::Ratio), curves);
        if let Chart::Curves(curves) = &mut plot.chart {
            curves.steps = true;
        }
        plot
    }

    /// Returns the sentence in place of a plot without values.
    pub fn absence(&self) -> Option<&str> {
        let is_empty = match &self.chart {
            Chart::Time(plot) => plot.times_seconds.is_empty() || plot.lines.is_empty(),
            Chart::Curves(plot) => plot.curves.iter().all(|curve| curve.points.is_empty()),
            Chart::Scatter(plot) => plot.groups.iter().all(|group| group.points.is_empty()),
            Chart::Bars(plot) => plot.bars.is_empty(),
            Chart::HeatMap(plot) => plot.cells.is_empty(),
            Chart::Flame(plot) => plot.nodes.is_empty(),
        };
        is_empty.then_some(if self.text.is_empty() { "No values." } else { &self.text })
    }
}

/// Data of a plot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Chart {
    /// Values over time.
    Time(TimePlot),
    /// Values over values, such as distributions and utility curves.
    Curves(Curves),
    /// Things by two values.
    Scatter(Scatter),
    /// A bar for each of several things.
    Bars(Bars),
    /// Heat by address and time.
    HeatMap(HeatMap),
    /// Samples by call stack.
    Flame(Flame),
}

/// Values over time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TimePlot {
    /// Unit of the values.
    pub unit: Unit,
    /// Whether lines are areas on top of each other.
    pub stacked: bool,
    /// Ends of the slices, in seconds since the start of the recording, or, of a journal
    /// alone, since its first observation.
    pub times_seconds: Vec<f64>,
    /// Lines.
    pub lines: Vec<TimeLine>,
    /// Events.
    pub marks: Vec<Mark>,
}

/// Line of a plot over time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TimeLine {
    /// Name.
    pub name: String,
    /// A value for each time; `null` where none was measured.
    pub values: Vec<Option<f64>>,
}

/// Event of a plot over time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Mark {
    /// Its time, in seconds since the start of the recording, or, of a journal
    /// alone, since its first observation.
    pub time_seconds: f64,
    /// Name.
    pub name: String,
}

/// Values over values.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Curves {
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Its unit.
    pub x_unit: Unit,
    /// Name of the vertical axis.
    pub y_name: String,
    /// Its unit.
    pub y_unit: Unit,
    /// Whether the value holds until the next point.
    pub steps: bool,
    /// Curves.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Curve {
    /// Name.
    pub name: String,
    /// Points, by their first coordinate.
    pub points: Vec<(f64, f64)>,
}

/// Things by two values.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Scatter {
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Its unit.
    pub x_unit: Unit,
    /// Name of the vertical axis.
    pub y_name: String,
    /// Its unit.
    pub y_unit: Unit,
    /// Name of the things.
    pub things: String,
    /// Value on both axes that divides them.
    pub border: f64,
    /// Groups of things.
    pub groups: Vec<ScatterGroup>,
}

/// Group of a scatter plot.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ScatterGroup {
    /// Name.
    pub name: String,
    /// Both values, and the number of things.
    pub points: Vec<(f64, f64, u64)>,
}

/// Bars.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bars {
    /// Name of the values.
    pub name: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Bars.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Bar {
    /// Name.
    pub name: String,
    /// Value; `null` if it was not measured.
    pub value: Option<f64>,
    /// Smallest and largest value, if it is a median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}

impl Bar {
    /// A bar of one value.
    pub fn new(name: impl Into<String>, value: Option<f64>) -> Self {
        Self { name: name.into(), value, range: None }
    }
}

/// Heat by address and time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HeatMap {
    /// Begin of the first column and ends of all, in seconds since the start of the recording, or,
    /// of a journal alone, since its first observation.
    pub edges_seconds: Vec<f64>,
    /// Address ranges, in order of address; each has some of the rows.
    pub areas: Vec<Area>,
    /// Rows, in order of address.
    pub rows: Vec<HeatRow>,
    /// Cells with samples.
    pub cells: Vec<HeatCell>,
    /// Events.
    pub marks: Vec<Mark>,
}

/// Address range of a heat map: a mapping, or neighbours with the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Area {
    /// Name.
    pub name: String,
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

/// Row of a heat map: some neighbouring regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeatRow {
    /// Index of its address range.
    pub area: usize,
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

/// Cell of a heat map: column, row, heat, and samples on huge pages among it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeatCell(pub u32, pub u32, pub u32, pub u32);

/// Flame graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Flame {
    /// Frames; a caller is before the frames that it calls.
    pub nodes: Vec<FlameNode>,
}

/// Frame of a flame graph.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FlameNode {
    /// Function.
    pub name: String,
    /// Index of its caller; `null` for a root.
    pub parent: Option<usize>,
    /// Samples, with those of the frames that it calls.
    pub samples: u64,
}
