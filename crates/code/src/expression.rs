//! Small arithmetic expressions over the sampled registers.

use super::regs::{Gpr, Regs};

/// Limit of nodes in an expression; real address computations need a handful.
const MAX_NODES: usize = 64;

/// A node of an [`Exprs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(u8);

/// An operation with one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Neg,
    /// Keeps the low 8, 16 or 32 bits.
    Zero8,
    Zero16,
    Zero32,
    /// Sign-extends the low 8, 16 or 32 bits.
    Sign8,
    Sign16,
    Sign32,
    Swap32,
    Swap64,
}

/// An operation with two inputs, on 64 bits unless its name has 32. Shift counts are taken modulo
/// the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    And,
    Or,
    Xor,
    Mul,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    RotateLeft,
    RotateLeft32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Register(Gpr),
    Constant(u64),
    One(Unary, NodeId),
    Two(Binary, NodeId, NodeId),
}

/// Expressions under construction. A node refers only to earlier ones, and equal nodes are shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Exprs {
    nodes: Vec<Node>,
}

impl Exprs {
    /// Adds the sampled value of a register.
    pub(super) fn register(&mut self, register: Gpr) -> Option<NodeId> {
        self.push(Node::Register(register))
    }
    /// Adds a constant.
    pub(super) fn constant(&mut self, value: u64) -> Option<NodeId> {
        self.push(Node::Constant(value))
    }
    /// Adds `op(a)`.
    pub(super) fn one(&mut self, op: Unary, a: NodeId) -> Option<NodeId> {
        self.push(match self.known(a) {
            Some(a) => Node::Constant(op.apply(a)),
            None => Node::One(op, a),
        })
    }
    /// Adds `op(a, b)`.
    pub(super) fn two(&mut self, op: Binary, a: NodeId, b: NodeId) -> Option<NodeId> {
        self.push(match (self.known(a), self.known(b)) {
            (Some(a), Some(b)) => Node::Constant(op.apply(a, b)),
            _ => Node::Two(op, a, b),
        })
    }

    /// Returns the number of nodes, for [`Exprs::forget`].
    pub(super) fn mark(&self) -> usize {
        self.nodes.len()
    }
    /// Drops all nodes after `mark`, so that a failed attempt takes no room from the next.
    pub(super) fn forget(&mut self, mark: usize) {
        self.nodes.truncate(mark);
    }

    /// Returns the expression with root `root`, without unused nodes.
    pub(super) fn finish(&self, root: NodeId) -> Expression {
        let last = usize::from(root.0);
        let mut used = [false; MAX_NODES];
        used[last] = true;
        for (at, node) in self.nodes.iter().enumerate().take(last + 1).rev() {
            if used[at] {
                let (a, b) = node.inputs();
                for input in [a, b].into_iter().flatten() {
                    used[usize::from(input.0)] = true;
                }
            }
        }
        let mut place = [NodeId(0); MAX_NODES];
        let mut nodes = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().take(last + 1).filter(|(at, _)| used[*at]) {
            place[at] = NodeId(nodes.len() as u8);
            nodes.push(node.moved(&place));
        }
        Expression { nodes }
    }

    fn known(&self, id: NodeId) -> Option<u64> {
        match self.nodes.get(usize::from(id.0)) {
            Some(Node::Constant(value)) => Some(*value),
            _ => None,
        }
    }

    fn push(&mut self, node: Node) -> Option<NodeId> {
        if let Some(same) = self.nodes.iter().position(|other| *other == node) {
            return u8::try_from(same).ok().map(NodeId);
        }
        let id = u8::try_from(self.nodes.len()).ok().filter(|&id| usize::from(id) < MAX_NODES)?;
        self.nodes.push(node);
        Some(NodeId(id))
    }
}

/// A finished expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    /// Inputs before their users; the last node is the value.
    nodes: Vec<Node>,
}

impl Expression {
    /// Returns the value for these registers. Allocates nothing.
    pub(super) fn value(&self, regs: &Regs) -> u64 {
        let mut values = [0_u64; MAX_NODES];
        let mut last = 0;
        for (at, node) in self.nodes.iter().enumerate() {
            let of = |id: NodeId| values[usize::from(id.0)];
            last = match *node {
                Node::Register(register) => regs.gpr(register),
                Node::Constant(value) => value,
                Node::One(op, a) => op.apply(of(a)),
                Node::Two(op, a, b) => op.apply(of(a), of(b)),
            };
            values[at] = last;
        }
        last
    }
}

impl Node {
    fn inputs(self) -> (Option<NodeId>, Option<NodeId>) {
        match self {
            Self::Register(_) | Self::Constant(_) => (None, None),
            Self::One(_, a) => (Some(a), None),
            Self::Two(_, a, b) => (Some(a), Some(b)),
        }
    }
    fn moved(self, place: &[NodeId; MAX_NODES]) -> Self {
        let to = |id: NodeId| place[usize::from(id.0)];
        match self {
            Self::Register(_) | Self::Constant(_) => self,
            Self::One(op, a) => Self::One(op, to(a)),
            Self::Two(op, a, b) => Self::Two(op, to(a), to(b)),
        }
    }
}

// These operations truncate values on purpose.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
impl Unary {
    fn apply(self, a: u64) -> u64 {
        match self {
            Self::Not => !a,
            Self::Neg => a.wrapping_neg(),
            Self::Zero8 => u64::from(a as u8),
            Self::Zero16 => u64::from(a as u16),
            Self::Zero32 => u64::from(a as u32),
            Self::Sign8 => a as i8 as u64,
            Self::Sign16 => a as i16 as u64,
            Self::Sign32 => a as i32 as u64,
            Self::Swap32 => u64::from((a as u32).swap_bytes()),
            Self::Swap64 => a.swap_bytes(),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]
impl Binary {
    fn apply(self, a: u64, b: u64) -> u64 {
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Mul => a.wrapping_mul(b),
            Self::ShiftLeft => a.wrapping_shl(b as u32),
            Self::ShiftRight => a.wrapping_shr(b as u32),
            Self::ShiftRightSigned => (a as i64).wrapping_shr(b as u32) as u64,
            Self::RotateLeft => a.rotate_left((b & 63) as u32),
            Self::RotateLeft32 => u64::from((a as u32).rotate_left((b & 31) as u32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_keeps_only_what_it_uses() {
        let mut exprs = Exprs::default();
        let rax = exprs.register(Gpr::RAX).unwrap();
        let unused = exprs.register(Gpr::RDX).unwrap();
        let _ = exprs.one(Unary::Not, unused).unwrap();
        let four = exprs.constant(4).unwrap();
        let sum = exprs.two(Binary::Add, rax, four).unwrap();
        let built = exprs.finish(sum);
        assert_eq!(built.nodes.len(), 3);
        let mut gpr = [0; 16];
        gpr[0] = u64::MAX;
        assert_eq!(built.value(&Regs::new(0, gpr)), 3);
    }

    #[test]
    fn constants_fold_and_room_is_bounded() {
        let mut exprs = Exprs::default();
        let (a, b) = (exprs.constant(6).unwrap(), exprs.constant(7).unwrap());
        let product = exprs.two(Binary::Mul, a, b).unwrap();
        assert_eq!(exprs.finish(product).nodes, [Node::Constant(42)]);
        let made = (0..1000).filter_map(|value| exprs.constant(value)).count();
        assert!(made <= MAX_NODES, "{made}");
        exprs.forget(0);
        assert!(exprs.register(Gpr::RSP).is_some());
    }
}
