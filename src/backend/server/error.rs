//! What is wrong with a server before it runs: faults of whoever wrote it.

use super::headers::HeaderError;
use thiserror::Error;

/// Why a [`Builder`](super::Builder) makes no server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BuildError {
    /// Two tools have one name.
    #[error("there are two tools named `{0}`")]
    TwoTools(String),
    /// A tool's name is none that MCP allows.
    #[error("`{0}` is no name for a tool: 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`")]
    ToolName(String),
    /// A tool's arguments are no object.
    #[error("the arguments of `{0}` must be an object")]
    Arguments(String),
    /// A tool's schema wants an argument repeated in a header field in a way that MCP does not allow.
    #[error("in the schema of `{tool}`, {error}")]
    Header {
        /// Which tool.
        tool: String,
        /// What is wrong.
        error: HeaderError,
    },
    /// Two resources have one URI.
    #[error("there are two resources at `{0}`")]
    TwoResources(String),
    /// Two prompts have one name.
    #[error("there are two prompts named `{0}`")]
    TwoPrompts(String),
}
