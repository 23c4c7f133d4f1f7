//! Listeners: bound from the settings, closed together.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use api::{Api, Paths};
use ingest::{
    Ingest,
    receivers::{
        ConnectionCap, Connections, Door, FrameFormat, ReceiveBudget, ReceiverLimits, serve_datagrams,
        serve_datagrams_behind, serve_frames, serve_lines,
    },
};
use tls::Identity;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
    task::JoinSet,
};

use crate::{
    certificates,
    descriptors::Descriptors,
    intake::{Intake, IntakeShare},
    metrics::Metrics,
    output::print,
    settings::{Address, ListenerProtocol, Settings},
};

/// A socket for HTTP that is bound and not served yet.
pub struct HttpListener {
    listener: TcpListener,
    paths: Paths,
    has_tls: bool,
}

/// The sockets that are open, and the tasks that serve them.
pub struct Listeners {
    tasks: JoinSet<()>,
    /// Name and address of each.
    bound: Vec<(String, SocketAddr)>,
    stop: watch::Sender<bool>,
    /// Of the receivers.
    intake: Arc<Intake>,
    /// Of all receivers together.
    cap: Arc<ConnectionCap>,
}

impl Listeners {
    /// None yet. Receivers end when the intake closes.
    pub fn new(descriptors: Descriptors, settings: &Settings, intake: Arc<Intake>) -> Listeners {
        let own = [&settings.listen.line, &settings.listen.pickle, &settings.listen.protobuf];
        let receivers = own.into_iter().flatten().count() + settings.listeners.len();
        let cap = Arc::new(ConnectionCap::new(descriptors.receivers, receivers as u64));
        Listeners { tasks: JoinSet::new(), bound: Vec::new(), stop: watch::channel(false).0, intake, cap }
    }

    /// Opens carbon's receivers.
    pub async fn receive(
        &mut self,
        settings: &Settings,
        ingest: &Arc<Ingest>,
        budget: &ReceiveBudget,
        metrics: &Metrics,
    ) -> anyhow::Result<()> {
        let (cap, limits) = (self.cap.clone(), self.limits(settings));
        if let Some(address) = &settings.listen.line {
            let listener = self.bind("line", address).await?;
            if settings.listen.udp {
                let bound = listener.local_addr()?;
                let socket = UdpSocket::bind(bound).await;
                let socket = socket.with_context(|| cannot_listen(address, "listen.udp", "--line"))?;
                self.take_in(serve_datagrams(ingest.acceptor(), socket, self.intake.closes())).await;
            }
            let counts = connections(metrics, "line", &cap);
            let stop = self.intake.closes();
            self.take_in(serve_lines(ingest.acceptor(), listener, limits, budget.clone(), counts, stop)).await;
        }
        let frames = [
            (&settings.listen.pickle, "pickle", FrameFormat::Pickle),
            (&settings.listen.protobuf, "protobuf", FrameFormat::Protobuf),
        ];
        for (address, name, format) in frames {
            let Some(address) = address else { continue };
            let listener = self.bind(name, address).await?;
            let counts = connections(metrics, name, &cap);
            let stop = self.intake.closes();
            self.take_in(serve_frames(ingest.acceptor(), format, listener, limits, budget.clone(), counts, stop)).await;
        }
        Ok(())
    }

    /// Opens each `[[listener]]`, behind its door.
    pub async fn receive_behind(
        &mut self,
        settings: &Settings,
        doors: &[Arc<Door>],
        ingest: &Arc<Ingest>,
        budget: &ReceiveBudget,
        metrics: &Metrics,
    ) -> anyhow::Result<()> {
        for (listener, door) in settings.listeners.iter().zip(doors) {
            let (name, address) = (&listener.name.0, listener.address.as_ref().context("a listener has an address")?);
            if listener.protocol == ListenerProtocol::Udp {
                let socket = UdpSocket::bind(address.as_str()).await;
                let socket = socket.with_context(|| cannot_listen_of(name, address))?;
                self.bound.push((name.clone(), socket.local_addr()?));
                let stop = self.intake.closes();
                self.take_in(serve_datagrams_behind(door.clone(), ingest.acceptor(), socket, stop)).await;
                continue;
            }
            let tcp = TcpListener::bind(address.as_str()).await.with_context(|| cannot_listen_of(name, address))?;
            self.bound.push((name.clone(), tcp.local_addr()?));
            let limits = ReceiverLimits { connections: listener.max_connections, ..self.limits(settings) };
            let counts = Arc::new(Connections::within(self.cap.clone()).behind(door.clone()));
            metrics.count_connections(name, counts.clone());
            let (acceptor, budget, stop) = (ingest.acceptor(), budget.clone(), self.intake.closes());
            let format = match listener.protocol {
                ListenerProtocol::Line | ListenerProtocol::Udp => {
                    self.take_in(serve_lines(acceptor, tcp, limits, budget, counts, stop)).await;
                    continue;
                }
                ListenerProtocol::Pickle => FrameFormat::Pickle,
                ListenerProtocol::Protobuf => FrameFormat::Protobuf,
            };
            self.take_in(serve_frames(acceptor, format, tcp, limits, budget, counts, stop)).await;
        }
        Ok(())
    }

    /// Runs a receiver, which has a share in the intake.
    async fn take_in(&mut self, receiver: impl Future<Output = ()> + Send + 'static) {
        let share: Option<IntakeShare> = self.intake.enter().await;
        self.tasks.spawn(async move {
            let _share = share;
            receiver.await;
        });
    }

    fn limits(&self, settings: &Settings) -> ReceiverLimits {
        ReceiverLimits {
            connections: settings.receive.max_connections,
            idle: settings.receive.idle_timeout,
            frame_bytes: settings.receive.max_frame.as_usize(),
        }
    }

    /// Binds HTTP and administration, where the settings ask for them. [`Listeners::serve`] comes next, when what they serve
    /// is made.
    pub async fn bind_http(&mut self, settings: &Settings) -> anyhow::Result<Vec<HttpListener>> {
        let http = &settings.listen.http;
        let admin = settings.listen.admin.next_to(http.as_ref());
        let is_one = admin == *http;
        let mut bound = Vec::new();
        if let Some(address) = http {
            let paths = if is_one { Paths::All } else { Paths::Graphite };
            let has_tls = settings.http.tls_certificate.is_some();
            bound.push(HttpListener { listener: self.bind("http", address).await?, paths, has_tls });
        }
        if let Some(address) = admin.filter(|_| !is_one) {
            let has_tls = certificates::admin_has_tls(settings);
            let listener = self.bind("admin", &address).await?;
            bound.push(HttpListener { listener, paths: Paths::Administration, has_tls });
        }
        Ok(bound)
    }

    /// Lists the addresses for points before those of HTTP, which are the first `http` ones: they were bound before.
    pub fn list_points_first(&mut self, http: usize) {
        self.bound.rotate_left(http);
    }

    /// Serves HTTP, over TLS where the listener has it.
    pub fn serve(&mut self, bound: HttpListener, identity: Option<&Arc<Identity>>, api: Arc<Api>) {
        let mut stopped = self.stop.subscribe();
        let stopped = async move {
            let _ = stopped.wait_for(|&stop| stop).await;
        };
        let HttpListener { listener, paths, has_tls } = bound;
        match identity.filter(|_| has_tls) {
            Some(identity) => self.tasks.spawn(api.serve_tls(identity.clone(), listener, paths, stopped)),
            None => self.tasks.spawn(api.serve(listener, paths, stopped)),
        };
    }

    /// Name and address of each listener.
    pub fn addresses(&self) -> Vec<(String, String)> {
        self.bound.iter().map(|(name, address)| (name.clone(), address.to_string())).collect()
    }

    /// The address of queries over HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        self.bound.iter().find(|(name, _)| name == "http").map(|(_, address)| *address)
    }

    /// Tells a person, and a script, where to send points and queries.
    pub fn print(&self, settings: &Settings) {
        let mut lines = String::new();
        for (name, address) in &self.bound {
            let purpose = match name.as_str() {
                "line" if settings.listen.udp => "carbon's line protocol, TCP and UDP: point relays here",
                "line" => "carbon's line protocol: point relays here",
                "pickle" => "carbon's pickle protocol: point relays here",
                "protobuf" => "carbon's protobuf protocol",
                _ if settings.listeners.iter().any(|listener| listener.name.0 == *name) => "points, by [[listener]]",
                "admin" => "/metrics for Prometheus, /ready, /healthy, and administration",
                _ => "Grafana's Graphite datasource, graphite-web's CLUSTER_SERVERS, or a browser",
            };
            let has_tls = match name.as_str() {
                "http" => settings.http.tls_certificate.is_some(),
                _ => certificates::admin_has_tls(settings),
            };
            let address = match name.as_str() {
                "http" | "admin" if has_tls => format!("https://{address}"),
                "http" | "admin" => format!("http://{address}"),
                _ => address.to_string(),
            };
            lines += &format!("{name:<9} {address:<28} {purpose}\n");
        }
        let data = settings.data.dir.display();
        print(&format!("plumbago {}\n{lines}{:<9} {data}\nready\n", env!("CARGO_PKG_VERSION"), "data"));
    }

    /// Closes all listeners: each task reads what the kernel has received, and ends.
    pub fn close(&self) {
        self.intake.close();
        self.stop.send_replace(true);
    }

    /// Returns the reason when a task ends by itself, which it does by a panic alone. The process must then end, so that
    /// its supervisor starts it again: the sockets of the task are closed.
    pub async fn failed(&mut self) -> String {
        loop {
            match self.tasks.join_next().await {
                Some(Err(error)) => return format!("a listener failed: {error}"),
                // A receiver of a node that drains.
                Some(Ok(())) if self.intake.is_closed() => {}
                Some(Ok(())) => return "a listener ended".to_owned(),
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until every task has ended.
    pub async fn closed(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    async fn bind(&mut self, name: &'static str, address: &Address) -> anyhow::Result<TcpListener> {
        let listener = TcpListener::bind(address.as_str()).await;
        let listener =
            listener.with_context(|| cannot_listen(address, &format!("listen.{name}"), &format!("--{name}")))?;
        self.bound.push((name.to_owned(), listener.local_addr()?));
        Ok(listener)
    }
}

fn connections(metrics: &Metrics, receiver: &'static str, cap: &Arc<ConnectionCap>) -> Arc<Connections> {
    let connections = Arc::new(Connections::within(cap.clone()));
    metrics.count_connections(receiver, connections.clone());
    connections
}

fn cannot_listen_of(name: &str, address: &Address) -> String {
    format!("cannot listen on {address} ([[listener]] {name}); if another program does, stop it or choose another port")
}

fn cannot_listen(address: &Address, setting: &str, option: &str) -> String {
    format!(
        "cannot listen on {address} ({setting}); if another program does, stop it or choose another port with {option} \
         ADDR:PORT (port 0 takes a free one)"
    )
}
