//! Program files, found by name as a shell finds them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// Returns the executable file that `program` names: a path if it holds a slash, else along `PATH`.
///
/// # Errors
/// ENOENT; EACCES for a file that is not executable; those of `stat`.
pub fn find_program(program: &OsStr) -> io::Result<PathBuf> {
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    let not_found = || Errno::NOENT.into();
    if program.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return match path.try_exists() {
            Ok(true) if runs(&path) => Ok(path),
            Ok(true) => Err(Errno::ACCESS.into()),
            Ok(false) => Err(not_found()),
            Err(error) => Err(error),
        };
    }
    let path = std::env::var_os("PATH").filter(|_| !program.is_empty()).unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| runs(path))
        .ok_or_else(not_found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        assert!(find_program(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find_program(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert_eq!(
            find_program(OsStr::new("/no/such/program")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            find_program(OsStr::new("no-such-program")).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            find_program(OsStr::new("/")).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert!(find_program(OsStr::new("")).is_err());
    }
}
