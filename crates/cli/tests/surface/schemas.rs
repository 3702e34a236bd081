//! Golden of the shapes of all JSON outputs: each field with its type.

use std::collections::BTreeSet;
use std::path::Path;

use hugepilot_cli::schema;
use hugepilot_report::fields;
use hugepilot_testkit::assert_golden;

/// A type that several outputs have is there once.
#[test]
fn the_shapes_of_all_outputs_are_the_golden() {
    let mut lines = BTreeSet::new();
    for output in schema::names() {
        for field in fields(&schema::schema(output).expect("a listed schema")) {
            let root = format!("{output}/");
            let owner = if field.owner.is_empty() { &root } else { &field.owner };
            lines.insert(format!("{owner}.{}: {}\n", field.name, field.kind));
        }
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes.txt");
    assert_golden(golden, &lines.into_iter().collect::<String>());
}
