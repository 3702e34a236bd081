//! Path of the running binary, for commands that users copy.

/// Returns the path of the running binary, quoted for a shell; `hugepilot` when the kernel does not
/// show it, as for a binary that was replaced.
pub(crate) fn quoted() -> String {
    let path = std::env::current_exe().ok();
    let path = path.as_ref().and_then(|path| path.to_str());
    match path.filter(|path| !path.ends_with(" (deleted)")) {
        Some(path) if !path.chars().any(char::is_control) => quote(path),
        _ => "hugepilot".to_owned(),
    }
}

/// Returns the commands that grant the binary what hugepilot uses, and the capabilities in `more`,
/// such as `,cap_sys_ptrace`, for the users of a group only: anybody could use those of a binary
/// that all may run. Without these in `more`, nothing in it allows writing to another process.
pub(crate) fn setcap(more: &str) -> String {
    let binary = quoted();
    // In this order: chgrp removes capabilities.
    format!(
        "sudo groupadd -f --system hugepilot && sudo chgrp hugepilot {binary} && sudo chmod 750 \
         {binary} && sudo setcap cap_sys_nice,cap_perfmon,cap_dac_read_search{more}+ep {binary} && \
         sudo usermod -aG hugepilot \"$USER\""
    )
}

fn quote(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-.,+:@%".contains(c);
    if path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        for (path, word) in [
            ("/usr/local/bin/hugepilot", "/usr/local/bin/hugepilot"),
            ("/home/a b/hugepilot", "'/home/a b/hugepilot'"),
            ("/x/$(id)/it's", r"'/x/$(id)/it'\''s'"),
        ] {
            assert_eq!(quote(path), word);
        }
        let commands = setcap("");
        assert!(commands.contains("/deps/hugepilot_kernel"), "{commands}");
        let places = ["chgrp", "chmod 750", "setcap"].map(|word| commands.find(word).unwrap());
        assert!(places.is_sorted(), "{commands}");
    }
}
