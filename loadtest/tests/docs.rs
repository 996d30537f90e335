//! Every command of this program that the documentation shows is one that it takes.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What stands around a command: the shell's variables and programs, and a program that says what it takes instead of doing it.
const AROUND: &str = r#"
set -eu
URL=http://127.0.0.1:1/mcp PID=1
pidof() { echo 1; }
moorline-load() { "$PROGRAM" "$@" --help >/dev/null; }
"#;

#[test]
fn shown_commands_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages = pages(&root.join("docs"));
    pages.extend([root.join("README.md"), root.join("loadtest/README.md")]);
    let mut shown = 0;
    for page in pages {
        for command in commands(&fs::read_to_string(&page).unwrap()) {
            shown += 1;
            let output = run(&command);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {command}: {said}", page.display());
        }
    }
    assert!(shown > 10, "{shown} commands were found");
}

#[test]
fn other_commands_are_not() {
    assert!(run("moorline-load hold -n 10 -d 1s").status.success());
    for wrong in ["moorline-load hold --rate 10", "moorline-load hold --ramp 1s", "moorline-load held"] {
        assert!(!run(wrong).status.success(), "{wrong}");
    }
}

fn run(command: &str) -> std::process::Output {
    let script = format!("{AROUND}{command}\n");
    Command::new("bash")
        .args(["-c", &script])
        .env("PROGRAM", env!("CARGO_BIN_EXE_moorline-load"))
        .output()
        .unwrap()
}

/// The pages below a directory.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path {
            path if path.is_dir() => pages(&path),
            path if path.extension().is_some_and(|extension| extension == "md") => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

/// The commands of this program in a page's blocks of code, one a line, without what stands for more of the same.
fn commands(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    let joined = blocks.map(|block| block.replace("\\\n", " "));
    let lines: Vec<String> =
        joined.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines
        .iter()
        .map(|line| line.trim().trim_start_matches("$ ").trim_end_matches('&'))
        .filter(|line| line.starts_with("moorline-load "))
        .map(|line| line.replace(" -u …", "").replace(" --pid …", "").replace("$!", "1"))
        .collect()
}
