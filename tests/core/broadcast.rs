//! One message for every session of every shard, handed out in pieces.

use crate::world::{ClientId, World, config, other};
use moorline::core::Tell;
use std::collections::HashMap;

/// Sessions spread over the shards, each with a listener.
fn listeners(world: &mut World, shards: usize, count: usize) -> Vec<(ClientId, ClientId)> {
    (0..count)
        .map(|n| {
            let owner = world.open_on(n % shards, "2025-11-25");
            (owner, world.listen(owner))
        })
        .collect()
}

#[test]
fn a_broadcast_in_pieces_reaches_every_session_of_every_shard_once() {
    for budget in [1, 7, 1_000] {
        let mut world = World::with(config(4));
        let sessions = listeners(&mut world, 4, 100);
        world.pump_budget = budget;
        world.tell(1, Tell::Broadcast(other("one")));
        world.tell(3, Tell::Broadcast(other("two")));
        for (owner, listener) in &sessions {
            let mut texts = world.texts(*listener);
            texts.sort();
            assert_eq!(texts, ["one", "two"], "{owner:?}");
        }
    }
}

#[test]
fn sessions_begun_or_ended_meanwhile_change_nothing_for_the_others() {
    let mut world = World::with(config(2));
    let sessions = listeners(&mut world, 2, 20);
    world.pump_budget = 0;
    world.tell(0, Tell::Broadcast(other("news")));
    // Half way through, sessions end, and others take their slots.
    for shard in 0..2 {
        let now = world.now;
        world.shards[shard].pump(5, now);
    }
    world.settle();
    let ended: Vec<_> = sessions.iter().copied().skip(14).step_by(2).collect();
    for (owner, _) in &ended {
        world.delete(*owner);
        assert_eq!(world.response(*owner).status, 204);
    }
    let late = listeners(&mut world, 2, 10);
    world.pump_budget = 3;
    world.settle();
    for (owner, listener) in &sessions {
        if !ended.contains(&(*owner, *listener)) {
            assert_eq!(world.texts(*listener), ["news"], "{owner:?}");
        }
    }
    for (owner, listener) in &late {
        assert_eq!(world.texts(*listener), [""; 0], "{owner:?} began later");
    }
    world.tell(0, Tell::Broadcast(other("later news")));
    for (_, listener) in &late {
        assert_eq!(world.texts(*listener), ["later news"]);
    }
}

#[test]
fn each_step_looks_at_no_more_sessions_than_its_budget() {
    let mut world = World::new();
    let sessions = listeners(&mut world, 1, 50);
    world.pump_budget = 0;
    world.tell(0, Tell::Broadcast(other("news")));
    let mut reached = 0;
    for step in 1..=5 {
        let now = world.now;
        world.shards[0].pump(10, now);
        world.settle();
        reached += sessions.iter().map(|(_, listener)| world.texts(*listener).len()).sum::<usize>();
        assert_eq!(reached, step * 10);
    }
}

#[test]
fn broadcasts_reach_each_session_in_order_and_wait_where_nobody_listens() {
    let mut world = World::with(config(2));
    let sessions = listeners(&mut world, 2, 6);
    let deaf = world.open_on(1, "2025-06-18");
    world.pump_budget = 2;
    for n in 0..30 {
        world.tell(0, Tell::Broadcast(other(&n.to_string())));
    }
    let expected: Vec<_> = (0..30).map(|n| n.to_string()).collect();
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for (_, listener) in &sessions {
        assert_eq!(world.texts(*listener), expected);
        *counts.entry(world.client(*listener).shard).or_default() += 1;
    }
    assert_eq!(counts, HashMap::from([(0, 3), (1, 3)]));
    let late = world.join(deaf);
    world.get(late);
    let waiting: Vec<_> = world.response(late).events().iter().filter_map(|event| event.text()).collect();
    assert_eq!(waiting, expected);
}
