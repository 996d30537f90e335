//! One request and its response, read as the step demands.
//!
//! Owns the way from response bytes to notices: head checked against the step, body read as JSON or
//! as events, the answer found. Invariant: a step is finished exactly once.

use super::client::{Client, Step};
use super::notice::{Cause, EventFacts, Notice, Reply};
use crate::clock::Moment;
use crate::http::response::{Content, Head, Piece, Response};
use crate::rpc::{self, Kind, Verdict};
use crate::sse::{Block, Decoder, Item};

/// Longest JSON answer that is kept, in bytes.
const JSON_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A response being read.
#[derive(Debug)]
pub(crate) struct Exchange {
    response: Response,
    body: Body,
    status: u16,
    answer: Option<(Moment, Verdict)>,
}

#[derive(Debug)]
enum Body {
    /// To be thrown away.
    Ignored,
    Json(Vec<u8>),
    Events(Decoder),
}

/// How a step was completed.
#[derive(Debug)]
pub(crate) enum Finished {
    /// `initialize` was answered: `notifications/initialized` is next.
    Initialize,
    /// The step is over, with this to tell.
    Notice(Notice),
}

impl Exchange {
    /// Nothing received yet.
    pub(super) fn new() -> Self {
        Self { response: Response::new(), body: Body::Ignored, status: 0, answer: None }
    }

    /// Whether any byte of the response has arrived.
    pub(super) fn has_begun(&self) -> bool {
        self.response.has_begun()
    }

    /// Whether the peer closing now is a clean end of the response.
    pub(super) fn may_end_with_connection(&self) -> bool {
        self.response.may_end_with_connection()
    }
}

impl Client {
    /// See [`Client::on_bytes`].
    pub(super) fn read_response(
        &mut self,
        mut bytes: &[u8],
        now: Moment,
        run: u32,
        mut emit: impl FnMut(Notice),
    ) -> Result<Option<Finished>, Cause> {
        while let Some(piece) = self.exchange.response.next(&mut bytes).map_err(Cause::Malformed)? {
            match piece {
                Piece::Head(head) => self.on_head(head, now, &mut emit)?,
                Piece::Body(body) => self.on_body(body, now, run, &mut emit)?,
                Piece::End { reusable } => {
                    if !bytes.is_empty() {
                        return Err(Cause::Unfit("bytes behind the end of a response"));
                    }
                    if !reusable {
                        self.link.close();
                    }
                    return self.finish(now).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// The response is complete: what that means for the step.
    pub(super) fn finish(&mut self, now: Moment) -> Result<Finished, Cause> {
        let exchange = std::mem::replace(&mut self.exchange, Exchange::new());
        if let Body::Json(json) = &exchange.body {
            self.on_json(json, now, &exchange)?;
        }
        let answer = self.exchange.answer.or(exchange.answer);
        let is_success = (200..300).contains(&exchange.status);
        let step = self.step;
        match step {
            _ if !is_success => Err(Cause::Status(exchange.status)),
            Step::Initializing if matches!(answer, Some((_, Verdict::Result))) => {
                self.is_negotiated = true;
                self.step = Step::Ready;
                Ok(Finished::Initialize)
            }
            Step::Discovering if matches!(answer, Some((_, Verdict::Result))) => Ok(self.done(Notice::Ready)),
            Step::Initializing | Step::Discovering => Err(Cause::Unfit("no result")),
            Step::Confirming => Ok(self.done(Notice::Ready)),
            Step::Listening | Step::Subscribing { .. } => Err(Cause::Unfit("not an event stream")),
            Step::Streaming => Ok(self.done(Notice::Ended(super::Ending::Clean))),
            Step::Calling { .. } => {
                let (at, verdict) = answer.map_or((now, None), |(at, verdict)| (at, Some(verdict)));
                let is_streamed = matches!(exchange.body, Body::Events(_));
                Ok(self.done(Notice::Replied(Reply { at, verdict, is_streamed })))
            }
            Step::Deleting => Ok(self.done(Notice::Deleted)),
            Step::Posting => Ok(self.done(Notice::Posted)),
            Step::Ready | Step::Failed => Err(Cause::Unfit("a response that no request asked for")),
        }
    }

    fn done(&mut self, notice: Notice) -> Finished {
        self.step = Step::Ready;
        Finished::Notice(notice)
    }

    fn on_head(&mut self, head: Head, now: Moment, emit: &mut impl FnMut(Notice)) -> Result<(), Cause> {
        self.last_heard = now;
        self.exchange.status = head.status;
        if self.step == Step::Initializing && head.status == 200 {
            self.session = head.session;
        }
        self.exchange.body = match head.content {
            Content::Json if head.status == 200 => Body::Json(Vec::new()),
            Content::Events if head.status == 200 => Body::Events(Decoder::default()),
            _ => Body::Ignored,
        };
        match self.step {
            Step::Listening | Step::Subscribing { .. } if head.status != 200 => Ok(()),
            Step::Listening if matches!(self.exchange.body, Body::Events(_)) => {
                self.step = Step::Streaming;
                self.subscription = None;
                emit(Notice::Up);
                Ok(())
            }
            Step::Subscribing { .. } if matches!(self.exchange.body, Body::Events(_)) => Ok(()),
            Step::Listening | Step::Subscribing { .. } => Err(Cause::Unfit("not an event stream")),
            _ => Ok(()),
        }
    }

    fn on_body(
        &mut self,
        bytes: &[u8],
        now: Moment,
        run: u32,
        emit: &mut impl FnMut(Notice),
    ) -> Result<(), Cause> {
        let mut decoder = match &mut self.exchange.body {
            Body::Ignored => return Ok(()),
            Body::Json(json) if json.len() + bytes.len() > JSON_BYTES_MAX => {
                return Err(Cause::Unfit("too long"));
            }
            Body::Json(json) => {
                json.extend_from_slice(bytes);
                return Ok(());
            }
            Body::Events(decoder) => std::mem::take(decoder),
        };
        // Only whole items break a silence: a chunk header may come in a segment of its own.
        let mut outcome = Ok(());
        decoder.feed(bytes, |item| {
            let silence_us = now.us_since(std::mem::replace(&mut self.last_heard, now));
            let notice = match item {
                Item::Comment => Notice::Comment { silence_us },
                Item::Block(block) => Notice::Event(self.on_block(block, now, run)),
            };
            match self.step {
                Step::Streaming | Step::Calling { .. } => emit(notice),
                Step::Subscribing { id } => match self.acknowledge(id, notice) {
                    Ok(Some(up)) => emit(up),
                    Ok(None) => {}
                    Err(cause) => outcome = Err(cause),
                },
                _ => {}
            }
        });
        self.exchange.body = Body::Events(decoder);
        outcome
    }

    /// What the beginning of a listen stream means: no message may come before the acknowledgement.
    fn acknowledge(&mut self, id: u32, notice: Notice) -> Result<Option<Notice>, Cause> {
        match notice {
            Notice::Event(EventFacts { kind: Some(Kind::Acknowledgement), is_stray: false, .. }) => {
                self.step = Step::Streaming;
                self.subscription = Some(id);
                Ok(Some(Notice::Up))
            }
            Notice::Event(EventFacts { kind: Some(_), .. }) => Err(Cause::Unfit("not acknowledged first")),
            _ => Ok(None),
        }
    }

    /// Whether a message on a listen stream does not say that it belongs to it.
    fn is_stray(&self, data: &[u8]) -> bool {
        let expected = match self.step {
            Step::Subscribing { id } => Some(id),
            Step::Streaming => self.subscription,
            _ => None,
        };
        expected.is_some() && rpc::subscription(data) != expected
    }

    fn on_block(&mut self, block: Block, now: Moment, run: u32) -> EventFacts {
        if let Some(retry_ms) = block.retry_ms {
            self.retry_ms = u32::try_from(retry_ms).ok();
        }
        let repeats_id = self.note_event_id(block.id);
        let data = block.data.filter(|data| !data.is_empty());
        let kind = data.as_deref().and_then(rpc::read);
        if let Some(kind) = kind {
            self.note_answer(kind, now);
        }
        EventFacts {
            at: now,
            marker: data.as_deref().and_then(|data| rpc::find_marker(data, run)),
            // A priming event repeats the cursor it continues behind, as it should.
            repeats_id: repeats_id && data.is_some(),
            is_garbled: data.is_some() && kind.is_none(),
            is_stray: kind.is_some() && data.as_deref().is_some_and(|data| self.is_stray(data)),
            kind,
        }
    }

    fn on_json(&mut self, json: &[u8], now: Moment, exchange: &Exchange) -> Result<(), Cause> {
        // What else is answered, to a DELETE or a plain POST, may be anything.
        let is_expected = matches!(self.step, Step::Initializing | Step::Discovering | Step::Calling { .. })
            && exchange.status == 200;
        match rpc::read(json) {
            _ if !is_expected => {}
            Some(kind) => self.note_answer(kind, now),
            None => return Err(Cause::Unfit("not JSON-RPC")),
        }
        Ok(())
    }

    fn note_answer(&mut self, kind: Kind, now: Moment) {
        let expected = match self.step {
            Step::Initializing | Step::Discovering => rpc::INITIALIZE_ID,
            Step::Calling { id } => id,
            _ => return,
        };
        if let Kind::Answer { id, verdict } = kind
            && id == Some(expected)
        {
            self.exchange.answer = Some((now, verdict));
        }
    }
}
