//! Where a program is that was asked for by name.
//!
//! Owns the rules a shell has for that. A program is found once, at start, so that a name with a typing error is told to
//! whoever typed it, and children are started without a search.

use std::{
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProgramError {
    /// No directory of `PATH` has it, or the path leads nowhere.
    #[error("cannot run {0}: there is no such program; check the name, or PATH")]
    Missing(String),
    /// It is there and may not be run.
    #[error("cannot run {0}: it is not executable; check its permissions (`chmod +x`)")]
    NotExecutable(String),
    /// It is a name of which nothing can be made.
    #[error("cannot run a program without a name")]
    Nameless,
    /// The working directory is none.
    #[error("cannot run it in {0}: there is no such directory; correct --child-dir")]
    Directory(String),
}

/// The absolute path of a program. A name with a slash is a path, relative to `directory`; any other is looked for in
/// `path`, or where there is none in `/usr/local/bin:/usr/bin:/bin`.
pub(super) fn find(
    name: &str,
    path: Option<&OsStr>,
    directory: Option<&Path>,
) -> Result<PathBuf, ProgramError> {
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(ProgramError::Directory(directory.display().to_string()));
    }
    if name.is_empty() {
        return Err(ProgramError::Nameless);
    }
    if name.contains('/') {
        let file = directory.unwrap_or(Path::new("")).join(name);
        return absolute_if(&file, is_executable(&file), name);
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut candidates = std::env::split_paths(path).map(|directory| directory.join(name));
    let found = candidates.find(|file| is_executable(file) == Ok(()));
    found.map_or_else(|| Err(ProgramError::Missing(name.to_owned())), |file| absolute_if(&file, Ok(()), name))
}

fn absolute_if(file: &Path, verdict: Result<(), Flaw>, name: &str) -> Result<PathBuf, ProgramError> {
    match verdict {
        Ok(()) => std::path::absolute(file).map_err(|_| ProgramError::Missing(name.to_owned())),
        Err(Flaw::Missing) => Err(ProgramError::Missing(name.to_owned())),
        Err(Flaw::NotExecutable) => Err(ProgramError::NotExecutable(name.to_owned())),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    Missing,
    NotExecutable,
}

fn is_executable(file: &Path) -> Result<(), Flaw> {
    let metadata = file.metadata().map_err(|_| Flaw::Missing)?;
    let is_executable = metadata.is_file() && metadata.permissions().mode() & 0o111 != 0;
    if is_executable { Ok(()) } else { Err(Flaw::NotExecutable) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::fs;

    #[test]
    fn programs_are_found_as_a_shell_would() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("run", 0o755), ("read", 0o644)] {
            fs::write(dir.path().join(name), "").unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let (path, run) = (Some(dir.path().as_os_str()), dir.path().join("run"));
        assert_eq!(find("run", path, None), Ok(run.clone()));
        assert_eq!(
            find("./run", None, Some(dir.path())).map(|file| file.canonicalize().unwrap()),
            Ok(run.canonicalize().unwrap())
        );
        assert_eq!(find(run.to_str().unwrap(), None, None), Ok(run));
        assert_eq!(find("read", path, None), Err(ProgramError::Missing("read".into())));
        assert_eq!(find("./read", path, Some(dir.path())), Err(ProgramError::NotExecutable("./read".into())));
        assert_eq!(find("./none", path, Some(dir.path())), Err(ProgramError::Missing("./none".into())));
        assert_eq!(find("", path, None), Err(ProgramError::Nameless));
        assert!(matches!(find("run", path, Some(Path::new("/no/such"))), Err(ProgramError::Directory(_))));
        assert!(find("sh", None, None).is_ok());
    }
}
