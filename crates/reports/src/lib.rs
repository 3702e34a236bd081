//! Report of each command, a module each: its facts, which `--json` prints, its text and its
//! document. Pure: the same facts print the same text on any machine.

#![forbid(unsafe_code)]

pub mod compare;
pub mod daemon;
pub mod debloat;
pub mod doctor;
pub mod experiment;
pub mod explain;
pub mod graph;
mod kernel_reason;
pub mod knobs;
pub mod lab;
mod obstacle;
mod policy;
pub mod pool;
mod result;
pub mod run;
pub mod settings;
pub mod shrink;
pub mod sim;
pub mod status;
pub mod top;
pub mod trace;
pub mod tune;
pub mod undo;

pub use daemon::text::{daemon_line, daemon_text};
pub use doctor::text::doctor_text;
pub use explain::text::{explain_text, origin};
pub use graph::text::{graph_file_note, graph_warnings_text};
pub use knobs::text::prefetch_text;
pub use lab::text::{gups_text, pchase_text, stream_text, tlb_sweep_text};
pub use lab::weather::text::{
    fragment_text, page_cache_text, pressure_text, quiet_text, warm_text,
};
pub use policy::{policy_line, policy_refusal};
pub use pool::text::{pool_change_text, pool_explained, pool_text};
pub use result::{result_report, value_report};
pub use run::text::run_text;
pub use settings::text::setting_warnings_text;
pub use sim::text::{more_decisions, presets_text, smallest_budget};
pub use status::text::{group_text, status_text};
pub use top::text::{
    MappingStalls, TopColumn, TopScreen, draw_lines, draw_top, mapping_stalls_text, sort_top,
    top_text,
};
pub use trace::text::trace_text;
pub use tune::text::{tune_text, tune_texts};
pub use undo::text::undo_text;

use hugepilot_record::Sentence;
