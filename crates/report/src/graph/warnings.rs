//! Sentences of warnings.

use hugepilot_record::graph::GraphWarning;

use super::count;
use crate::sentence::Sentence;

impl Sentence for GraphWarning {
    fn text(&self) -> String {
        observation(self)
    }
    fn help(&self) -> Vec<String> {
        vec![help(self)]
    }
}

fn observation(warning: &GraphWarning) -> String {
    match warning {
        GraphWarning::VertexIdGaps { vertices, unused_ids } => format!(
            "{} of {} vertices have no edge, because their IDs do not occur in the file; each \
             array per vertex has room for them",
            count(*unused_ids),
            count(*vertices)
        ),
        GraphWarning::StatedCountDiffers { what, stated, found } => {
            format!("a comment states {} {what}, the file has {}", count(*stated), count(*found))
        }
        GraphWarning::IdsShifted { format, input_first_id, output_first_id } => format!(
            "{format} counts vertex IDs from {output_first_id}, the input from {input_first_id}"
        ),
        GraphWarning::DirectionsDropped { format } => {
            format!("{format} does not store that the edges have a direction")
        }
        GraphWarning::WeightsDropped { format, .. } => {
            format!("{format} does not store weights; the file has none")
        }
        GraphWarning::IsolatedVerticesDropped { format, dropped, vertices, .. } => format!(
            "{format} does not store vertices without edges; {dropped} of {vertices} are not in \
             the file"
        ),
        GraphWarning::StaleMap { path } => {
            format!("{path} is from an earlier command; it does not belong to the new file")
        }
    }
}

fn help(warning: &GraphWarning) -> String {
    match warning {
        GraphWarning::VertexIdGaps { .. } => {
            "relabel vertices to consecutive IDs: --compact".to_owned()
        }
        GraphWarning::StatedCountDiffers { .. } => {
            "check that the file is complete: compare its size with its origin".to_owned()
        }
        GraphWarning::IdsShifted { .. } => "keep the IDs of the input: --to hpg".to_owned(),
        GraphWarning::DirectionsDropped { .. } => {
            "state it when reading the file: --directed".to_owned()
        }
        GraphWarning::WeightsDropped { weighted_format, .. } => {
            format!("store them: --to {weighted_format}")
        }
        GraphWarning::IsolatedVerticesDropped { original_ids: true, .. } => {
            "store them: --to hpg".to_owned()
        }
        GraphWarning::IsolatedVerticesDropped { vertices, .. } => {
            format!("restore them when reading the file: --vertices {vertices}")
        }
        GraphWarning::StaleMap { path } => format!("remove it: rm {path}"),
    }
}
