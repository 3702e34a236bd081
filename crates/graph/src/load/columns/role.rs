//! Roles of columns by their names.

/// Role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Source,
    Target,
    Weight,
    Kind,
    /// A column that is never an end of an edge.
    Other,
    Unknown,
}

/// Names of columns in lower case, without other characters than letters and digits.
const NAMES: [(Role, &[&str]); 5] = [
    (
        Role::Source,
        &[
            "source",
            "src",
            "from",
            "fromnode",
            "fromnodeid",
            "fromid",
            "sourceid",
            "srcid",
            "u",
            "node1",
            "v1",
            "id1",
            "start",
            "startid",
            "nodea",
        ],
    ),
    (
        Role::Target,
        &[
            "target",
            "dst",
            "dest",
            "destination",
            "to",
            "tonode",
            "tonodeid",
            "toid",
            "targetid",
            "dstid",
            "v",
            "node2",
            "v2",
            "id2",
            "end",
            "endid",
            "nodeb",
        ],
    ),
    (
        Role::Weight,
        &[
            "weight", "weights", "w", "wt", "value", "val", "cost", "length", "len", "distance",
            "dist", "capacity", "cap", "rating", "strength",
        ],
    ),
    (Role::Kind, &["type"]),
    (
        Role::Other,
        &[
            "",
            "id",
            "edgeid",
            "edge",
            "index",
            "label",
            "time",
            "timestamp",
            "timeset",
            "date",
            "name",
            "key",
            "attributes",
            "color",
        ],
    ),
];

impl Role {
    pub(super) fn of(name: &str) -> Self {
        let plain: String =
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let known = NAMES.iter().find(|(_, names)| names.contains(&&*plain));
        known.map_or(Self::Unknown, |(role, _)| *role)
    }
}
