//! JSON Schemas of everything that hugepilot prints as JSON.

use std::fmt::Write as _;

use clap::builder::PossibleValuesParser;
use hugepilot_events as event;
use hugepilot_record::{Answer, error, schedule};
use hugepilot_recording as recording;
use hugepilot_render::{Shape, fields, json_schema};
use hugepilot_reports::{
    compare, daemon, debloat, doctor, experiment, explain, graph, knobs, lab, pool, run, shrink,
    sim, status, top, trace, tune, undo,
};
use serde_json::Value;

use crate::exit::Exit;
use crate::output::print;

const EXAMPLES: &str = "\
Examples:
  hugepilot schema                           list the schemas
  hugepilot schema graph                     JSON Schema of graph --json
  hugepilot schema tune --fields             its fields, for readers
  hugepilot schema error                     errors with --json

Exit status: 0 printed, 2 unknown schema";

/// Print the JSON Schema of a command's JSON
///
/// The schemas follow draft 2020-12. Without NAME, lists them.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SchemaArgs {
    /// Name in the list: a command with JSON output, or `error`
    #[arg(value_parser = PossibleValuesParser::new(OUTPUTS.iter().map(|output| output.name)))]
    name: Option<String>,

    /// List the fields with their types and meanings instead, then those of each type
    #[arg(long, requires = "name")]
    fields: bool,
}

/// Something that hugepilot prints as JSON.
struct Output {
    name: &'static str,
    /// Value of its field `schema`.
    id: &'static str,
    /// Command that prints it.
    command: &'static str,
    shapes: &'static [Shape],
}

/// All outputs, sorted by name. The name is that in [`Output::id`].
const OUTPUTS: &[Output] = &[
    Output {
        name: "compare",
        id: compare::SCHEMA,
        command: "hugepilot compare --json",
        shapes: &[Shape::of::<compare::CompareReport>()],
    },
    Output {
        name: "daemon",
        id: daemon::SCHEMA,
        command: "hugepilot daemon, each line",
        shapes: &[Shape::of::<daemon::DaemonLine>()],
    },
    Output {
        name: "debloat",
        id: debloat::SCHEMA,
        command: "hugepilot debloat --json",
        shapes: &[
            Shape::with::<debloat::DebloatReport>("backend", debloat::BACKEND),
            Shape::with::<shrink::ShrinkReport>("backend", shrink::BACKEND),
        ],
    },
    Output {
        name: "doctor",
        id: doctor::SCHEMA,
        command: "hugepilot doctor --json",
        shapes: &[Shape::of::<doctor::DoctorReport>()],
    },
    Output {
        name: "error",
        id: error::SCHEMA,
        command: "a command with --json that fails",
        shapes: &[Shape::of::<error::ErrorReport>()],
    },
    Output {
        name: "events",
        id: event::SCHEMA,
        command: "hugepilot record --list-events --json",
        shapes: &[Shape::of::<event::EventList>()],
    },
    Output {
        name: "explain",
        id: explain::SCHEMA,
        command: "hugepilot explain --json",
        shapes: &[Shape::of::<explain::ExplainReport>()],
    },
    Output {
        name: "graph",
        id: graph::SCHEMA,
        command: "hugepilot graph COMMAND --json",
        shapes: &[Shape::of::<graph::GraphReport>()],
    },
    Output {
        name: "knobs",
        id: knobs::SCHEMA,
        command: "hugepilot knobs prefetch show --json",
        shapes: &[Shape::of::<knobs::PrefetchReport>()],
    },
    Output {
        name: "lab-fragment",
        id: lab::weather::FRAGMENT_SCHEMA,
        command: "hugepilot lab fragment --json",
        shapes: &[Shape::of::<lab::weather::FragmentReport>()],
    },
    Output {
        name: "lab-gups",
        id: lab::GUPS_SCHEMA,
        command: "hugepilot lab gups --json",
        shapes: &[Shape::of::<lab::GupsReport>()],
    },
    Output {
        name: "lab-list",
        id: experiment::LIST_SCHEMA,
        command: "hugepilot lab list --json",
        shapes: &[Shape::of::<experiment::LabList>()],
    },
    Output {
        name: "lab-page-cache",
        id: lab::weather::PAGE_CACHE_SCHEMA,
        command: "hugepilot lab page-cache --json",
        shapes: &[Shape::of::<lab::weather::PageCacheReport>()],
    },
    Output {
        name: "lab-pchase",
        id: lab::PCHASE_SCHEMA,
        command: "hugepilot lab pchase --json",
        shapes: &[Shape::of::<lab::PchaseReport>()],
    },
    Output {
        name: "lab-pressure",
        id: lab::weather::PRESSURE_SCHEMA,
        command: "hugepilot lab pressure --json",
        shapes: &[Shape::of::<lab::weather::PressureReport>()],
    },
    Output {
        name: "lab-quiet",
        id: lab::weather::QUIET_SCHEMA,
        command: "hugepilot lab quiet --json",
        shapes: &[Shape::of::<lab::weather::QuietReport>()],
    },
    Output {
        name: "lab-report",
        id: experiment::SCHEMA,
        command: "hugepilot lab report --json",
        shapes: &[Shape::of::<experiment::LabReport>()],
    },
    Output {
        name: "lab-stream",
        id: lab::STREAM_SCHEMA,
        command: "hugepilot lab stream --json",
        shapes: &[Shape::of::<lab::StreamReport>()],
    },
    Output {
        name: "lab-tlb-sweep",
        id: lab::TLB_SWEEP_SCHEMA,
        command: "hugepilot lab tlb-sweep --json",
        shapes: &[Shape::of::<lab::TlbSweepReport>()],
    },
    Output {
        name: "lab-warm",
        id: lab::weather::WARM_SCHEMA,
        command: "hugepilot lab warm --json",
        shapes: &[Shape::of::<lab::weather::WarmReport>()],
    },
    Output {
        name: "pool",
        id: pool::SCHEMA,
        command: "hugepilot pool show --json, pool set --json",
        shapes: &[
            Shape::with::<pool::PoolReport>("action", "show"),
            Shape::with::<pool::PoolChange>("action", "set"),
        ],
    },
    Output {
        name: "record",
        id: recording::REPORT_SCHEMA,
        command: "hugepilot record --json",
        shapes: &[Shape::of::<recording::RecordReport>()],
    },
    Output {
        name: "report",
        id: hugepilot_render::model::SCHEMA,
        command: "hugepilot report --json",
        shapes: &[Shape::of::<hugepilot_render::model::Report>()],
    },
    Output {
        name: "run",
        id: run::SCHEMA,
        command: "hugepilot run --report FILE",
        shapes: &[Shape::of::<run::RunReport>()],
    },
    Output {
        name: "schedule",
        id: schedule::SCHEMA,
        command: "hugepilot explain --schedule OUT, sim pcc --schedule FILE, each line",
        shapes: &[Shape::of::<schedule::ScheduleHeader>(), Shape::of::<schedule::ScheduleEvent>()],
    },
    Output {
        name: "sim-policy",
        id: sim::POLICY_SCHEMA,
        command: "hugepilot sim pcc --json, sim hawkeye --json, sim heat --json, sim prefix --json",
        shapes: &[Shape::of::<sim::SimPolicyReport>()],
    },
    Output {
        name: "sim-reuse",
        id: sim::REUSE_SCHEMA,
        command: "hugepilot sim reuse --json",
        shapes: &[Shape::of::<sim::SimReuseReport>()],
    },
    Output {
        name: "sim-tlb",
        id: sim::TLB_SCHEMA,
        command: "hugepilot sim tlb --json",
        shapes: &[Shape::of::<sim::SimTlbReport>()],
    },
    Output {
        name: "sim-utility",
        id: sim::UTILITY_SCHEMA,
        command: "hugepilot sim utility --json",
        shapes: &[Shape::of::<sim::SimUtilityReport>()],
    },
    Output {
        name: "status",
        id: status::SCHEMA,
        command: "hugepilot status --json",
        shapes: &[Shape::of::<status::StatusReport>()],
    },
    Output {
        name: "top",
        id: top::SCHEMA,
        command: "hugepilot top --json, status --json without a target",
        shapes: &[Shape::of::<top::TopReport>()],
    },
    Output {
        name: "trace",
        id: trace::SCHEMA,
        command: "hugepilot trace --json",
        shapes: &[Shape::of::<trace::TraceReport>()],
    },
    Output {
        name: "tune",
        id: tune::SCHEMA,
        command: "hugepilot tune --json",
        shapes: &[Shape::of::<tune::TuneReport>()
            .and::<Answer>("answer")
            .and::<tune::TuneVerdict>("verdict")
            .and::<Option<tune::Gain>>("gain")],
    },
    Output {
        name: "undo",
        id: undo::SCHEMA,
        command: "hugepilot tune --undo FILE --json",
        shapes: &[Shape::of::<undo::UndoReport>()],
    },
    Output {
        name: "workload",
        id: hugepilot_workload::SCHEMA,
        command: "hugepilot lab workload, last line",
        shapes: &[Shape::of::<hugepilot_workload::Summary>()],
    },
];

/// Names of all schemas, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    OUTPUTS.iter().map(|output| output.name)
}

/// JSON Schema of this name; `None` for an unknown one.
pub fn schema(name: &str) -> Option<Value> {
    let Output { id, command, shapes, .. } = OUTPUTS.iter().find(|output| output.name == name)?;
    Some(json_schema(id, &format!("Output of {command}."), shapes))
}

/// Text that `hugepilot schema NAME` prints.
fn text(name: &str) -> Option<String> {
    Some(format!("{:#}\n", schema(name)?))
}

/// Text that `hugepilot schema NAME --fields` prints: a line per field, those of a type together.
fn listing(name: &str) -> Option<String> {
    let (mut text, mut owner) = (String::new(), None);
    for field in fields(&schema(name)?) {
        let about = field.about.replace('\n', " ");
        if owner.as_ref() != Some(&field.owner) {
            let begin = if owner.is_some() { "\n" } else { "" };
            let title = if field.owner.is_empty() { name } else { &field.owner };
            let _ = write!(text, "{begin}{title}");
            owner = Some(field.owner.clone());
            if field.name.is_empty() && field.kind.is_empty() {
                let _ = writeln!(text, "{}{about}", if about.is_empty() { "" } else { ": " });
                continue;
            }
            text.push('\n');
        }
        let parts = [field.name, field.kind, about].into_iter().filter(|part| !part.is_empty());
        let _ = writeln!(text, "  {}", parts.collect::<Vec<_>>().join("  "));
    }
    Some(text)
}

pub(crate) fn run(args: &SchemaArgs) -> anyhow::Result<Exit> {
    let of = if args.fields { listing } else { text };
    let text = args.name.as_deref().and_then(of).unwrap_or_else(list);
    print(&text)?;
    Ok(Exit::Yes)
}

fn list() -> String {
    OUTPUTS.iter().fold(String::new(), |mut list, Output { name, id, command, .. }| {
        let _ = writeln!(list, "{name:<8}  {id:<20}  {command}");
        list
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_those_of_the_schemas() {
        assert!(OUTPUTS.is_sorted_by_key(|output| output.name));
        for Output { name, id, .. } in OUTPUTS {
            let (prefix, version) = id.split_once('/').unwrap();
            assert_eq!(prefix, format!("hugepilot.{name}"));
            assert!(version.parse::<u32>().is_ok(), "{id}");
        }
    }
}
