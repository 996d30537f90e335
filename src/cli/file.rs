//! The configuration file: TOML whose keys are the names of the flags, without dashes in front.
//!
//! Owns reading it, and saying what is wrong with it: file, line, key and why. It has no list of settings: the command's
//! arguments are the list, their parsers judge the values, so a new flag is a new key. Never takes half of a file.

use super::{COMMAND, settings};
use clap::{
    Arg, ArgAction, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{
    collections::BTreeMap,
    error::Error as _,
    fmt, fs, io,
    path::{Path, PathBuf},
};
use thiserror::Error;
use toml::de::{DeTable, DeValue};

/// A file that was understood.
#[derive(Clone, Debug)]
pub(crate) struct File {
    path: PathBuf,
    /// By key.
    entries: BTreeMap<String, Entry>,
}

/// What a file sets one setting to.
#[derive(Clone, Debug)]
struct Entry {
    line: usize,
    values: Vec<String>,
}

/// Why a file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// It cannot be read.
    #[error("cannot read the configuration file {}: {error}", path.display())]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is no TOML, or says what cannot be; all of it, in the order of lines.
    #[error("{}", lines(.0))]
    Wrong(Vec<Problem>),
}

/// One thing that is wrong in a file.
#[derive(Debug)]
pub(crate) struct Problem {
    path: PathBuf,
    line: usize,
    key: Option<String>,
    why: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.path.display(), self.line)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.why)
    }
}

impl File {
    /// Reads the file at `path` against the arguments of `command`.
    ///
    /// # Errors
    /// If it cannot be read, is no TOML, has a key that is no setting, or a value that its setting does not take.
    pub(crate) fn read(path: &Path, command: &Command) -> Result<File, FileError> {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| FileError::Unreadable { path: path.to_owned(), error })?;
        File::parse(path, &text, command)
    }

    fn parse(path: &Path, text: &str, command: &Command) -> Result<File, FileError> {
        let line_of = |offset: usize| 1 + text[..offset].matches('\n').count();
        let problem = |offset, key: Option<&str>, why| Problem {
            path: path.to_owned(),
            line: line_of(offset),
            key: key.map(str::to_owned),
            why,
        };
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            FileError::Wrong(vec![problem(offset, None, error.message().replace('\n', ", "))])
        })?;
        let (mut entries, mut problems) = (BTreeMap::new(), Vec::new());
        for (key, value) in table.get_ref() {
            let (name, offset) = (key.get_ref().as_ref(), key.span().start);
            match values_of(name, value.get_ref(), command) {
                Ok(values) => drop(entries.insert(name.to_owned(), Entry { line: line_of(offset), values })),
                Err(why) => problems.push(problem(offset, Some(name), why)),
            }
        }
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() {
            Ok(File { path: path.to_owned(), entries })
        } else {
            Err(FileError::Wrong(problems))
        }
    }

    /// Where it sets `key`, as `FILE:LINE`.
    pub(crate) fn place_of(&self, key: &str) -> Option<String> {
        self.entries.get(key).map(|entry| format!("{}:{}", self.path.display(), entry.line))
    }

    /// The command with what the file says in the place of its defaults.
    pub(crate) fn as_defaults(&self, command: Command) -> Command {
        command.mut_args(|arg| match self.entries.get(&key_of(&arg)) {
            Some(entry) => arg.default_values(entry.values.clone()),
            None => arg,
        })
    }
}

/// The key that sets what `arg` sets.
pub(super) fn key_of(arg: &Arg) -> String {
    arg.get_long().map_or_else(|| arg.get_id().to_string(), str::to_owned)
}

/// What is to be typed to say the same as the file.
fn values_of(key: &str, value: &DeValue<'_>, command: &Command) -> Result<Vec<String>, String> {
    let arg = settings(command).find(|arg| key_of(arg) == key).ok_or_else(|| unknown(key, value, command))?;
    let takes_many = matches!(arg.get_action(), ArgAction::Append);
    let values = match value {
        DeValue::Array(items) if takes_many => {
            items.iter().map(|item| text_of(item.get_ref(), arg)).collect::<Result<_, _>>()?
        }
        single => vec![text_of(single, arg)?],
    };
    judge(key, &values, arg, command)?;
    Ok(values)
}

fn unknown(key: &str, value: &DeValue<'_>, command: &Command) -> String {
    if value.is_table() {
        return "there are no sections; keys stand alone, such as keep-alive = \"15s\"".to_owned();
    }
    let typed = command.clone().try_get_matches_from(["moorline", &format!("--{}", key.replace('_', "-"))]);
    let error = typed.err();
    let similar =
        error.as_ref().and_then(|error| match (error.kind(), error.get(ContextKind::SuggestedArg)) {
            (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => {
                Some(flag.trim_start_matches('-'))
            }
            _ => None,
        });
    let dashed = Some(key.replace('_', "-")).filter(|key| settings(command).any(|arg| key_of(arg) == *key));
    match dashed.as_deref().or(similar) {
        Some(other) => format!("unknown key; did you mean {other}?"),
        None => "unknown key; keys are named like flags (see `moorline serve --help`)".to_owned(),
    }
}

/// A TOML value of the right type, as it would be typed.
fn text_of(value: &DeValue<'_>, arg: &Arg) -> Result<String, String> {
    let unit = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match (unit, value) {
        ("COUNT" | "SIZE" | "DURATION", DeValue::Integer(number)) => {
            let value = i128::from_str_radix(number.as_str(), number.radix());
            Ok(value.map_or_else(|_| number.as_str().to_owned(), |value| value.to_string()))
        }
        ("FRACTION", DeValue::Integer(number)) => Ok(number.as_str().to_owned()),
        ("FRACTION", DeValue::Float(number)) => Ok(number.as_str().to_owned()),
        ("SWITCH", DeValue::Boolean(on)) => Ok(if *on { "on" } else { "off" }.to_owned()),
        ("COUNT", other) => Err(format!("expected a whole number, not {}", kind_of(other))),
        ("FRACTION", other) => Err(format!("expected a number from 0 to 1, not {}", kind_of(other))),
        (_, DeValue::String(text)) => Ok(text.to_string()),
        ("SIZE", other) => {
            Err(format!("expected bytes or a string such as \"4MiB\", not {}", kind_of(other)))
        }
        ("DURATION", other) => Err(format!("expected a string such as \"15s\", not {}", kind_of(other))),
        ("SWITCH", other) => Err(format!("expected true or false, not {}", kind_of(other))),
        (_, other) => Err(format!("expected a string, not {}", kind_of(other))),
    }
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Has the command line judge the values; its other arguments are known to be good, or not there.
fn judge(key: &str, values: &[String], arg: &Arg, command: &Command) -> Result<(), String> {
    let mut line = vec!["moorline".to_owned()];
    if key == COMMAND {
        line.push("--".to_owned());
        line.extend_from_slice(values);
    } else {
        line.extend(values.iter().map(|value| format!("--{key}={value}")));
    }
    let Err(error) = command.clone().try_get_matches_from(line) else { return Ok(()) };
    let why = match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(allowed))) => format!("expected one of {}", allowed.join(", ")),
        _ => "not a value it can have".to_owned(),
    };
    match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) if !arg.is_hide_env_values_set() => {
            Err(format!("{value:?}: {why}"))
        }
        _ => Err(why),
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn parse(text: &str) -> Result<File, String> {
        File::parse(Path::new("m.toml"), text, &Cli::command()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_have_the_type_of_their_setting() {
        let text = "shards = 2\nmax-body = 0x400\nkeep-alive = 0\npath = '/x'\nfresh-get-fallback = false\n\
                    listen = ['127.0.0.1:1', '127.0.0.1:2']\nallow-host = 'a'\ncommand = ['cat', '-']\n";
        let file = parse(text).unwrap();
        let values = |key: &str| file.entries[key].values.clone();
        assert_eq!((values("shards"), values("max-body")), (vec!["2".to_owned()], vec!["1024".to_owned()]));
        assert_eq!(values("fresh-get-fallback"), ["off"]);
        assert_eq!(values("listen"), ["127.0.0.1:1", "127.0.0.1:2"]);
        assert_eq!(values("command"), ["cat", "-"]);
        assert_eq!(file.place_of("path").unwrap(), "m.toml:4");
        assert_eq!(file.place_of("retry"), None);
    }

    #[test]
    fn every_setting_is_a_key() {
        let command = Cli::command();
        for arg in settings(&command) {
            let key = key_of(arg);
            let why = parse(&format!("{key} = 2026-01-01")).unwrap_err();
            assert!(why.starts_with(&format!("m.toml:1: {key}: expected ")), "{why}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_line_key_and_reason() {
        for (text, expected) in [
            ("\nkeep_alive = '1s'", "m.toml:2: keep_alive: unknown key; did you mean keep-alive?"),
            ("kep-alive = '1s'", "m.toml:1: kep-alive: unknown key; did you mean keep-alive?"),
            (
                "zzz = 1",
                "m.toml:1: zzz: unknown key; keys are named like flags (see `moorline serve --help`)",
            ),
            ("config = 'x'", "m.toml:1: config: unknown key; keys are named like flags"),
            ("[replay]", "m.toml:1: replay: there are no sections"),
            ("shards = 'two'", "m.toml:1: shards: expected a whole number, not a string"),
            ("shards = 1.5", "m.toml:1: shards: expected a whole number, not a number with a fraction"),
            ("shards = -1", "m.toml:1: shards: \"-1\": expected a whole number"),
            ("path = 5", "m.toml:1: path: expected a string, not a whole number"),
            ("path = ['/a']", "m.toml:1: path: expected a string, not an array"),
            ("keep-alive = 15", "m.toml:1: keep-alive: \"15\": expected a whole number with a unit"),
            (
                "access-log-sample = 1.5",
                "m.toml:1: access-log-sample: \"1.5\": expected a number from 0 to 1",
            ),
            (
                "access-log-sample = '1'",
                "m.toml:1: access-log-sample: expected a number from 0 to 1, not a string",
            ),
            ("priming = 'maybe'", "m.toml:1: priming: \"maybe\": expected one of auto, post, off"),
            ("listen = [8080]", "m.toml:1: listen: expected a string, not a whole number"),
            ("child-env = ['SECRET']", "m.toml:1: child-env: expected NAME=VALUE"),
            ("retry = '1s'\nretry = '2s'", "m.toml:2: duplicate key"),
            ("retry = ", "m.toml:1: "),
            (
                "zzz = 1\nretry = true",
                "m.toml:1: zzz: unknown key; keys are named like flags (see `moorline \
              serve --help`)\nm.toml:2: retry: expected a string such as \"15s\", not true or false",
            ),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.starts_with(expected), "{text}: {why}");
        }
    }
}
