//! The live view: one line on standard error, rewritten on a terminal, written anew elsewhere.

use std::io::{IsTerminal, Write};

use crate::clock::Moment;
use crate::report::Point;
use crate::report::units::{bytes, micros, thousands};

/// Time between lines when not on a terminal, in milliseconds.
const PLAIN_EVERY_MS: u64 = 5_000;

/// Where progress goes.
#[derive(Debug)]
pub(crate) struct Live {
    style: Style,
    last_plain: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Silent,
    Plain,
    Rewritten { has_color: bool },
}

/// What the user wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Whatever fits the terminal.
    #[default]
    Fitting,
    /// No colours.
    Colorless,
    /// Nothing.
    Nothing,
}

impl Live {
    /// A view as wished, as far as standard error allows.
    pub(crate) fn new(wish: Wish) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let style = match wish {
            Wish::Nothing => Style::Silent,
            _ if !is_terminal => Style::Plain,
            Wish::Colorless => Style::Rewritten { has_color: false },
            Wish::Fitting => Style::Rewritten { has_color: std::env::var_os("NO_COLOR").is_none() },
        };
        Self { style, last_plain: None }
    }

    /// Says what begins now.
    pub(crate) fn phase(&mut self, text: &str) {
        match self.style {
            Style::Silent => {}
            Style::Plain => print(&format!("{text}\n")),
            Style::Rewritten { .. } => print(&format!("\r\x1b[K{text}\n")),
        }
    }

    /// Shows a point.
    pub(crate) fn point(&mut self, point: &Point, now: Moment) {
        match self.style {
            Style::Silent => {}
            Style::Plain => {
                if self.last_plain.is_none_or(|last| now.ms_since(last) >= PLAIN_EVERY_MS) {
                    self.last_plain = Some(now);
                    print(&format!("{}\n", line(point)));
                }
            }
            Style::Rewritten { has_color } => {
                let is_bad = has_color && point.errors + point.closes > 0;
                let (on, off) = if is_bad { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
                print(&format!("\r\x1b[K{on}{}{off}", line(point)));
            }
        }
    }

    /// Leaves the terminal on a fresh line.
    pub(crate) fn end(&mut self) {
        if matches!(self.style, Style::Rewritten { .. }) {
            print("\r\x1b[K");
        }
    }
}

fn line(point: &Point) -> String {
    let memory = if point.rss_bytes > 0 {
        format!("  server {}", bytes(point.rss_bytes as f64))
    } else {
        String::new()
    };
    format!(
        "{:>5.0} s  up {}  {:.0}/s  p99 {}  errors {}  closes {}  lag {}{memory}",
        point.ms as f64 / 1_000.0,
        thousands(point.up),
        point.done_per_second,
        micros(point.p99_us as f64),
        point.errors,
        point.closes,
        micros(point.lag_us as f64),
    )
}

fn print(text: &str) {
    let mut out = std::io::stderr().lock();
    // A view nobody can see is no reason to end a run.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
