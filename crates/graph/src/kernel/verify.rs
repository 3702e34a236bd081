//! Errors that verifiers find in kernel results.

/// First violation that a verifier finds. Vertex IDs are those of the graph.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum VerifyError {
    /// A level has no entry in the level sizes.
    #[error("vertex {vertex} is at distance {level}, beyond the last level")]
    Level {
        /// Vertex.
        vertex: usize,
        /// Distance along its parents.
        level: u32,
    },
    /// A tree edge is not in the graph.
    #[error("no edge leads from {parent} to its child {vertex}")]
    TreeEdge {
        /// Parent.
        parent: usize,
        /// Child.
        vertex: usize,
    },
    /// A reachable vertex has no parent.
    #[error("vertex {vertex} has no parent, but an edge from the reached vertex {by}")]
    NotReached {
        /// Vertex.
        vertex: usize,
        /// Reached neighbour.
        by: usize,
    },
    /// An edge skips a level.
    #[error("vertex {vertex} is nearer through {by}")]
    Nearer {
        /// Vertex.
        vertex: usize,
        /// Neighbour on the shorter path.
        by: usize,
    },
    /// The level sizes do not match the parents.
    #[error("levels have {expected:?} vertices, not {found:?}")]
    LevelSizes {
        /// Sizes by the parents.
        expected: Vec<usize>,
        /// Sizes in the result.
        found: Vec<usize>,
    },
    /// The source is not its own parent.
    #[error("the source has parent {0}")]
    SourceParent(u64),
    /// The parents of a vertex form a cycle or leave the graph.
    #[error("the parents of vertex {0} form a cycle or leave the graph")]
    ParentCycle(usize),
    /// The parents of a vertex do not lead to the source.
    #[error("the parents of vertex {0} do not lead to the source")]
    Detached(usize),
    /// The distance of the source is not 0.
    #[error("the source is at distance {0} from itself")]
    SourceDistance(u64),
    /// An edge yields a shorter path.
    #[error("vertex {vertex} is at distance {distance} through {by}, not {found}")]
    Shorter {
        /// Vertex.
        vertex: usize,
        /// Neighbour on the shorter path.
        by: usize,
        /// Distance through the neighbour.
        distance: u128,
        /// Distance in the result.
        found: u128,
    },
    /// A vertex counts as unreachable in spite of a path.
    #[error("vertex {vertex} is at distance {distance} through {by}, not unreachable")]
    Unreached {
        /// Vertex.
        vertex: usize,
        /// Reached neighbour.
        by: usize,
        /// Distance through the neighbour.
        distance: u128,
    },
    /// No edge leads to a vertex by exactly its distance.
    #[error("no edge leads to vertex {vertex} at distance {distance}")]
    Unconfirmed {
        /// Vertex.
        vertex: usize,
        /// Distance in the result.
        distance: u64,
    },
    /// A label is not the least vertex of a component.
    #[error("vertex {vertex} has label {label}, which is not the least vertex of a component")]
    Label {
        /// Vertex.
        vertex: usize,
        /// Label in the result.
        label: usize,
    },
    /// An edge joins two components.
    #[error("an edge joins vertex {from} of component {label} and {to} of component {other}")]
    Joined {
        /// First vertex of the edge.
        from: usize,
        /// Its component.
        label: usize,
        /// Other vertex.
        to: usize,
        /// Its component.
        other: usize,
    },
    /// A component is not connected.
    #[error("vertex {vertex} is not reachable from {label}, the label of its component")]
    Disconnected {
        /// Vertex.
        vertex: usize,
        /// Label in the result.
        label: usize,
    },
    /// A score differs.
    #[error("vertex {vertex} has score {found}, expected {expected}")]
    Score {
        /// Vertex.
        vertex: usize,
        /// Score in the result.
        found: f64,
        /// Score of the verifier.
        expected: f64,
    },
    /// Ranks change too much in another iteration.
    #[error("one more iteration changes the ranks by {0}")]
    Change(f64),
    /// The number of triangles differs.
    #[error("{found} triangles, expected {expected}")]
    Count {
        /// Triangles in the result.
        found: u64,
        /// Triangles of the verifier.
        expected: u64,
    },
    /// No path joins the ends of the diameter.
    #[error("no path leads from {from} to {to}")]
    NoPath {
        /// First vertex.
        from: usize,
        /// Last vertex.
        to: usize,
    },
    /// The path of the diameter has another length.
    #[error("the shortest path from {from} to {to} has length {expected}, not {found}")]
    PathLength {
        /// First vertex.
        from: usize,
        /// Last vertex.
        to: usize,
        /// Length by the verifier.
        expected: usize,
        /// Length in the result.
        found: usize,
    },
}

/// Verdict of a verifier.
pub type Verdict = std::result::Result<(), VerifyError>;
