//! The parts of a Markdown document that tests compare with the program.

/// Section of the second level, with the tables of its subsections.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

#[derive(Debug)]
pub(crate) enum Block {
    /// Line of text.
    Text(String),
    /// Line of fenced code.
    Code(String),
    Table(Table),
}

/// Table; cells are trimmed.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// `document` with each heading one level deeper.
pub(crate) fn deeper(document: &str) -> String {
    let (mut text, mut fenced) = (String::new(), false);
    for line in document.lines() {
        fenced ^= line.starts_with("```");
        text.push_str(if line.starts_with('#') && !fenced { "#" } else { "" });
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// The sections of `document`.
pub(crate) fn sections(document: &str) -> Vec<Section> {
    let (mut sections, mut fenced) = (Vec::<Section>::new(), false);
    for line in document.lines() {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        if let (Some(title), false) = (line.strip_prefix("## "), fenced) {
            sections.push(Section { title: title.to_owned(), blocks: Vec::new() });
        }
        let Some(Section { blocks, .. }) = sections.last_mut() else { continue };
        if fenced {
            blocks.push(Block::Code(line.to_owned()));
        } else if line.starts_with('|') {
            add_row(blocks, cells(line));
        } else if !is_fence {
            blocks.push(Block::Text(line.to_owned()));
        }
    }
    sections
}

fn add_row(blocks: &mut Vec<Block>, cells: Vec<String>) {
    match blocks.last_mut() {
        Some(Block::Table(_)) if cells.iter().all(|cell| cell.starts_with("---")) => {}
        Some(Block::Table(table)) => table.rows.push(cells),
        _ => blocks.push(Block::Table(Table { header: cells, rows: Vec::new() })),
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The code spans of a line.
pub(crate) fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

impl Section {
    /// Tables whose first column has this name.
    pub(crate) fn tables(&self, column: &str) -> impl Iterator<Item = &Table> {
        self.blocks.iter().filter_map(move |block| match block {
            Block::Table(table) if table.header[0] == column => Some(table),
            _ => None,
        })
    }
}
