//! Flags, policies and schemas that the documents name: they exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use clap::Command;
use hugepilot_cli::schema;
use hugepilot_record::PolicyName;
use hugepilot_reports::policy_line;

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

/// Adds the long flags of a command.
fn add_flags(flags: &mut BTreeSet<String>, command: &Command) {
    for arg in command.get_arguments() {
        let names = arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
        flags.extend(names.map(|name| format!("--{name}")));
    }
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
    // clap adds these to each command.
    let mut known: BTreeSet<String> = ["--help", "--version"].map(str::to_owned).into();
    add_flags(&mut known, &hugepilot_cli::command());
    for (_, command) in hugepilot_cli::leaves() {
        add_flags(&mut known, &command);
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
                assert!(known.contains(flag), "docs/cli.md, {}: {flag}", section.title);
            }
        }
    }
}

/// `lab run` and `lab merge` in the scripts for clusters.
#[test]
fn every_flag_in_the_scripts_exists_in_its_command() {
    let leaves = hugepilot_cli::leaves();
    for script in ["slurm.sh", "parallel.sh", "kubernetes.yaml"] {
        let path = Path::new(ROOT).join("docs/examples/lab").join(script);
        let text = fs::read_to_string(path).unwrap().replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let mut found = BTreeSet::new();
        for words in lines.flat_map(|line| line.split("hugepilot ").skip(1)) {
            let (name, command) =
                leaves.iter().find(|(name, _)| words.starts_with(&format!("{name} "))).unwrap();
            let mut known = BTreeSet::new();
            add_flags(&mut known, command);
            let short = command.get_arguments().filter_map(|arg| arg.get_short());
            known.extend(short.map(|flag| format!("-{flag}")));
            let unknown: Vec<&str> = flags_in(words).filter(|&one| !known.contains(one)).collect();
            assert_eq!(unknown, [""; 0], "{script}: {words}");
            found.insert(name.as_str());
        }
        assert_eq!(found, ["lab merge", "lab run"].into(), "{script}");
    }
}

#[test]
fn every_schema_is_documented_under_its_name_and_version() {
    let page = page();
    let mut documented = BTreeSet::new();
    for section in &page {
        let lines = section.blocks.iter().filter_map(|block| match block {
            Block::Text(line) => Some(line),
            Block::Code(_) | Block::Table(_) => None,
        });
        let named = lines.flat_map(|line| spans(line)).filter_map(|span| {
            let (name, _) = span.strip_prefix("hugepilot.")?.split_once('/')?;
            Some((name, span))
        });
        for (name, id) in named.filter(|(name, _)| schema::names().any(|known| known == *name)) {
            assert_eq!(schema::schema(name).unwrap()["title"], id, "docs/cli, {}", section.title);
            documented.insert(name);
        }
    }
    assert_eq!(documented, schema::names().collect(), "a page names each schema");
}

#[test]
fn every_option_and_every_field_has_a_description() {
    for (name, command) in hugepilot_cli::leaves() {
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(!help.is_empty(), "{name}: {}", arg.get_id());
        }
    }
    let mut missing = BTreeSet::new();
    for name in schema::names() {
        for field in hugepilot_render::fields(&schema::schema(name).unwrap()) {
            // A tag, or the only field of a variant, whose description is that of the variant.
            let is_tag = field.kind.starts_with('"')
                || field.owner.ends_with(&format!("({})", field.name.trim_end_matches('?')));
            if !field.name.is_empty() && field.about.is_empty() && !is_tag {
                missing.insert(format!("{}.{}", field.owner, field.name));
            }
        }
    }
    assert!(missing.is_empty(), "without a doc comment: {missing:#?}");
}
