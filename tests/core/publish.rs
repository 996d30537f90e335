//! Publications from outside: who gets them, and how they are counted.

use crate::world::{ClientId, World, config, other};
use moorline::{
    core::{
        Announcement, Audience, LogLevel, Notification, NotificationKind, Publication, PublicationId, Reach,
        Tell, ids::SessionId, sse,
    },
    limits,
};

fn publish(world: &mut World, shard: usize, audience: Audience, notification: Notification) {
    let announcement = Announcement { kind: notification.kind, payload: sse::payload(&notification.json) };
    let publication = Publication { id: PublicationId(shard), audience, announcement };
    let now = world.now;
    world.shards[shard].publish(publication, now);
    world.settle();
}

/// What every shard together says about a publication to all.
fn publish_to_all(world: &mut World, notification: &Notification) -> Reach {
    for shard in 0..world.shards.len() {
        publish(world, shard, Audience::All, notification.clone());
    }
    let reports = std::mem::take(&mut world.published);
    assert_eq!(reports.len(), world.shards.len(), "each shard reports once");
    reports.into_iter().fold(Reach::default(), |sum, (_, reach)| sum.plus(reach))
}

fn id_of(world: &World, client: ClientId) -> SessionId {
    SessionId::parse(world.clients[client.0].session.as_ref().unwrap().as_bytes()).unwrap()
}

/// What a new listener of the session gets at once.
fn waiting(world: &mut World, owner: ClientId) -> Vec<String> {
    let listener = world.join(owner);
    world.get(listener);
    world.response(listener).events().iter().filter_map(|event| event.text()).collect()
}

fn log(level: LogLevel) -> Notification {
    Notification { kind: NotificationKind::Log(level), ..other("log") }
}

#[test]
fn every_session_is_counted_once_whatever_the_size_of_a_step() {
    for budget in [1, 7, 1_000] {
        let mut world = World::with(config(4));
        let owners: Vec<_> = (0..40).map(|n| world.open_on(n % 4, "2025-11-25")).collect();
        let listeners: Vec<_> = owners.iter().step_by(2).map(|owner| world.listen(*owner)).collect();
        world.pump_budget = budget;
        let reach = publish_to_all(&mut world, &other("news"));
        assert_eq!(reach, Reach { sessions: 40, written: 20, pending: 20, ..Reach::default() });
        for listener in listeners {
            assert_eq!(world.texts(listener), ["news"]);
        }
        assert_eq!(waiting(&mut world, owners[1]), ["news"], "what was pending is there");
    }
}

#[test]
fn a_session_whose_primary_is_stalled_holds_it_pending() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    let listener = world.listen(owner);
    world.stall(listener);
    let mut written = 0;
    let pending = loop {
        let reach = publish_to_all(&mut world, &other(&"x".repeat(1_000)));
        assert_eq!(reach.sessions, 1);
        written += reach.written;
        if reach.pending > 0 {
            break reach.pending;
        }
        assert!(written < 100, "a stalled stream takes a bounded amount");
    };
    assert_eq!(pending, 1);
    world.open_window(listener, 1 << 20);
    assert_eq!(world.texts(listener).len() as u64, written + pending);
}

#[test]
fn log_messages_below_a_session_s_level_are_filtered() {
    let mut world = World::new();
    let (quiet, loud) = (world.open("2025-11-25"), world.open("2025-11-25"));
    world.post(quiet, r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}"#);
    assert_eq!(world.response(quiet).status, 200);
    world.listen(loud);
    let reach = publish_to_all(&mut world, &log(LogLevel::Info));
    assert_eq!(reach, Reach { sessions: 2, written: 1, filtered: 1, ..Reach::default() });
    let reach = publish_to_all(&mut world, &log(LogLevel::Error));
    assert_eq!(reach, Reach { sessions: 2, written: 1, pending: 1, ..Reach::default() });
}

#[test]
fn equal_signals_that_wait_are_pending_once_more() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    let signal = Notification { kind: NotificationKind::ToolsListChanged, ..other("tools") };
    for _ in 0..3 {
        let reach = publish_to_all(&mut world, &signal);
        assert_eq!(reach, Reach { sessions: 1, pending: 1, ..Reach::default() });
    }
    assert_eq!(waiting(&mut world, owner), ["tools"], "merged to one");
}

#[test]
fn a_publication_is_counted_beside_a_broadcast_that_says_the_same() {
    let mut world = World::new();
    let owner = world.open("2025-11-25");
    let listener = world.listen(owner);
    let signal = Notification { kind: NotificationKind::ToolsListChanged, ..other("tools") };
    world.pump_budget = 0;
    world.tell(0, Tell::Broadcast(signal.clone()));
    publish(&mut world, 0, Audience::All, signal.clone());
    world.tell(0, Tell::Broadcast(signal));
    world.pump_budget = 1_000;
    world.settle();
    assert_eq!(world.published, [(PublicationId(0), Reach { sessions: 1, written: 1, ..Reach::default() })]);
    assert_eq!(world.texts(listener), ["tools", "tools"], "the two broadcasts are merged");
}

#[test]
fn a_publication_that_finds_no_room_among_the_broadcasts_is_refused_by_all() {
    let mut world = World::new();
    let _sessions = [world.open("2025-11-25"), world.open("2025-11-25")];
    world.pump_budget = 0;
    for n in 0..limits::BROADCASTS_WAITING_MAX {
        world.tell(0, Tell::Broadcast(other(&n.to_string())));
    }
    publish(&mut world, 0, Audience::All, other("late"));
    assert_eq!(world.published, [(PublicationId(0), Reach { sessions: 2, refused: 2, ..Reach::default() })]);
}

#[test]
fn one_session_gets_its_own() {
    let mut world = World::with(config(2));
    let (owner, neighbour) = (world.open_on(1, "2025-11-25"), world.open_on(1, "2025-11-25"));
    let (listener, other_listener) = (world.listen(owner), world.listen(neighbour));
    let id = id_of(&world, owner);
    publish(&mut world, 1, Audience::Session(id), other("for you"));
    let reach = Reach { sessions: 1, written: 1, ..Reach::default() };
    assert_eq!(world.published, [(PublicationId(1), reach)]);
    assert_eq!(world.texts(listener), ["for you"]);
    assert_eq!(world.texts(other_listener), [""; 0]);
}

#[test]
fn a_session_that_is_gone_or_foreign_or_guessed_gets_nothing() {
    let mut world = World::with(config(2));
    let owner = world.open_on(1, "2025-11-25");
    let id = id_of(&world, owner);
    let guessed = SessionId { secret: id.secret ^ 1, ..id };
    publish(&mut world, 1, Audience::Session(guessed), other("guess"));
    publish(&mut world, 0, Audience::Session(id), other("wrong shard"));
    world.delete(owner);
    publish(&mut world, 1, Audience::Session(id), other("late"));
    assert!(world.published.iter().all(|(_, reach)| *reach == Reach::default()));
    assert_eq!(world.published.len(), 3);
}

#[test]
fn a_shard_without_sessions_reports_at_once() {
    let mut world = World::with(config(2));
    assert_eq!(publish_to_all(&mut world, &other("nobody")), Reach::default());
}
