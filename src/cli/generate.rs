//! What is made from the command line's own description: completions for shells, and the manual page.
//!
//! Owns no text: both say what `--help` says.

use super::Cli;
use clap::{CommandFactory as _, Subcommand};
use clap_complete::Shell;
use std::io::{self, Write};

/// What `moorline generate` can make.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Generated {
    /// Completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// The manual page, as roff
    Man,
}

impl Generated {
    /// Writes it.
    ///
    /// # Errors
    /// If `out` takes no more.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut command = Cli::command();
        let mut text = Vec::new();
        match self {
            Generated::Completions { shell } => {
                clap_complete::generate(*shell, &mut command, "moorline", &mut text);
            }
            Generated::Man => clap_mangen::Man::new(command).render(&mut text)?,
        }
        out.write_all(&text)
    }
}
