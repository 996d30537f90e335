//! A whole server: what it needs from the host, its threads, its start and its stop.
//!
//! Owns the listening sockets until the shards have them, and the shards' threads. Knows no protocol.
//!
//! Start-up failures are one line each: what failed, why, and what lifts it.

use crate::{
    admin::{self, AllListen},
    core::{Entropy as _, ShardId, census::Census, config::CoreConfig},
    limits::{DRAIN_MS, RING_ENTRIES, RING_ENTRIES_MAX, SHARDS_MAX},
    shell::{
        Backend,
        doorbell::{Doorbell, Phase},
        driver::{self, Farewell, Parts},
        entropy::SystemEntropy,
        files,
        listen::{self, Bound},
        mailbox::{self, Mailbox},
        signals, supervisor,
    },
};
use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};
use thiserror::Error;

/// Fewer connections than this are no service.
pub(crate) const CONNECTIONS_MIN: usize = 16;

/// What a [`Server`] is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where to listen, at least one address. Port 0 lets the kernel choose.
    pub listen: Vec<SocketAddr>,
    /// Where the admin listener is: a loopback address, or none. Whoever reaches it can publish to every session.
    pub admin_listen: Option<SocketAddr>,
    /// Submission queue entries of each ring, a power of two.
    pub ring_entries: u32,
    /// How long running calls may take to finish after [`ShutdownHandle::drain`].
    pub drain: Duration,
    /// Processes the backend may have besides this one: each needs a few descriptors.
    pub children_max: usize,
    /// Who handles SIGTERM and SIGINT.
    pub signals: Signals,
    /// What each shard's core is told; among it the number of shards (1 to [`SHARDS_MAX`]) and the path for
    /// the ready line. More connections than the open-file limit has room for are not admitted.
    pub core: CoreConfig,
}

/// Who handles SIGTERM and SIGINT, and speaks with whoever supervises the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// The server: the first drains it, the second ends the process. A supervisor behind `NOTIFY_SOCKET` is told when it
    /// is ready and when it stops, and its watchdog is fed while all threads take their turns.
    Handled,
    /// The embedding program.
    Left,
}

impl ServerConfig {
    /// On a loopback port of the kernel's choice, signals left to the embedding program.
    pub fn new(core: CoreConfig) -> Self {
        ServerConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            admin_listen: None,
            ring_entries: RING_ENTRIES,
            drain: Duration::from_millis(DRAIN_MS),
            children_max: 0,
            signals: Signals::Left,
            core,
        }
    }
}

/// Why a server does not start. Each is one line with its remedy.
#[derive(Debug, Error)]
pub enum StartError {
    /// Nothing to listen on.
    #[error("no address to listen on: give at least one with --listen")]
    NoAddress,
    /// The number of shards is out of range.
    #[error("{0} shards are not possible: choose 1 to {SHARDS_MAX} with --shards")]
    Shards(u16),
    /// The size of the ring is no power of two.
    #[error(
        "{0} ring entries are not possible: choose a power of two from 8 to {RING_ENTRIES_MAX} with --ring-entries"
    )]
    RingEntries(u32),
    /// Somebody listens there.
    #[error("cannot listen on {0}: the port is taken (see `ss -ltnp`); choose another with --listen")]
    PortTaken(SocketAddr),
    /// No interface has this address.
    #[error(
        "cannot listen on {0}: no interface of this host has that address (see `ip addr`); correct --listen"
    )]
    AddressUnavailable(SocketAddr),
    /// A privileged port, or a security policy.
    #[error(
        "cannot listen on {0}: not permitted; choose a port from 1024 up with --listen, or grant CAP_NET_BIND_SERVICE"
    )]
    AddressForbidden(SocketAddr),
    /// Any other failure of bind or listen.
    #[error("cannot listen on {address}: {error}; correct --listen")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// What was handed over is no listening socket.
    #[error("cannot listen on what LISTEN_FDS hands over: {0}; correct the socket unit")]
    Handed(io::Error),
    /// The admin listener has no authentication: only this machine may reach it.
    #[error("the admin listener must be on a loopback address, not {0}; correct --admin-listen")]
    AdminAddress(SocketAddr),
    /// The admin listener's address is not to be had.
    #[error("cannot listen on {address} for administration: {error}; choose another with --admin-listen")]
    AdminListen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// The administrator has switched io_uring off.
    #[error(
        "io_uring is switched off on this host (kernel.io_uring_disabled = {0}); lift it with `sysctl kernel.io_uring_disabled=0`"
    )]
    RingSwitchedOff(u32),
    /// A seccomp filter or security module forbids io_uring.
    #[error(
        "io_uring is forbidden for this process, most likely by a seccomp profile; in a container, run it with a profile that allows the io_uring_* system calls"
    )]
    RingForbidden,
    /// The kernel has no io_uring, or lacks what is needed of it.
    #[error("this kernel lacks the io_uring features needed: Linux 6.0 or later is required")]
    RingUnsupported,
    /// The host is short of memory for a ring.
    #[error(
        "not enough memory for the rings: {0}; lower --shards or --ring-entries, or raise the memory limit"
    )]
    RingMemory(io::Error),
    /// The open-file limit leaves no room for connections.
    #[error(
        "the open-file limit of {limit} is too low: {needed} are needed; raise it with `ulimit -Hn` or LimitNOFILE="
    )]
    OpenFiles {
        /// The hard limit.
        limit: usize,
        /// The least that is needed.
        needed: usize,
    },
    /// Something else the host refuses.
    #[error("cannot start: {what}: {error}")]
    Host {
        /// What was attempted.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

/// Why a server that ran has failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// A shard could not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A shard ended with an error.
    #[error("shard {} failed: {error}", shard.0)]
    Shard {
        /// Which one.
        shard: ShardId,
        /// What happened.
        error: io::Error,
    },
}

/// A server whose sockets listen and whose shards do not run yet.
pub struct Server {
    config: ServerConfig,
    addresses: Vec<SocketAddr>,
    /// By shard, one per address.
    listeners: Vec<Vec<Bound>>,
    mailboxes: Vec<Mailbox>,
    admin: Option<(admin::Socket, SocketAddr)>,
    shutdown: ShutdownHandle,
    connections_possible: usize,
    reload: signals::Reload,
}

/// Changes the settings of a server that runs, from any thread.
#[derive(Clone, Debug)]
pub struct SettingsHandle {
    doorbells: Vec<Arc<Doorbell>>,
    connections_possible: usize,
}

impl SettingsHandle {
    /// Gives all shards new settings, which each takes in its next turn, without a stream being touched. Deadlines that are
    /// set stay as they are. [`CoreConfig::shards`], the endpoint's path and [`CoreConfig::keep_alive_ms`] have to be those
    /// of the start.
    pub fn apply(&self, mut settings: CoreConfig) {
        settings.connections_max = settings.connections_max.min(self.connections_possible);
        let settings = Arc::new(settings);
        for doorbell in &self.doorbells {
            doorbell.leave_settings(settings.clone());
        }
    }
}

/// Stops a server from any thread.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    doorbells: Vec<Arc<Doorbell>>,
}

impl ShutdownHandle {
    /// Accepts nobody from now on and ends when running calls have finished, at the latest after
    /// [`ServerConfig::drain`]. [`Server::run`] returns then.
    pub fn drain(&self) {
        self.advance(Phase::Drain);
    }

    /// Closes all connections now; [`Server::run`] returns within a second.
    pub fn stop(&self) {
        self.advance(Phase::Stop);
    }

    fn advance(&self, phase: Phase) {
        for doorbell in &self.doorbells {
            doorbell.advance(phase);
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses)
            .field("admin", &self.admin_address())
            .finish()
    }
}

impl Server {
    /// Takes from the host what the server needs: ring, open files, sockets. Clients that connect from
    /// now on wait in the backlog.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn bind(config: ServerConfig) -> Result<Server, StartError> {
        Server::bind_on(config, Vec::new())
    }

    /// The same on sockets that listen already, if there are any: they take the place of [`ServerConfig::listen`]. All
    /// threads take connections from each of them, where without they would have one each; and whoever still waits in
    /// their backlogs when the server ends waits for the next one.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn bind_on(mut config: ServerConfig, sockets: Vec<TcpListener>) -> Result<Server, StartError> {
        if !sockets.is_empty() {
            config.listen = addresses_of(&sockets).map_err(StartError::Handed)?;
        }
        check(&config)?;
        probe_ring(config.ring_entries)?;
        let connections_possible = connections_possible(&config)?;
        config.core.connections_max = config.core.connections_max.min(connections_possible);
        let (addresses, listeners) = match sockets.is_empty() {
            true => bind_all(&config)?,
            false => {
                (config.listen.clone(), share_all(sockets, config.core.shards).map_err(StartError::Handed)?)
            }
        };
        let admin = config.admin_listen.map(bind_admin).transpose()?;
        let mailboxes = mailbox::mailboxes(config.core.shards).map_err(host("doorbells between shards"))?;
        let doorbells = mailboxes.iter().map(|mailbox| mailbox.doorbell().clone()).collect();
        let shutdown = ShutdownHandle { doorbells };
        let reload: signals::Reload = Box::new(|| tracing::info!("SIGHUP: there is nothing to reload"));
        Ok(Server { config, addresses, listeners, mailboxes, admin, shutdown, connections_possible, reload })
    }

    /// What SIGHUP does if signals are [`Signals::Handled`]: without it, nothing. It runs on a thread of its own.
    pub fn on_hangup(&mut self, reload: impl FnMut() + Send + 'static) {
        self.reload = Box::new(reload);
    }

    /// A handle that changes its settings.
    pub fn settings_handle(&self) -> SettingsHandle {
        SettingsHandle {
            doorbells: self.shutdown.doorbells.clone(),
            connections_possible: self.connections_possible,
        }
    }

    /// Where it listens, in the order of [`ServerConfig::listen`], with the ports the kernel chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the admin listener is, if there is one.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// A handle that stops it.
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        self.shutdown.clone()
    }

    /// Runs the shards until they have ended, one thread each; `make_backend` is called on each of them.
    /// Prints `listening on http://ADDR:PORT/PATH` to stderr for each address once every shard accepts.
    ///
    /// # Errors
    /// See [`RunError`]. The other shards are stopped first.
    pub fn run<B, F>(self, make_backend: F) -> Result<(), RunError>
    where
        B: Backend + 'static,
        F: Fn(ShardId) -> B + Send + Clone + 'static,
    {
        let Server { config, addresses, listeners, mut mailboxes, admin, shutdown, reload, .. } = self;
        let _control = match config.signals {
            Signals::Handled => {
                let control = signals::control(shutdown.doorbells.clone(), reload);
                Some(control.map_err(host("signal handlers"))?)
            }
            Signals::Left => None,
        };
        let all_listen = AllListen::default();
        // Ends with this function, after the shards.
        let _admin = match admin {
            Some((socket, address)) => {
                let outside = mailbox::outside(&mut mailboxes);
                let owners = match config.core.auth {
                    Some(_) => admin::Owners::Principals,
                    None => admin::Owners::Nobody,
                };
                let terms = admin::Terms { message_bytes_max: config.core.message_bytes_max, owners };
                let admin = admin::start(socket, outside, all_listen.clone(), terms);
                let admin = admin.map_err(host("the admin listener's thread"))?;
                eprintln!("administration on http://{address}/");
                Some(admin)
            }
            None => None,
        };
        let core = Arc::new(config.core);
        let census = Arc::new(Census::seeded(random_seed()));
        let (ready, all_ready) = mpsc::channel();
        let mut threads = Vec::new();
        for (id, (listeners, mailbox)) in (0..).map(ShardId).zip(listeners.into_iter().zip(mailboxes)) {
            let parts = Parts {
                id,
                core: core.clone(),
                listeners,
                mailbox,
                census: census.clone(),
                ring_entries: config.ring_entries,
                grace: config.drain,
            };
            match start_shard(parts, make_backend.clone(), ready.clone(), shutdown.clone()) {
                Ok(thread) => threads.push((id, thread)),
                Err(error) => {
                    shutdown.stop();
                    let _ = join_all(threads);
                    return Err(StartError::Host { what: "a shard's thread", error }.into());
                }
            }
        }
        drop(ready);
        let mut _watchdog = None;
        if all_ready.iter().count() == threads.len() {
            all_listen.confirm();
            let where_to = announce(&addresses, core.policy.endpoint());
            if config.signals == Signals::Handled {
                supervisor::ready(&where_to);
                _watchdog = supervisor::watchdog(shutdown.doorbells.clone());
            }
        }
        let farewell = join_all(threads)?;
        tracing::info!(
            streams_ended = farewell.streams,
            sessions_ended = farewell.sessions,
            calls_cut = farewell.calls_cut,
            "stopped"
        );
        Ok(())
    }
}

fn check(config: &ServerConfig) -> Result<(), StartError> {
    if config.listen.is_empty() {
        return Err(StartError::NoAddress);
    }
    if !(1..=SHARDS_MAX).contains(&usize::from(config.core.shards)) {
        return Err(StartError::Shards(config.core.shards));
    }
    if !config.ring_entries.is_power_of_two() || !(8..=RING_ENTRIES_MAX).contains(&config.ring_entries) {
        return Err(StartError::RingEntries(config.ring_entries));
    }
    Ok(())
}

/// What keeps clients from choosing which of them share a place in a table.
fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    SystemEntropy::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Makes a ring as the shards will, to find out early and say clearly why there is none. On a thread of its own:
/// the kernel interrupts the thread that made a ring once more after it is gone.
pub(crate) fn probe_ring(entries: u32) -> Result<(), StartError> {
    let probe = thread::spawn(move || {
        let mut builder = tokio_uring::uring_builder();
        builder.setup_single_issuer().setup_coop_taskrun();
        builder.build(entries).map(drop)
    });
    let result = probe.join().expect("making a ring does not panic");
    result.map_err(|error| ring_error(error, switched_off(), is_recent_kernel()))
}

/// Filters say either that it is forbidden or, as podman's, that there is no such system call. No distribution's kernel that
/// is recent enough is without it.
fn ring_error(error: io::Error, switched_off: Option<u32>, is_recent_kernel: bool) -> StartError {
    match (error.raw_os_error(), switched_off) {
        (Some(libc::EPERM | libc::EACCES), Some(value)) => StartError::RingSwitchedOff(value),
        (Some(libc::EPERM | libc::EACCES), None) => StartError::RingForbidden,
        (Some(libc::ENOSYS), _) if is_recent_kernel => StartError::RingForbidden,
        (Some(libc::ENOSYS | libc::EINVAL), _) => StartError::RingUnsupported,
        (Some(libc::ENOMEM), _) => StartError::RingMemory(error),
        _ => StartError::Host { what: "an io_uring", error },
    }
}

/// The value of `kernel.io_uring_disabled`, if it restricts anybody.
fn switched_off() -> Option<u32> {
    let value = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    value.trim().parse().ok().filter(|value| *value != 0)
}

/// The oldest kernel whose io_uring has what is needed.
pub(crate) const KERNEL_MIN: (u64, u64) = (6, 0);

fn is_recent_kernel() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    release.and_then(|release| kernel_version(&release)).is_some_and(|version| version >= KERNEL_MIN)
}

/// Major and minor version of a kernel's release.
pub(crate) fn kernel_version(release: &str) -> Option<(u64, u64)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Connections for which there are descriptors.
fn connections_possible(config: &ServerConfig) -> Result<usize, StartError> {
    let limit = files::raise_limit().map_err(host("the open-file limit"))?;
    let reserved = files::reserved(config.core.shards, config.listen.len(), config.children_max);
    let needed = reserved + CONNECTIONS_MIN;
    if limit < needed {
        return Err(StartError::OpenFiles { limit, needed });
    }
    Ok(limit - reserved)
}

/// The listening sockets this process was started with (`LISTEN_FDS`), for [`Server::bind_on`]. Call it once, before
/// anything else opens files.
///
/// # Errors
/// [`StartError::Handed`] if one of them is no listening TCP socket.
pub fn handed_sockets() -> Result<Vec<TcpListener>, StartError> {
    supervisor::handed_sockets().map_err(StartError::Handed)
}

/// Where sockets listen.
///
/// # Errors
/// If the system does not know.
pub fn addresses_of(sockets: &[TcpListener]) -> io::Result<Vec<SocketAddr>> {
    sockets.iter().map(TcpListener::local_addr).collect()
}

fn share_all(sockets: Vec<TcpListener>, shards: u16) -> io::Result<Vec<Vec<Bound>>> {
    let mut by_shard: Vec<Vec<Bound>> = (0..shards).map(|_| Vec::new()).collect();
    for socket in sockets {
        for (listeners, bound) in by_shard.iter_mut().zip(listen::share(socket, shards)?) {
            listeners.push(bound);
        }
    }
    Ok(by_shard)
}

fn bind_all(config: &ServerConfig) -> Result<(Vec<SocketAddr>, Vec<Vec<Bound>>), StartError> {
    let mut addresses = Vec::new();
    let mut by_shard: Vec<Vec<Bound>> = (0..config.core.shards).map(|_| Vec::new()).collect();
    for address in &config.listen {
        let (actual, group) = listen::bind_group(*address, config.core.shards)
            .map_err(|error| listen_error(*address, error))?;
        addresses.push(actual);
        for (listeners, socket) in by_shard.iter_mut().zip(group) {
            listeners.push(socket);
        }
    }
    Ok((addresses, by_shard))
}

fn bind_admin(address: SocketAddr) -> Result<(admin::Socket, SocketAddr), StartError> {
    if !address.ip().is_loopback() {
        return Err(StartError::AdminAddress(address));
    }
    let bound = admin::Socket::bind(address).and_then(|socket| {
        let actual = socket.address()?;
        Ok((socket, actual))
    });
    bound.map_err(|error| StartError::AdminListen { address, error })
}

fn listen_error(address: SocketAddr, error: io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::AddrInUse => StartError::PortTaken(address),
        io::ErrorKind::AddrNotAvailable => StartError::AddressUnavailable(address),
        io::ErrorKind::PermissionDenied => StartError::AddressForbidden(address),
        _ => StartError::Listen { address, error },
    }
}

fn host(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError::Host { what, error }
}

type Shard = JoinHandle<io::Result<Farewell>>;

fn start_shard<B, F>(
    parts: Parts,
    make_backend: F,
    ready: mpsc::Sender<()>,
    shutdown: ShutdownHandle,
) -> io::Result<Shard>
where
    B: Backend + 'static,
    F: Fn(ShardId) -> B + Send + 'static,
{
    let id = parts.id;
    thread::Builder::new().name(format!("moorline-{}", id.0)).spawn(move || {
        driver::abort_on_panic(id, || {
            let backend = make_backend(id);
            let end = driver::run(parts, backend, move || {
                // Whoever waited is gone if another shard has failed.
                let _ = ready.send(());
            });
            if end.is_err() {
                shutdown.stop();
            }
            end
        })
    })
}

/// Waits for all shards; the first failure is the outcome.
fn join_all(threads: Vec<(ShardId, Shard)>) -> Result<Farewell, RunError> {
    let mut outcome = Ok(Farewell::default());
    for (shard, thread) in threads {
        let ended = thread.join().expect("a panic of a shard ends the process");
        let ended = ended.map_err(|error| RunError::Shard { shard, error });
        outcome = outcome.and_then(|farewell| Ok(farewell.plus(ended?)));
    }
    outcome
}

/// Prints where it listens, and returns it in one line.
fn announce(addresses: &[SocketAddr], path: &str) -> String {
    let urls: Vec<_> = addresses.iter().map(|address| format!("http://{address}{path}")).collect();
    for url in &urls {
        eprintln!("listening on {url}");
    }
    format!("listening on {}", urls.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call is a failed test")]
    use super::*;
    use crate::{
        backend::{Builtin, Host},
        core::http::policy::{Binding, Policy},
    };
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    fn every_start_error() -> Vec<StartError> {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let error = || io::Error::from_raw_os_error(libc::EIO);
        vec![
            StartError::NoAddress,
            StartError::Shards(0),
            StartError::RingEntries(3),
            StartError::PortTaken(address),
            StartError::AddressUnavailable(address),
            StartError::AddressForbidden(address),
            StartError::Listen { address, error: error() },
            StartError::Handed(error()),
            StartError::AdminAddress(address),
            StartError::AdminListen { address, error: error() },
            StartError::RingSwitchedOff(2),
            StartError::RingForbidden,
            StartError::RingUnsupported,
            StartError::RingMemory(error()),
            StartError::OpenFiles { limit: 64, needed: 100 },
            StartError::Host { what: "x", error: error() },
        ]
    }

    #[test]
    fn every_start_error_is_one_line() {
        for error in every_start_error() {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }

    #[test]
    fn the_reason_for_a_missing_ring_is_told_apart() {
        let error = |number| io::Error::from_raw_os_error(number);
        assert!(matches!(ring_error(error(libc::EPERM), Some(2), true), StartError::RingSwitchedOff(2)));
        assert!(matches!(ring_error(error(libc::EPERM), None, true), StartError::RingForbidden));
        assert!(matches!(ring_error(error(libc::ENOSYS), None, true), StartError::RingForbidden));
        assert!(matches!(ring_error(error(libc::ENOSYS), None, false), StartError::RingUnsupported));
        assert!(matches!(ring_error(error(libc::EINVAL), None, true), StartError::RingUnsupported));
        assert!(matches!(ring_error(error(libc::ENOMEM), Some(1), true), StartError::RingMemory(_)));
    }

    #[test]
    fn a_taken_port_and_a_foreign_address_say_so() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let error = listen::bind_group(address, 1).unwrap_err();
        assert!(matches!(listen_error(address, error), StartError::PortTaken(_)));
        let foreign = "192.0.2.1:0".parse().unwrap();
        let error = listen::bind_group(foreign, 1).unwrap_err();
        assert!(matches!(listen_error(foreign, error), StartError::AddressUnavailable(_)));
    }

    // --- A whole server ---------------------------------------------------------------------------

    fn config(shards: u16) -> ServerConfig {
        let none: [&str; 0] = [];
        let policy = Policy::new("/mcp", Binding::Loopback, &none, &none).unwrap();
        ServerConfig::new(CoreConfig::new(shards, policy))
    }

    struct Running {
        address: SocketAddr,
        shutdown: ShutdownHandle,
        thread: JoinHandle<Result<(), RunError>>,
    }

    fn start(config: ServerConfig) -> Running {
        let server = Server::bind(config).unwrap();
        let (address, shutdown) = (server.addresses()[0], server.shutdown_handle());
        let thread = thread::spawn(move || server.run(|_| Host::new(Builtin::new())));
        Running { address, shutdown, thread }
    }

    impl Running {
        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        }

        fn join(self) {
            self.thread.join().unwrap().unwrap();
        }
    }

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

    /// Sends a POST on a connection that stays open and returns the reply, head and body.
    fn post(stream: &mut TcpStream, session: &str, body: &str) -> String {
        let session =
            if session.is_empty() { String::new() } else { format!("Mcp-Session-Id: {session}\r\n") };
        let accept = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
        let length = body.len();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{accept}{session}Content-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let count = stream.read(&mut chunk).unwrap();
            assert_ne!(count, 0, "closed after {:?}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&chunk[..count]);
            let text = String::from_utf8_lossy(&reply);
            if let Some((head, body)) = text.split_once("\r\n\r\n")
                && field(head, "Content-Length").is_some_and(|length| length.parse() == Ok(body.len()))
            {
                return text.into_owned();
            }
        }
    }

    fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
        let line =
            head.lines().find(|line| line.to_ascii_lowercase().starts_with(&name.to_ascii_lowercase()))?;
        line.split_once(": ").map(|(_, value)| value)
    }

    #[test]
    fn a_session_is_found_from_whatever_shard_a_connection_lands_on() {
        let server = start(config(4));
        let reply = post(&mut server.connect(), "", INITIALIZE);
        let session = field(&reply, "Mcp-Session-Id").unwrap();
        // Enough that all land on one shard with a probability of one in billions.
        for _ in 0..16 {
            let mut stream = server.connect();
            for _ in 0..2 {
                let reply = post(&mut stream, session, r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#);
                assert!(reply.ends_with(r#"{"jsonrpc":"2.0","id":2,"result":{}}"#), "{reply}");
            }
        }
        server.shutdown.drain();
        server.join();
    }

    #[test]
    fn a_drained_server_ends_its_streams_cleanly_and_returns() {
        let server = start(config(2));
        let reply = post(&mut server.connect(), "", INITIALIZE);
        let session = field(&reply, "Mcp-Session-Id").unwrap();
        let mut listener = server.connect();
        let accept = "Accept: text/event-stream\r\n";
        write!(listener, "GET /mcp HTTP/1.1\r\nHost: localhost\r\n{accept}Mcp-Session-Id: {session}\r\n\r\n")
            .unwrap();
        let mut head = [0; 12];
        listener.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        server.shutdown.drain();
        let mut rest = String::new();
        listener.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
        // What the server waits for, since it has told the client that the stream is over.
        drop(listener);
        let address = server.address;
        server.join();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_stopped_server_waits_for_nobody() {
        let server = start(config(2));
        let mut idle = server.connect();
        post(&mut idle, "", INITIALIZE);
        server.shutdown.stop();
        assert!(matches!(idle.read(&mut [0; 1]), Ok(0) | Err(_)));
        server.join();
    }

    #[test]
    fn one_connection_too_many_is_told_so() {
        let mut config = config(1);
        config.core.connections_max = 1;
        let server = start(config);
        let mut first = server.connect();
        post(&mut first, "", INITIALIZE);
        let refused = post(&mut server.connect(), "", INITIALIZE);
        assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
        server.shutdown.stop();
        server.join();
    }
}
