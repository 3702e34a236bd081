//! Values of arguments that several benchmarks take.

use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// Arguments `[COUNT] [SIZE] [NAME…]`, of which each may end the list.
pub(super) struct Positional<'a> {
    /// Rounds, pairs or runs.
    pub(super) count: usize,
    /// Size, or another word that has a default.
    pub(super) size: &'a str,
    /// Words after it.
    pub(super) names: &'a [&'a str],
}

impl<'a> Positional<'a> {
    /// Reads the arguments; a count is at least `least`.
    pub(super) fn read(
        args: &'a [&'a str],
        (count, least): (usize, usize),
        size: &'a str,
    ) -> Result<Self> {
        let count = args.first().map_or(Ok(count), |text| number("the first argument", text))?;
        ensure!(count >= least, "fewer than {least} rounds show no spread");
        let size = args.get(1).copied().unwrap_or(size);
        Ok(Self { count, size, names: args.get(2..).unwrap_or_default() })
    }

    /// The members of `all` that are named; without a name, all.
    pub(super) fn chosen<T>(&self, all: &'a [T], name: fn(&T) -> &str) -> Result<Vec<&'a T>> {
        let (names, known) = (self.names, all.iter().map(name).collect::<Vec<_>>());
        if let Some(unknown) = names.iter().find(|wanted| !known.contains(wanted)) {
            bail!("no {unknown:?}; choices: {}", known.join(", "));
        }
        Ok(all.iter().filter(|one| names.is_empty() || names.contains(&name(one))).collect())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_defaults_and_names_are_known() {
        let read = |args| Positional::read(args, (7, 5), "1GiB");
        let usual = read(&[]).unwrap();
        assert_eq!((usual.count, usual.size, usual.names.len()), (7, "1GiB", 0));
        let all = ["a", "b", "c"];
        assert_eq!(usual.chosen(&all, |one| one).unwrap(), [&"a", &"b", &"c"]);
        let words = read(&["5", "2GiB", "c", "a"]).unwrap();
        assert_eq!((words.count, words.size), (5, "2GiB"));
        assert_eq!(words.chosen(&all, |one| one).unwrap(), [&"a", &"c"]);
        assert!(words.chosen(&all[..1], |one| one).is_err());
        assert!(read(&["4"]).is_err() && read(&["x"]).is_err());
    }
}
