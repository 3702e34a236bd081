//! The xtask of one checkout, run in another one: checkouts that share a target folder share it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs `xtask tidy` in `folder`, started by the cargo of `package` or by none. Returns its stderr.
fn tidy(folder: &Path, package: Option<&Path>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("tidy").current_dir(folder).env_remove("CARGO_MANIFEST_DIR");
    command.envs(package.map(|package| ("CARGO_MANIFEST_DIR", package)));
    String::from_utf8(command.output().unwrap().stderr).unwrap()
}

#[test]
fn xtask_acts_on_the_checkout_in_which_it_runs() {
    let checkout = tempfile::tempdir().unwrap();
    let package = checkout.path().join("xtask");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("Cargo.toml"), "").unwrap();
    fs::write(checkout.path().join("only-here.md"), "a".repeat(200)).unwrap();
    for (folder, cargo) in [(&*package, None), (Path::new("/"), Some(&*package))] {
        let found = tidy(folder, cargo);
        assert!(found.contains("only-here.md"), "{cargo:?}: {found}");
    }
    let error = tidy(Path::new("/"), None);
    assert!(error.contains("xtask/Cargo.toml"), "{error}");
}
