//! Lists in pages, serialised once for each revision.
//!
//! Owns the pages and their cursors. A cursor names the list and a page of it, and is good for as long as the server runs,
//! on every shard. Answering one clones a `Bytes`.

use super::super::{
    Reply, Request,
    model::Revised,
    params::ParamsError,
    service::{PerRevision, internal_error},
};
use crate::core::jsonrpc::RpcError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// One list of a server.
#[derive(Debug)]
pub(super) struct Pages {
    name: &'static str,
    pages: PerRevision<Result<Vec<Reply>, RpcError>>,
}

impl Pages {
    /// The list whose items are the member `name` of its results, at most `size` on a page.
    pub(super) fn new<T: Clone + Serialize + Revised>(name: &'static str, items: &[T], size: usize) -> Self {
        let pages = PerRevision::new(|revision| {
            let mut items = items.to_vec();
            items.revise(revision);
            let chunks: Vec<&[T]> =
                if items.is_empty() { vec![&[]] } else { items.chunks(size.max(1)).collect() };
            let last = chunks.len() - 1;
            let page = |(number, items)| {
                let mut result = Map::from_iter([(name.to_owned(), json!(items))]);
                if number < last {
                    result.insert("nextCursor".to_owned(), Value::String(cursor(name, number + 1)));
                }
                Reply::of(&result)
            };
            chunks.into_iter().enumerate().map(page).collect()
        });
        Pages { name, pages }
    }

    /// The page that a `…/list` request asks for.
    ///
    /// # Errors
    /// -32602 for a cursor that is not one of this list. The empty one names its beginning.
    pub(super) fn page(&self, request: &Request) -> Result<Reply, RpcError> {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            cursor: Option<Cow<'a, str>>,
        }
        let params: Params<'_> = request.params()?;
        let pages = self.pages.of(request.revision).as_ref().map_err(Clone::clone)?;
        let number = match params.cursor.as_deref() {
            None | Some("") => 0,
            Some(cursor) => self.number(cursor, pages.len())?,
        };
        pages.get(number).cloned().ok_or_else(internal_error)
    }

    fn number(&self, cursor: &str, count: usize) -> Result<usize, ParamsError> {
        (1..count)
            .find(|number| self::cursor(self.name, *number) == cursor)
            .ok_or_else(|| ParamsError::new("cursor", "not one of this server's"))
    }
}

fn cursor(name: &str, number: usize) -> String {
    format!("{name}-{number:x}")
}
