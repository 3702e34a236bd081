//! Values of arguments that several benchmarks take.

use std::str::FromStr;

use anyhow::{Context, Result};

/// Number of an option.
pub(super) fn number<T: FromStr>(option: &str, text: &str) -> Result<T> {
    text.parse().ok().with_context(|| format!("{option} takes a number, not {text:?}"))
}

/// Members of `all` by their names, separated by commas. `what` is such a member in an error.
pub(super) fn choices<T: Copy>(
    text: &str,
    what: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>> {
    let choice = |wanted: &str| {
        all.iter().copied().find(|&one| name(one) == wanted).with_context(|| {
            let names: Vec<&str> = all.iter().map(|&one| name(one)).collect();
            format!("no {what} {wanted:?}; {what}s: {}", names.join(", "))
        })
    };
    text.split(',').map(choice).collect()
}
