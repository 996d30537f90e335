//! Bounds that only an unlikely order of events reaches, and what follows then.

use crate::world::{ClientId, World, config, http};
use moorline::core::config::CoreConfig;
use moorline::limits;

fn session() -> (World, ClientId) {
    let mut world = World::new();
    let client = world.open("2025-11-25");
    (world, client)
}

/// The id of the first event of a response.
fn first_id(response: &http::Response) -> String {
    response.events().into_iter().find_map(|event| event.id).expect("an event with an id")
}

/// A call whose reply became a stream by time alone, continued by a GET after its priming event.
fn continued_call(world: &mut World, owner: ClientId) -> (ClientId, http::Response) {
    let caller = world.join(owner);
    world.begin(caller, "1");
    world.advance(2 * limits::SSE_AFTER_MS);
    let cursor = first_id(&world.response(caller));
    world.resume(owner, &cursor)
}

#[test]
fn continued_posts_cannot_exceed_the_cap_on_get_streams() {
    let (mut world, owner) = session();
    let statuses: Vec<u16> = (0..40).map(|_| continued_call(&mut world, owner).1.status).collect();
    let (served, refused) = statuses.split_at(statuses.iter().take_while(|status| **status == 200).count());
    assert_eq!(served.len(), 31, "each needs two places at first, then those of the oldest that were left");
    assert!(refused.iter().all(|status| *status == 503), "{refused:?}");
}

#[test]
fn making_place_may_cost_the_stream_that_was_asked_for_its_last_events() {
    let mut world = World::with(CoreConfig { replay_events_max: 1, ..config(1) });
    let owner = world.open("2025-11-25");
    let (last, _) = world.finished_post(owner);
    let primary = world.resume(owner, &last).0;
    for _ in 1..limits::FALLEN_THROUGH_PER_SESSION_MAX {
        assert_eq!(world.resume(owner, &last).1.status, 200);
    }
    let left = limits::GET_STREAMS_PER_SESSION_MAX - limits::FALLEN_THROUGH_PER_SESSION_MAX;
    for _ in 0..left / 2 {
        assert_eq!(continued_call(&mut world, owner).1.status, 200);
    }
    // The primary is the oldest of the streams that can be done without, and something waits behind its output.
    world.stall(primary);
    world.announce(owner, &"x".repeat(20_000));
    let (_, first) = world.finished_post(owner);
    world.announce(owner, "waiting");
    let (resumed, response) = world.resume(owner, &first);
    assert_eq!(response.status, 200);
    assert!(!response.complete && !world.client(resumed).server_side_closed());
}
