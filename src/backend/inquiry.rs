//! What a handler asks of a client without a session (2026-07-28): questions that go out with an answer, and come back
//! answered with another call.
//!
//! Owns the questions of one call and their names. A name is what the handler says, or the kind of the question and a number;
//! numbers follow from the order of the questions, so that a handler that asks the same in the same order finds answers that
//! came before their questions. It must never keep a question nobody waits at.

use super::asks::Asks;
use crate::core::seam::ServerRequestId;
use bytes::Bytes;
use std::time::Duration;

/// One call's questions.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    /// Answers without a question yet.
    pub(super) given: Vec<(String, Bytes)>,
    pub(super) asked: Vec<Question>,
    /// Questions named by their kind so far.
    numbered: u32,
    /// The handler wants to become a task for that long.
    pub(super) task: Option<Duration>,
}

/// A request to a client.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) name: String,
    pub(super) id: ServerRequestId,
    /// `{"method":…,"params":…}`
    pub(super) request: Bytes,
    /// How long the client may take.
    pub(super) patience: Duration,
}

impl Inquiry {
    /// The name of the next question, or its answer if that is here already.
    pub(super) fn question(&mut self, name: Option<&str>, kind: &str) -> Result<String, Bytes> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => {
                self.numbered += 1;
                format!("{kind}-{}", self.numbered)
            }
        };
        match self.given.iter().position(|(given, _)| *given == name) {
            Some(place) => Err(self.given.swap_remove(place).1),
            None => Ok(self.unused(name)),
        }
    }

    /// Two questions at a time may not have one name.
    fn unused(&self, name: String) -> String {
        let is_used = |name: &str| self.asked.iter().any(|question| question.name == name);
        if !is_used(&name) {
            return name;
        }
        (2..).map(|number: u32| format!("{name}-{number}")).find(|name| !is_used(name)).unwrap_or(name)
    }

    /// Name and request of each question somebody waits at.
    pub(super) fn open(&mut self, asks: &Asks) -> Vec<(String, Bytes)> {
        self.asked.retain(|question| asks.is_waiting(question.id));
        self.asked.iter().map(|question| (question.name.clone(), question.request.clone())).collect()
    }

    /// How long the most patient question waits.
    pub(super) fn patience(&self) -> Duration {
        self.asked.iter().map(|question| question.patience).max().unwrap_or_default()
    }

    /// Takes away the questions that are answered by this.
    pub(super) fn matched(&mut self, answers: Vec<(String, Bytes)>) -> Vec<(ServerRequestId, Bytes)> {
        let mut matched = Vec::new();
        for (name, answer) in answers {
            if let Some(place) = self.asked.iter().position(|question| question.name == name) {
                matched.push((self.asked.remove(place).id, answer));
            }
        }
        matched
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn ask(inquiry: &mut Inquiry, name: Option<&str>) -> String {
        let name = inquiry.question(name, "roots").unwrap();
        let id = ServerRequestId(inquiry.asked.len() as u64);
        inquiry.asked.push(Question {
            name: name.clone(),
            id,
            request: Bytes::new(),
            patience: Duration::ZERO,
        });
        name
    }

    #[test]
    fn questions_have_names_of_their_own() {
        let mut inquiry = Inquiry::default();
        let names = [None, None, Some("who"), Some("who"), Some("who")].map(|name| ask(&mut inquiry, name));
        assert_eq!(names, ["roots-1", "roots-2", "who", "who-2", "who-3"]);
    }

    #[test]
    fn an_answer_may_come_before_its_question() {
        let mut inquiry = Inquiry { given: vec![("roots-1".into(), "1".into())], ..Inquiry::default() };
        assert_eq!(inquiry.question(None, "roots"), Err("1".into()));
        assert_eq!(inquiry.question(None, "roots"), Ok("roots-2".into()));
    }

    #[test]
    fn answers_find_their_questions_and_no_others() {
        let mut inquiry = Inquiry::default();
        ask(&mut inquiry, Some("a"));
        ask(&mut inquiry, Some("b"));
        let answers = ["b", "c", "b"].map(|name| (name.to_owned(), Bytes::from_static(b"{}"))).to_vec();
        assert_eq!(inquiry.matched(answers), [(ServerRequestId(1), Bytes::from_static(b"{}"))]);
        assert_eq!(inquiry.asked.len(), 1);
    }
}
