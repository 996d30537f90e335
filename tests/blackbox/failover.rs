//! Streams that die: the next one takes over, and what the dead one had not taken goes to it.

use super::{
    QUIET,
    events::EventStream,
    on_every_shard_count,
    server::Server,
    session::Session,
    wire::{Connection, Leave},
};

/// A receive buffer that takes some messages and no more.
const NARROW_BYTES: usize = 4096;

/// More than fits into it, less than the queue of a session.
const IN_FLIGHT: usize = 200;

on_every_shard_count! {
    /// Whatever way the primary goes, the shadow hears the next message.
    fn the_shadow_is_promoted(server: &Server) {
        for how in [Leave::Fin, Leave::Rst] {
            let session = Session::open(server.address());
            let mut primary = session.listen();
            let mut shadow = session.listen();
            session.notify();
            primary.message();
            shadow.stays_silent();
            primary.leave(how);
            session.notify();
            shadow.message();
            shadow.stays_silent();
        }
    }

    /// With several shadows it is exactly one of them, and so on down to the last.
    fn one_shadow_at_a_time_is_promoted(server: &Server) {
        let session = Session::open(server.address());
        let mut streams: Vec<_> = (0..6).map(|_| session.listen()).collect();
        session.notify();
        streams[0].message();
        streams.remove(0).leave(Leave::Rst);
        while !streams.is_empty() {
            session.notify();
            let heard: Vec<_> = streams.iter_mut().map(EventStream::messages_until_quiet).collect();
            assert_eq!(heard.iter().sum::<usize>(), 1, "{heard:?}");
            let primary = heard.iter().position(|&count| count == 1).expect("one heard it");
            streams.remove(primary).leave(Leave::Rst);
        }
    }

    /// A primary dies with messages its host never took: each arrives, once, at the stream that follows.
    fn messages_in_flight_move_to_the_shadow(server: &Server) {
        let session = Session::open(server.address());
        let mut primary = session.listen_on(Connection::open_narrow(server.address(), NARROW_BYTES), None);
        let mut shadow = session.listen();
        send_past_the_buffer(&session, &mut primary);
        shadow.stays_silent();
        let arrived = primary.arrived();
        primary.leave(Leave::Rst);
        assert_eq!(arrived + shadow.messages_until_quiet(), IN_FLIGHT);
        session.notify();
        shadow.message();
    }

    /// With no shadow they wait for the next listener.
    fn messages_in_flight_wait_for_the_next_listener(server: &Server) {
        let session = Session::open(server.address());
        let mut primary = session.listen_on(Connection::open_narrow(server.address(), NARROW_BYTES), None);
        send_past_the_buffer(&session, &mut primary);
        let arrived = primary.arrived();
        primary.leave(Leave::Rst);
        let mut next = session.listen();
        assert_eq!(arrived + next.messages_until_quiet(), IN_FLIGHT);
    }

    /// A primary that comes back with its cursor gets what followed, in order and without a gap.
    fn a_cursor_continues_after_a_cut(server: &Server) {
        let session = Session::open(server.address());
        let mut stream = session.listen();
        session.notify();
        session.notify();
        let first = stream.message();
        let second = stream.message();
        assert_ne!(first.id, second.id);
        stream.leave(Leave::Rst);
        session.notify();
        let mut resumed = session.listen_from(second.id.as_deref());
        let third = resumed.message();
        assert!(third.id.is_some() && third.id != second.id);
        resumed.stays_silent();
    }

    /// A primary that takes nothing any more holds up neither calls nor the session's other streams.
    fn a_stalled_primary_delays_nobody(server: &Server) {
        let session = Session::open(server.address());
        let mut primary = session.listen_on(Connection::open_narrow(server.address(), NARROW_BYTES), None);
        send_past_the_buffer(&session, &mut primary);
        let other = Session::open(server.address());
        let mut listener = other.listen();
        other.notify();
        listener.message();
        assert_eq!(session.ping_status(), 200);
    }
}

/// Sends [`IN_FLIGHT`] messages to a primary that does not read, until its host takes no more.
///
/// The host may make room for a few later, so what it took is counted just before the primary leaves.
fn send_past_the_buffer(session: &Session, primary: &mut EventStream) {
    let mut caller = Connection::open(session.address());
    for _ in 0..IN_FLIGHT {
        session.notify_on(&mut caller);
    }
    let mut arrived = primary.arrived();
    loop {
        std::thread::sleep(QUIET);
        let now = primary.arrived();
        if now == arrived {
            break;
        }
        arrived = now;
    }
    assert!(arrived < IN_FLIGHT, "the buffer is too wide for this test");
}
