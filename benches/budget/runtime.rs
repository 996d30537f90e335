//! The second floor: the same on tokio-uring, as anyone would write it. A task per connection, and one that ticks.
//!
//! What it costs beyond the bare ring is the runtime: tasks, wakers, the reactor that watches the ring.

use super::canned::{Canned, KEEP_ALIVE, Kind, Reply};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    io,
    net::TcpListener as StdListener,
    ops::ControlFlow,
    rc::Rc,
    time::Duration,
};
use tokio_uring::net::{TcpListener, TcpStream};

const BUFFER_BYTES: usize = 2048;
const TICK_MS: u64 = 16;

struct Shared {
    canned: Canned,
    streams: RefCell<Slab<Rc<TcpStream>>>,
    /// Streams by the tick of the interval on which they are due.
    buckets: RefCell<Vec<Vec<usize>>>,
    tick: Cell<usize>,
}

/// Serves until it is killed. Prints its address once it listens.
pub(crate) fn run(listener: StdListener, keep_alive_ms: u64, reply: Reply) -> io::Result<()> {
    let ticks = usize::try_from(keep_alive_ms / TICK_MS).unwrap_or(1).max(1);
    let shared = Rc::new(Shared {
        canned: Canned::new(reply),
        streams: RefCell::default(),
        buckets: RefCell::new(vec![Vec::new(); ticks]),
        tick: Cell::new(0),
    });
    let mut ring = tokio_uring::uring_builder();
    ring.setup_single_issuer().setup_coop_taskrun().setup_cqsize(32_768);
    tokio_uring::builder().entries(256).uring_builder(&ring).start(async move {
        let listener = TcpListener::from_std(listener);
        tokio_uring::spawn(send_comments(shared.clone()));
        loop {
            let (stream, _) = listener.accept().await?;
            tokio_uring::spawn(serve(Rc::new(stream), shared.clone()));
        }
    })
}

async fn serve(stream: Rc<TcpStream>, shared: Rc<Shared>) {
    let (mut buffer, mut filled, mut reply) = (vec![0_u8; BUFFER_BYTES], Vec::new(), Vec::with_capacity(512));
    let mut slot = None;
    loop {
        let (result, returned) = stream.read(buffer).await;
        buffer = returned;
        let Ok(count @ 1..) = result else { break };
        filled.extend_from_slice(&buffer[..count]);
        let ControlFlow::Continue(kind) = Kind::of(&filled) else { continue };
        shared.canned.answer(kind, &filled, &mut reply);
        filled.clear();
        match kind {
            Kind::Listen => {
                let entry = shared.streams.borrow_mut().insert(stream.clone());
                let buckets = &mut *shared.buckets.borrow_mut();
                let bucket = entry.wrapping_mul(0x9e37_79b9) % buckets.len();
                buckets[bucket].push(entry);
                slot = Some((bucket, entry));
            }
            Kind::Publish => {
                let streams: Vec<_> =
                    shared.streams.borrow().iter().map(|(_, stream)| stream.clone()).collect();
                streams.into_iter().for_each(|stream| send(stream, shared.canned.event.clone()));
            }
            Kind::Initialize | Kind::Notification | Kind::Call => {}
        }
        let (result, returned) = stream.write_all(reply).await;
        reply = returned;
        if result.is_err() {
            break;
        }
    }
    if let Some((bucket, entry)) = slot {
        shared.buckets.borrow_mut()[bucket].retain(|other| *other != entry);
        drop(shared.streams.borrow_mut().remove(entry));
    }
}

fn send(stream: Rc<TcpStream>, bytes: impl tokio_uring::buf::IoBuf) {
    tokio_uring::spawn(async move { stream.write_all(bytes).await.0 });
}

async fn send_comments(shared: Rc<Shared>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
    loop {
        ticks.tick().await;
        let buckets = shared.buckets.borrow();
        shared.tick.set((shared.tick.get() + 1) % buckets.len());
        for entry in &buckets[shared.tick.get()] {
            send(shared.streams.borrow()[*entry].clone(), KEEP_ALIVE);
        }
    }
}
