//! Hugetlb pools: their state, and changes of their size.
//!
//! The kernel accepts any count and allocates as many pages as it can, so the result is read back.
//! Growth is requested one gigabyte at a time. Between two requests, signals and the memory left
//! are checked. A signal also ends the current request, and the pages allocated by then stay.

mod advice;
mod setter;

use hugepilot_kernel::{KernelError, Root, Unsupported, hugetlb};
use hugepilot_record::{Errno, PoolUnsupported};
use hugepilot_reports::pool::{Pool, PoolChange, PoolReport, SCHEMA};
use hugepilot_units::{Amount, Bytes};

use setter::Setter;

use crate::{SettingsError, lent_pool};

type Result<T> = std::result::Result<T, SettingsError>;

const EROFS: Errno = Errno(30);

/// Requested size of a pool, or of its part on one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolRequest {
    /// Page size.
    pub size: Bytes,
    /// Persistent pages.
    pub count: u64,
    /// NUMA node; `None` for the whole pool.
    pub node: Option<u32>,
    /// Memory that must stay available, in bytes or as a share of the total.
    pub floor: Amount,
    /// Whether to ignore the floor.
    pub force: bool,
    /// Whether to compact memory first.
    pub compact: bool,
    /// Whether to change nothing.
    pub dry_run: bool,
}

/// Kernel that holds the pools: the running one, or that of a test.
pub trait PoolKernel {
    /// Root of `/proc` and `/sys`.
    fn root(&self) -> &Root;
    /// Writes a setting.
    ///
    /// # Errors
    /// As [`Root::write`].
    fn write(&mut self, path: &str, text: &str) -> std::result::Result<(), KernelError>;
}

impl PoolKernel for Root {
    fn root(&self) -> &Root {
        self
    }
    fn write(&mut self, path: &str, text: &str) -> std::result::Result<(), KernelError> {
        Self::write(self, path, text)
    }
}

/// Reads every pool, its users, and the memory that pools allocate from. Takes a few milliseconds.
///
/// # Errors
/// If `/proc` or a pool cannot be read.
pub fn show(root: &Root) -> Result<PoolReport> {
    let pools = hugetlb::pools(root)?;
    let processes = hugetlb::users(root)?;
    let mut report = PoolReport {
        schema: SCHEMA.to_owned(),
        action: "show".to_owned(),
        memory: hugetlb::memory_of(root, None)?,
        mounts: hugetlb::mounts(root),
        pools,
        processes,
        warnings: Vec::new(),
    };
    report.warnings = advice::warnings(&report);
    Ok(report)
}

/// Sets the number of pages of a pool, and reads the result back. Calls `interrupted` between two
/// requests.
///
/// # Errors
/// [`SettingsError::Refused`] for an unknown size or node, or without permission; [`KernelError`]
/// of unreadable files. A shortfall is not an error; the report has its causes.
pub fn set(
    kernel: &mut dyn PoolKernel,
    request: &PoolRequest,
    interrupted: &dyn Fn() -> bool,
) -> Result<PoolChange> {
    let pool = find(kernel.root(), request)?;
    if !request.dry_run {
        may_set(kernel.root(), request)?;
    }
    let mut setter = Setter::new(kernel, *request, &pool)?;
    setter.reject_excess();
    if !request.dry_run && setter.change.is_complete() {
        setter.act(interrupted)?;
    }
    Ok(setter.finish())
}

fn find(root: &Root, request: &PoolRequest) -> Result<Pool> {
    let pools = hugetlb::pools(root)?;
    let sizes: Vec<Bytes> = pools.iter().map(|pool| pool.page_bytes).collect();
    let Some(pool) = pools.into_iter().find(|pool| pool.page_bytes == request.size) else {
        return Err(Unsupported::from(advice::no_such_size(root, request.size, sizes)).into());
    };
    match request.node {
        Some(node) if !pool.nodes.iter().any(|part| part.node == node) => {
            let nodes = pool.nodes.iter().map(|part| part.node).collect();
            let cause = PoolUnsupported::NoSuchNode { node, size_bytes: request.size, nodes };
            Err(Unsupported::from(cause).into())
        }
        _ => Ok(pool),
    }
}

fn may_set(root: &Root, request: &PoolRequest) -> Result<()> {
    if let Some(lent) = lent_pool(root, request.size) {
        return Err(Unsupported::from(advice::raised_by_run(request, lent)).into());
    }
    match hugetlb::may_set(root, request.size, request.node) {
        Ok(()) => Ok(()),
        Err(error) if error.is_denied() => {
            let command = advice::command(request, request.count);
            let cause = PoolUnsupported::RootRequired { error: error.to_string(), command };
            Err(Unsupported::from(cause).into())
        }
        Err(error) if error.errno() == Some(EROFS) => {
            let cause = PoolUnsupported::ReadOnly { error: error.to_string() };
            Err(Unsupported::from(cause).into())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
