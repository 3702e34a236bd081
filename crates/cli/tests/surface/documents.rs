//! Flags and JSON fields in docs/cli.md: all are there, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use clap::Command;
use hugepilot_cli::schema;
use hugepilot_record::PolicyName;
use hugepilot_report::policy_line;
use serde_json::Value;

use crate::ROOT;
use crate::markdown::{Block, Section, deeper, sections, spans};

/// The sections of docs/cli.md, and the pages in docs/cli, each as a section.
fn page() -> Vec<Section> {
    let docs = Path::new(ROOT).join("docs");
    let mut page = sections(&fs::read_to_string(docs.join("cli.md")).unwrap());
    for entry in fs::read_dir(docs.join("cli")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        page.extend(sections(&deeper(&text)));
    }
    page
}

/// Flags of a command: those that documents must have, and those that they may have.
#[derive(Debug, Default)]
struct Flags {
    visible: BTreeSet<String>,
    all: BTreeSet<String>,
}

impl Flags {
    fn add(&mut self, command: &Command) {
        for arg in command.get_arguments() {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let short = arg.get_short().map(|short| format!("-{short}"));
            let aliases = arg.get_all_aliases().unwrap_or_default();
            let names: Vec<String> = long.into_iter().chain(short).collect();
            self.all.extend(aliases.into_iter().map(|alias| format!("--{alias}")));
            self.all.extend(names.clone());
            if !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version") {
                self.visible.extend(names);
            }
        }
    }
}

/// Flags of the commands that a section of the page is about.
fn flags_of_sections(page: &[Section]) -> BTreeMap<&str, Flags> {
    let mut flags: BTreeMap<&str, Flags> = BTreeMap::new();
    for (name, command) in hugepilot_cli::leaves() {
        let is_about = |title: &str| {
            name.strip_prefix(title).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let sections = page.iter().filter(|section| is_about(&section.title));
        let section = sections
            .max_by_key(|section| section.title.len())
            .unwrap_or_else(|| panic!("docs/cli.md has no section about `{name}`"));
        flags.entry(&section.title).or_default().add(&command);
    }
    flags
}

/// Names of flags in text, such as `--pid` in `--pid PID`.
fn flags_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split([' ', '[', ']', '=', '(', ')', '`', ',']);
    words.map(|word| word.trim_end_matches('.')).filter(|word| {
        word.strip_prefix("--").is_some_and(|name| name.starts_with(char::is_alphabetic))
            || word.len() == 2 && word.starts_with('-') && word.ends_with(char::is_alphabetic)
    })
}

#[test]
fn tables_have_the_flags_of_each_command_and_no_others() {
    let page = page();
    for (title, flags) in flags_of_sections(&page) {
        let section = page.iter().find(|section| section.title == title).unwrap();
        let rows = section.tables("flag").flat_map(|table| &table.rows);
        let documented: BTreeSet<String> =
            rows.flat_map(|row| spans(&row[0]).flat_map(flags_in)).map(str::to_owned).collect();
        let missing: Vec<_> = flags.visible.difference(&documented).collect();
        assert!(missing.is_empty(), "docs/cli, {title}: no row for {missing:?}");
        let unknown: Vec<_> = documented.difference(&flags.all).collect();
        assert!(unknown.is_empty(), "docs/cli, {title}: no such flags: {unknown:?}");
    }
}

#[test]
fn policies_are_documented_as_the_registry_has_them() {
    let text = fs::read_to_string(Path::new(ROOT).join("docs/policies.md")).unwrap();
    let sections = sections(&text);
    let names = sections.iter().find(|section| section.title == "Names").unwrap();
    let rows: Vec<[String; 3]> = names
        .tables("name")
        .flat_map(|table| &table.rows)
        .map(|row| [0, 1, 2].map(|cell| row[cell].trim().to_owned()))
        .collect();
    let documented = PolicyName::ALL.map(|name| {
        let verb = match (name.promotes(), name.splits()) {
            (true, true) => "both",
            (true, false) => "`tune`",
            _ => "`debloat`",
        };
        [format!("`{name}`"), policy_line(name).to_owned(), verb.to_owned()]
    });
    assert_eq!(rows, documented);
    for name in PolicyName::ALL.into_iter().filter(|name| name.promotes()) {
        assert!(sections.iter().any(|section| section.title == name.as_str()), "{name}");
    }
    let values = |command: &str, flag: &str| -> Vec<String> {
        let (_, command) =
            hugepilot_cli::leaves().into_iter().find(|(name, _)| name == command).unwrap();
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
        let shown = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
        shown.map(|value| value.get_name().to_owned()).collect()
    };
    let of = |is_of: fn(PolicyName) -> bool| -> BTreeSet<String> {
        PolicyName::ALL
            .into_iter()
            .filter(|&name| is_of(name))
            .map(|name| name.to_string())
            .collect()
    };
    let set = |values: Vec<String>| values.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(set(values("tune", "policy")), of(PolicyName::promotes));
    assert_eq!(set(values("debloat", "order")), of(PolicyName::splits));
}

#[test]
fn every_flag_in_the_text_exists() {
    let page = page();
    let mut known = Flags::default();
    known.add(&hugepilot_cli::command());
    for (_, command) in hugepilot_cli::leaves() {
        known.add(&command);
    }
    for section in &page {
        for block in &section.blocks {
            let flags = match block {
                Block::Text(line) => spans(line).flat_map(flags_in).collect::<Vec<_>>(),
                Block::Code(line) if line.contains("hugepilot ") && !line.contains(':') => {
                    flags_in(line.split(" -- ").next().unwrap_or_default()).collect()
                }
                Block::Code(_) => Vec::new(),
                Block::Table(table) => table
                    .rows
                    .iter()
                    .flatten()
                    .flat_map(|cell| spans(cell))
                    .flat_map(flags_in)
                    .collect(),
            };
            for flag in flags.into_iter().filter(|flag| flag.starts_with("--")) {
                assert!(known.all.contains(flag), "docs/cli.md, {}: {flag}", section.title);
            }
        }
    }
}

/// JSON fields that the page documents for a schema.
#[derive(Debug, Default)]
struct Fields {
    /// Paths such as `modes[].runs`.
    paths: BTreeSet<String>,
    /// Ends of paths, of `*.median` `.median`.
    ends: BTreeSet<String>,
}

impl Fields {
    fn add(&mut self, cell: &str) {
        let mut parent = "";
        for span in spans(cell) {
            if let Some(end) = span.strip_prefix('*') {
                self.ends.insert(end.to_owned());
            } else if span.starts_with('.') {
                self.add_path(&format!("{parent}{span}"));
            } else {
                parent = span.rsplit_once('.').map_or("", |(parent, _)| parent);
                self.add_path(span);
            }
        }
    }

    fn add_path(&mut self, path: &str) {
        self.paths.insert(path.trim_end_matches("[]").to_owned());
    }

    /// Whether `path` is documented: itself, a field below it, or the object that it is in, such
    /// as one that is the same elsewhere.
    fn has(&self, path: &str) -> bool {
        let is_inside = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        let is_near = |field: &String| is_inside(field, path) || is_inside(path, field);
        let is_end = |end: &String| path.ends_with(&**end);
        self.paths.contains(path) || self.paths.iter().any(is_near) || self.ends.iter().any(is_end)
    }
}

/// Fields on the page by name of the schema, and under the empty name those of all schemas.
fn fields_by_schema(page: &[Section]) -> BTreeMap<String, Fields> {
    let mut all: BTreeMap<String, Fields> = BTreeMap::new();
    for section in page {
        let mut name = String::new();
        for block in &section.blocks {
            match block {
                Block::Text(line) => {
                    let id = spans(line).find_map(|span| span.strip_prefix("hugepilot."));
                    if let (true, Some(id)) = (line.starts_with("Schema `"), id) {
                        name = id.split('/').next().unwrap_or_default().to_owned();
                        let title = schema::text(&name).map(|_| schema(&name)["title"].clone());
                        assert!(
                            title.is_none_or(|title| title == format!("hugepilot.{id}")),
                            "docs/cli.md: {line}"
                        );
                    }
                }
                Block::Table(table) if table.header[0] == "field" => {
                    let fields = all.entry(name.clone()).or_default();
                    table.rows.iter().for_each(|row| fields.add(&row[0]));
                }
                _ => {}
            }
        }
    }
    all
}

fn schema(name: &str) -> Value {
    let text = schema::text(name).unwrap_or_else(|| panic!("docs/cli.md: no schema {name}"));
    serde_json::from_str(&text).unwrap()
}

/// Paths of all fields that a schema describes; of a type inside itself only the first.
struct Paths<'a> {
    root: &'a Value,
    open: Vec<&'a str>,
    found: BTreeSet<String>,
    /// Sentences, and facts beside a `code`, which documents may leave to the schema.
    facts: BTreeSet<String>,
}

impl<'a> Paths<'a> {
    fn of(root: &'a Value) -> Self {
        let (found, facts) = (BTreeSet::new(), BTreeSet::new());
        let mut paths = Paths { root, open: Vec::new(), found, facts };
        paths.add(root, "", false);
        paths
    }

    fn add(&mut self, part: &'a Value, prefix: &str, is_fact: bool) {
        let is_fact = is_fact || part["properties"]["code"]["const"].is_string();
        if let Some(target) = part["$ref"].as_str().filter(|target| !self.open.contains(target)) {
            self.open.push(target);
            self.add(self.root.pointer(&target[1..]).expect("a target of $ref"), prefix, is_fact);
            self.open.pop();
        }
        for branch in ["oneOf", "anyOf", "allOf"].iter().filter_map(|&key| part[key].as_array()) {
            branch.iter().for_each(|branch| self.add(branch, prefix, is_fact));
        }
        if part["items"].is_object() {
            self.add(&part["items"], &format!("{prefix}[]"), is_fact);
        }
        for (name, field) in part["properties"].as_object().into_iter().flatten() {
            let dot = if prefix.is_empty() { "" } else { "." };
            let path = format!("{prefix}{dot}{name}");
            self.add(field, &path, is_fact);
            if is_fact || !prefix.is_empty() && matches!(&**name, "text" | "help") {
                self.facts.insert(path.clone());
            }
            self.found.insert(path);
        }
    }
}

#[test]
fn tables_have_the_fields_of_each_schema_and_no_others() {
    let documented = fields_by_schema(&page());
    let general = &documented[""];
    for name in schema::names() {
        let Some(fields) = documented.get(name) else {
            panic!("docs/cli.md has no table of the fields of {name}")
        };
        let schema = schema(name);
        let paths = Paths::of(&schema);
        let is_known = |path: &&String| paths.found.contains(*path);
        let unknown: Vec<_> = fields.paths.iter().filter(|path| !is_known(path)).collect();
        assert!(unknown.is_empty(), "docs/cli.md: {name} has no fields {unknown:#?}");
        for end in &fields.ends {
            assert!(paths.found.iter().any(|path| path.ends_with(end)), "docs/cli, {name}: *{end}");
        }
        let is_missing = |path: &&String| !fields.has(path) && !general.has(path);
        let missing: Vec<_> = paths.found.difference(&paths.facts).filter(is_missing).collect();
        assert!(missing.is_empty(), "docs/cli, {name}: no row for {missing:#?}");
    }
}
