//! The command line as a user meets it: help, version, printed configuration, errors, exit codes.
//!
//! Each golden file is a transcript of commands. After a change on purpose, `MOORLINE_UPDATE_GOLDEN=1 cargo
//! test --test cli` writes them anew, and the difference is for review.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// One command: `VARIABLE=value… argument…`, as typed after `moorline`.
type Line = &'static str;

/// Runs the lines and compares what they print, and how they end, with `tests/golden/NAME`.
#[track_caller]
fn check(name: &str, lines: &[Line]) {
    check_text(name, &lines.iter().map(|line| transcript(line)).collect::<String>());
}

#[track_caller]
fn check_text(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("MOORLINE_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == actual, "{} differs; the command says now:\n{actual}", path.display());
}

/// The program alone in an environment of ours, with an open-file limit that does not depend on the machine.
fn transcript(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let arguments = words.iter().position(|word| !word.starts_with("MOORLINE_")).unwrap_or(words.len());
    let (variables, arguments) = words.split_at(arguments);
    let output = Command::new("/bin/sh")
        // None of these is to serve: one that does ends with 124.
        .args(["-c", "ulimit -n 1000 && exec timeout 60 \"$0\" \"$@\"", env!("CARGO_BIN_EXE_moorline")])
        .args(arguments)
        .env_clear()
        .envs(variables.iter().map(|variable| variable.split_once('=').unwrap()))
        .output()
        .unwrap();
    let mut text = format!("$ {}\n", [variables, &["moorline"], arguments].concat().join(" "));
    for (stream, bytes) in [("", &output.stdout), ("[stderr] ", &output.stderr)] {
        for line in String::from_utf8_lossy(bytes).lines() {
            writeln!(text, "{}", format_args!("{stream}{line}").to_string().trim_end()).unwrap();
        }
    }
    writeln!(text, "[exit {}]\n", output.status.code().unwrap()).unwrap();
    text
}

#[test]
fn help_is_complete() {
    check("help.txt", &["--help"]);
    check("serve-help.txt", &["serve --help"]);
    check("short-help.txt", &["-h"]);
}

#[test]
fn version_is_the_package_s() {
    for line in ["--version", "-V"] {
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(transcript(line), format!("$ moorline {line}\nmoorline {version}\n[exit 0]\n\n"));
    }
}

#[test]
fn the_configuration_says_where_each_value_comes_from() {
    check(
        "print-config.txt",
        &[
            "--print-config --shards 2",
            "MOORLINE_KEEP_ALIVE=30s MOORLINE_LISTEN=127.0.0.1:0,[::1]:0 MOORLINE_SHARDS=7 serve --print-config \
             --shards 2 --path /other --allow-host MCP.example.org --allow-host [::1]:8080 --max-body 1048576",
        ],
    );
}

#[test]
fn usage_errors_say_what_is_accepted() {
    check(
        "usage-errors.txt",
        &[
            "dance",
            "serve --dance",
            "serve dance",
            "--keep-alive 15",
            "--keep-alive -1s",
            "--keep-alive 99999h",
            "MOORLINE_KEEP_ALIVE=soon serve",
            "--max-body 4MB",
            "--max-body 99999999999999999999",
            "--listen localhost:8080",
            "--listen 127.0.0.1",
            "--path mcp",
            "--allow-host https://example.org",
            "--allow-origin example.org",
            "--shards 0",
            "--shards 257",
            "--shards 70000",
            "--shards many",
            "--ring-entries 200",
            "--ring-entries 16",
            "--max-sessions 0",
            "--response-mode xml",
            "--fresh-get-fallback maybe",
            "--header-timeout 0",
            "--replay-ttl 30s",
            "MOORLINE_WRITE_TIMEOUT=10m serve",
            "--sse-after 2h",
            "--max-body-memory-per-client 1MiB --max-body 2MiB",
            "--max-body 2GiB",
            "--keep-alive 1ms",
            "--keep-alive",
            "--path /a --path /b",
            "--auth basic",
            "--auth tokens",
            "--auth tokens=tests/golden/config/bad-tokens",
            "--auth tokens=/no/such/file",
            "--auth jwt --jwt-issuer https://login.example.org --jwt-audience a",
            "--auth jwt --jwt-issuer i --jwt-audience a --jwt-keys tests/golden/config/bad-keys.json",
            "--auth jwt --jwt-issuer i --jwt-audience a --jwt-keys tests/golden/config/good.toml",
            "--auth jwt --jwt-issuer i --jwt-audience a --jwt-keys k --jwt-algorithm HS256",
            "--jwt-issuer https://login.example.org",
            "MOORLINE_LISTEN=127.0.0.1:0,0.0.0.0:8080 serve",
            "--allow-anonymous maybe",
            "--allow-anonymous=maybe",
            "token",
            "token two words",
            "token #alice",
            "serve --child-env NAME -- cat",
            "serve --stdio-mode shared --shards 4 --children 2 -- cat",
            "serve --stdio-mode shared --shards 2 --children 4 --max-children 3 -- cat",
        ],
    );
}

#[test]
fn a_host_that_cannot_do_it_is_told_apart_from_a_wrong_command() {
    check(
        "host-errors.txt",
        &[
            "--shards 2 --max-connections 1000",
            "--print-config --shards 256",
            "--print-config --shards 2 --max-connections 800",
            "--print-config --shards 2 --max-connections 700 --max-children 50 -- cat",
            "serve -- no-such-program",
            "serve --child-dir /no/such/directory -- cat",
        ],
    );
}

#[test]
fn a_file_stands_between_the_environment_and_the_default() {
    check(
        "config-file.txt",
        &[
            "MOORLINE_KEEP_ALIVE=30s --print-config --path /typed --config tests/golden/config/good.toml",
            "MOORLINE_CONFIG=tests/golden/config/good.toml serve --check",
            "serve --check --config tests/golden/config/wrong.toml",
            "serve --config tests/golden/config/broken.toml",
            "serve --config tests/golden/config/unfit.toml",
            "MOORLINE_WRITE_TIMEOUT=10m serve --check --config tests/golden/config/unfit.toml",
            "serve --config tests/golden/config/none.toml",
        ],
    );
}

#[test]
fn a_check_finds_what_would_keep_it_from_serving() {
    check(
        "check.txt",
        &[
            "--check",
            "serve --check --shards 0",
            "serve --check --allow-host a --listen 0.0.0.0:0 --allow-anonymous",
            "serve --check -- no-such-program",
            "serve --check --shards 2 --max-connections 1000",
            "serve --check --print-config",
        ],
    );
}

#[test]
fn completions_and_the_manual_say_what_the_help_says() {
    for (arguments, name) in [
        (&["completions", "bash"][..], "moorline.bash"),
        (&["completions", "zsh"], "_moorline"),
        (&["completions", "fish"], "moorline.fish"),
        (&["man"], "moorline.1"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moorline"));
        let output = command.arg("generate").args(arguments).env_clear().output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        // Kept where packages take them from.
        check_text(&format!("../../packaging/generated/{name}"), &text);
    }
    check("generate.txt", &["generate", "generate completions tcsh"]);
}

#[test]
fn the_doctor_says_by_its_exit_code_whether_the_server_can_run_here() {
    check("doctor.txt", &["doctor --help", "doctor --streams some", "doctor --dance"]);
    let examine = |open_files: &str, arguments: &[&str]| {
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            "ulimit -n \"$0\" && exec \"$@\"",
            open_files,
            env!("CARGO_BIN_EXE_moorline"),
            "doctor",
        ]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = examine("1000", &[]);
    assert!(
        code == 0 && text.contains("What binds first: open files.") && text.contains("LimitNOFILE="),
        "{text}"
    );
    let (code, text) = examine("60", &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["able"], &report["streams"]), (3, &false.into(), &0.into()), "{text}");
    let (code, text) = examine("1000", &["--json", "--streams", "10"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["able"], &report["wanted"]), (0, &true.into(), &10.into()), "{text}");
    assert_eq!(report["binds_first"], "open_files");
}
