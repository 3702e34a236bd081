//! Unsafe code: allowed in a few places, forbidden by the compiler elsewhere.

use super::code::{code_only, lines_with};
use super::{Report, crate_of};

/// Crates that may hold unsafe code, and where in them; `alloc` also in its tests, which fork, and
/// its example.
const HOMES: [(&str, &str); 4] =
    [("kernel", "src/sys/"), ("alloc", ""), ("capi", "src/"), ("preload", "")];

pub(super) fn check(path: &str, text: &str, report: &mut Report) {
    let Some((name, inner)) = crate_of(path) else { return };
    let code = code_only(text);
    let Some((_, home)) = HOMES.into_iter().find(|&(owner, _)| owner == name) else {
        let is_root = inner == "src/lib.rs" || inner == "src/main.rs";
        if is_root && !code.contains("#![forbid(unsafe_code)]") {
            report.finding(path, "no #![forbid(unsafe_code)]");
        }
        return;
    };
    let Some(line) = lines_with(&code, "unsafe").next() else { return };
    if !inner.starts_with(home) {
        report
            .finding(format!("{path}:{line}"), format!("unsafe code outside crates/{name}/{home}"));
    } else if !text.contains("# Safety") {
        report.finding(path, "unsafe code, and no `# Safety` that says why it is sound");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check(path, text, &mut report);
        report.lines()
    }

    #[test]
    fn other_crates_forbid_it() {
        let missing = ["crates/policy/src/lib.rs: no #![forbid(unsafe_code)]"];
        assert_eq!(findings("crates/policy/src/lib.rs", "//! #![forbid(unsafe_code)]\n"), missing);
        assert_eq!(
            findings("crates/policy/src/lib.rs", "//! P\n#![forbid(unsafe_code)]\n"),
            [""; 0]
        );
        assert_eq!(findings("crates/policy/src/greedy.rs", "fn f() {}\n"), [""; 0]);
        assert_eq!(findings("xtask/src/main.rs", "fn main() {}\n").len(), 1);
    }

    #[test]
    fn the_kernel_crate_keeps_it_in_one_folder() {
        let code = "// unsafe\nlet s = \"unsafe\";\n";
        assert_eq!(findings("crates/kernel/src/maps.rs", code), [""; 0]);
        let code = "fn f() {\n    unsafe { g() }\n}\n";
        let outside = ["crates/kernel/src/maps.rs:2: unsafe code outside crates/kernel/src/sys/"];
        assert_eq!(findings("crates/kernel/src/maps.rs", code), outside);
        assert_eq!(findings("crates/kernel/src/sys/ring.rs", code).len(), 1);
        let documented = format!("//! # Safety\n//! We own it.\n{code}");
        assert_eq!(findings("crates/kernel/src/sys/ring.rs", &documented), [""; 0]);
        assert_eq!(findings("crates/kernel/src/sys/mod.rs", "mod ring;\n"), [""; 0]);
    }

    #[test]
    fn crates_that_hand_out_memory_hold_it_file_by_file() {
        let code = "fn f() {\n    unsafe { g() }\n}\n";
        let silent =
            ["crates/alloc/src/vec.rs: unsafe code, and no `# Safety` that says why it is sound"];
        assert_eq!(findings("crates/alloc/src/vec.rs", code), silent);
        let documented = format!("//! # Safety\n//! We own it.\n{code}");
        assert_eq!(findings("crates/alloc/tests/live.rs", &documented), [""; 0]);
        assert_eq!(findings("crates/alloc/src/lib.rs", "mod vec;\n"), [""; 0]);
    }
}
