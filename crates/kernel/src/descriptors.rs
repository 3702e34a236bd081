//! How many files we may have open: two are held for each process, and one for each of its threads while it is sampled.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises our limit on open files (`ulimit -n`) as far as it goes without a right. Where that fails, the old one holds.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let limit = getrlimit(Resource::Nofile);
        let below = Some(limit.maximum.map_or(1 << 16, |most| most - 1));
        setrlimit(Resource::Nofile, Rlimit { current: below, ..limit }).unwrap();
        raise_limit();
        let raised = getrlimit(Resource::Nofile);
        assert_eq!((raised.current, raised.maximum), (limit.maximum, limit.maximum));
        setrlimit(Resource::Nofile, limit).unwrap();
    }
}
