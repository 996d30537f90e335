//! A report for people: what binds first, every check in a line or two, and the commands that lift what is short.

use super::{Report, Verdict, shown};
use std::fmt;

/// Columns of the text after the name of a check.
const WIDTH: usize = 72;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.binds_first, self.able) {
            (_, false) => writeln!(f, "This host cannot run the server."),
            (Some(name), true) => {
                let (streams, name) = (shown(self.streams), name.replace('_', " "));
                writeln!(f, "This host can hold about {streams} streams. What binds first: {name}.")
            }
            (None, true) => writeln!(f, "Nothing was found that says how many streams this host can hold."),
        }?;
        writeln!(f)?;
        for check in &self.checks {
            let mark = match check.verdict {
                Verdict::Good => "ok",
                Verdict::Note => "--",
                Verdict::Short => "<<",
                Verdict::Unable => "!!",
            };
            let permits = check.streams.map(|streams| format!("{} streams: ", shown(streams)));
            let text = format!("{}{}", permits.unwrap_or_default(), check.found);
            for (index, line) in wrapped(&text).into_iter().enumerate() {
                let (mark, name) = if index == 0 { (mark, check.name) } else { ("", "") };
                writeln!(f, "{mark:2}  {:19}  {line}", name.replace('_', " "))?;
            }
        }
        writeln!(f, "\nok enough, << too little, !! prevents it, -- for information")?;
        let of_interest = self.checks.iter().filter(|check| self.able || check.verdict == Verdict::Unable);
        let remedies: Vec<_> = of_interest.flat_map(|check| &check.remedy).collect();
        if remedies.is_empty() {
            return Ok(());
        }
        match self.able {
            true => writeln!(f, "\nTo hold {} streams:", shown(self.wanted))?,
            false => writeln!(f, "\nTo change that:")?,
        }
        remedies.iter().try_for_each(|remedy| writeln!(f, "    {remedy}"))
    }
}

/// Lines of at most [`WIDTH`] columns, broken at spaces.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
