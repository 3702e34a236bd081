//! Goldens of the JSON Schemas, which users read in docs/schema.

use std::path::Path;

use hugepilot_cli::schema;
use hugepilot_testkit::assert_golden;

use crate::{ROOT, assert_files};

#[test]
fn the_schemas_are_those_in_the_documents() {
    let folder = Path::new(ROOT).join("docs/schema");
    for name in schema::names() {
        let text = schema::text(name).expect("a listed schema");
        assert_golden(folder.join(format!("{name}.json")), &text);
    }
    assert_files(&folder, &schema::names().map(|name| format!("{name}.json")).collect());
}
