//! Back ends of the report model. Each escapes texts for its own format.

mod csv;
mod escape;
mod html;
mod markdown;
mod openmetrics;
mod spark;
mod svg;
mod text;

pub use csv::csv;
pub use html::html;
pub use markdown::markdown;
pub use openmetrics::openmetrics;
pub use svg::svg;
pub use text::{command_text, document_text, text};

pub use escape::printable;
