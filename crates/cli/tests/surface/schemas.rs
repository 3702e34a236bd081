//! Golden of the shapes of all JSON outputs: each field with its type.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hugepilot_cli::schema;
use hugepilot_render::{Field, fields};
use hugepilot_testkit::assert_golden;

/// A type that several outputs have in common is there once.
#[test]
fn the_shapes_of_all_outputs_are_the_golden() {
    let (mut lines, mut types) = (BTreeSet::new(), BTreeMap::new());
    for output in schema::names() {
        let schema = schema::schema(output).expect("a listed schema");
        for field in fields(&schema).into_iter().filter(|field| !field.kind.is_empty()) {
            let Field { owner, name, kind, .. } = field;
            let end = owner.find(['(', '.']).unwrap_or(owner.len());
            let definition = &schema["$defs"][&owner[..end]];
            let is_common = types.entry(owner[..end].to_owned()).or_insert(definition.clone());
            let owner = match end > 0 && is_common == definition {
                true => owner,
                false => format!("{output}/{owner}"),
            };
            lines.insert(format!("{owner}.{name}: {kind}\n"));
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes.txt");
    assert_golden(golden, &lines.into_iter().collect::<String>());
}
