//! Documents of sections, tables and plots, and the formats that print them: text, HTML, Markdown,
//! CSV, SVG and OpenMetrics; JSON of records, and its schemas. Pure: the same document prints the
//! same text on any machine.

#![forbid(unsafe_code)]

pub mod back_end;
pub mod json;
pub mod model;
pub mod schema;
pub mod sentence;
pub mod table;

pub use back_end::{command_text, document_text};
pub use hugepilot_record::Sentence;
pub use json::{JsonReport, json, json_lines};
pub use schema::{Field, Shape, fields, json_schema};
pub use table::{Width, counted, grouped, process_count};
