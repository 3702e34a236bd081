//! Golden files: expected output of tests.

use std::path::Path;
use std::{env, fs};

/// Compares `got` with the golden file at `path`; rewrites the file if `BLESS=1`.
///
/// A relative path starts at the package of the test, the working directory that cargo sets.
///
/// # Panics
/// If they differ. The message shows the first line that differs.
#[track_caller]
pub fn assert_golden(path: impl AsRef<Path>, got: &str) {
    let path = path.as_ref();
    if env::var_os("BLESS").is_some_and(|value| value == "1") {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("the golden file's folder is writable");
        }
        fs::write(path, got).expect("the golden file is writable");
        return;
    }
    let want = match fs::read_to_string(path) {
        Ok(want) => want,
        Err(error) => panic!("{}: {error}; to write it, rerun with BLESS=1", path.display()),
    };
    if let Some(difference) = first_difference(&want, got) {
        panic!(
            "{} differs: {difference}\nif it is right, rerun with BLESS=1; whole output:\n{got}",
            path.display()
        );
    }
}

/// Describes the first line in which `want` and `got` differ; `None` if they are equal.
fn first_difference(want: &str, got: &str) -> Option<String> {
    if want == got {
        return None;
    }
    let (mut wants, mut gots) = (want.split('\n'), got.split('\n'));
    for line in 1.. {
        let (want, got) = (wants.next(), gots.next());
        if want != got {
            let show =
                |text: Option<&str>| text.map_or("the end".to_owned(), |text| format!("{text:?}"));
            return Some(format!("line {line}\n  want {}\n  got  {}", show(want), show(got)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_line_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let changed = first_difference("a\nb\n", "a\nc\n").unwrap();
        assert_eq!(changed, "line 2\n  want \"b\"\n  got  \"c\"");
        let longer = first_difference("a\n", "a\nb").unwrap();
        assert_eq!(longer, "line 2\n  want \"\"\n  got  \"b\"");
        let shorter = first_difference("a\nb", "a").unwrap();
        assert_eq!(shorter, "line 2\n  want \"b\"\n  got  the end");
    }
}
