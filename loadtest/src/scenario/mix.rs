//! Which action comes next, when several are mixed by weight.
//!
//! Deterministic and smooth: over any stretch each action comes as often as its weight asks, never in
//! clumps, so that two runs do the same.

use serde::{Deserialize, Serialize};

/// Something a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// `tools/call`.
    Call,
    /// `tools/list`.
    List,
    /// `ping`; of 2026 `server/discover`.
    Ping,
    /// End the session and open a new one; of 2026 open a listen stream and end it.
    Churn,
    /// Cut a held stream and open it again.
    Reconnect,
}

/// Actions with their weights.
#[derive(Clone, Debug)]
pub(crate) struct Mix(Vec<Weighted>);

#[derive(Clone, Debug)]
struct Weighted {
    action: Action,
    weight: i64,
    credit: i64,
}

impl Mix {
    /// A mix; actions of weight 0 never come.
    pub(crate) fn new(weights: &[(Action, u32)]) -> Self {
        let weighted = |(action, weight): &(Action, u32)| Weighted {
            action: *action,
            weight: i64::from(*weight),
            credit: 0,
        };
        Self(weights.iter().filter(|(_, weight)| *weight > 0).map(weighted).collect())
    }

    /// The next action; `None` when no action has a weight.
    pub(crate) fn next(&mut self) -> Option<Action> {
        let total: i64 = self.0.iter().map(|weighted| weighted.weight).sum();
        for weighted in &mut self.0 {
            weighted.credit += weighted.weight;
        }
        let chosen = self.0.iter_mut().max_by_key(|weighted| weighted.credit)?;
        chosen.credit -= total;
        Some(chosen.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_over_any_stretch() {
        let mut mix =
            Mix::new(&[(Action::Call, 8), (Action::Ping, 1), (Action::Churn, 1), (Action::List, 0)]);
        let actions: Vec<_> = std::iter::from_fn(|| mix.next()).take(100).collect();
        let count = |wanted| actions.iter().filter(|action| **action == wanted).count();
        assert_eq!([Action::Call, Action::Ping, Action::Churn, Action::List].map(count), [80, 10, 10, 0]);
        assert!(actions.windows(11).all(|stretch| stretch.contains(&Action::Ping)));
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(Mix::new(&[]).next(), None);
    }
}
