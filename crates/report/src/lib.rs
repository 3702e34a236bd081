//! Text and JSON out of records. Pure: the same record prints the same text on any machine.

#![forbid(unsafe_code)]

pub mod back_end;
mod compare;
mod daemon;
mod debloat;
mod doctor;
mod events;
mod explain;
mod graph;
mod json;
mod kernel_reason;
mod knobs;
mod lab;
pub mod model;
mod obstacle;
mod policy;
mod pool;
pub mod profile;
mod record;
pub mod recording;
mod result;
mod run;
mod schema;
mod sentence;
mod settings;
mod shrink;
mod sim;
mod status;
mod table;
mod top;
mod trace;
mod tune;
mod undo;

pub use back_end::command_text;
pub use daemon::{daemon_line, daemon_text};
pub use doctor::doctor_text;
pub use events::events_text;
pub use explain::explain_text;
pub use graph::{graph_file_note, graph_warnings_text};
pub use json::{JsonReport, json, json_lines};
pub use knobs::prefetch_text;
pub use lab::{gups_text, pchase_text, stream_text, tlb_sweep_text};
pub use policy::{policy_line, policy_refusal};
pub use pool::{pool_change_text, pool_explained, pool_text};
pub use record::{process_count, record_text};
pub use result::result_report;
pub use run::run_text;
pub use schema::{Field, Shape, fields, json_schema};
pub use sentence::Sentence;
pub use settings::setting_warnings_text;
pub use sim::{more_decisions, presets_text, smallest_budget};
pub use status::{group_text, status_text};
pub use table::{Width, counted, grouped};
pub use top::{
    MappingStalls, TopColumn, TopScreen, draw_lines, draw_top, mapping_stalls_text, sort_top,
    top_text,
};
pub use trace::trace_text;
pub use tune::{tune_text, tune_texts};
pub use undo::undo_text;
