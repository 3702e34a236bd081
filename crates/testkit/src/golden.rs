//! Expected output, kept in files.

use std::path::Path;
use std::{env, fs};

/// Compares `got` with the golden file at `path`, or rewrites the file when `BLESS=1`.
///
/// A relative path starts at the package of the test that runs, as cargo sets its working directory.
///
/// # Panics
/// Where they differ; the message shows the first line that does.
#[track_caller]
pub fn assert_golden(path: impl AsRef<Path>, got: &str) {
    let path = path.as_ref();
    if env::var_os("BLESS").is_some_and(|value| value == "1") {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("the folder of the golden file can be made");
        }
        fs::write(path, got).expect("the golden file is writable");
        return;
    }
    let want = match fs::read_to_string(path) {
        Ok(want) => want,
        Err(error) => panic!("{}: {error}; BLESS=1 writes it", path.display()),
    };
    if let Some(difference) = first_difference(&want, got) {
        panic!(
            "{} differs: {difference}\nlook, then rerun with BLESS=1; got all of:\n{got}",
            path.display()
        );
    }
}

/// Where `want` and `got` part, in words; `None` when they are the same.
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
