//! Limit on open files. Each process takes two, and while it is sampled, each of its threads takes
//! one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files (`ulimit -n`) to the hard one. If that fails, the old limit
/// stays.
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
