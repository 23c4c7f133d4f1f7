//! Listeners: bound from the settings, closed together.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context;
use api::{Api, Paths};
use ingest::{
    Ingest,
    receivers::{
        ConnectionCap, Connections, FrameFormat, ReceiveBudget, ReceiverLimits, serve_datagrams, serve_frames,
        serve_lines,
    },
};
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
    task::JoinSet,
};

use crate::{
    descriptors::Descriptors,
    metrics::Metrics,
    output::print,
    settings::{Address, Settings},
};

/// The sockets that are open, and the tasks that serve them.
pub struct Listeners {
    tasks: JoinSet<()>,
    /// Name and address of each.
    bound: Vec<(&'static str, SocketAddr)>,
    stop: watch::Sender<bool>,
}

impl Listeners {
    /// None yet.
    pub fn new() -> Listeners {
        Listeners { tasks: JoinSet::new(), bound: Vec::new(), stop: watch::channel(false).0 }
    }

    /// Opens carbon's receivers.
    pub async fn receive(
        &mut self,
        settings: &Settings,
        ingest: &Arc<Ingest>,
        budget: &ReceiveBudget,
        descriptors: Descriptors,
        metrics: &Metrics,
    ) -> anyhow::Result<()> {
        let cap = Arc::new(ConnectionCap::new(descriptors.receivers));
        let limits = ReceiverLimits {
            connections: settings.receive.max_connections,
            idle: settings.receive.idle_timeout,
            frame_bytes: settings.receive.max_frame.as_usize(),
        };
        if let Some(address) = &settings.listen.line {
            let listener = self.bind("line", address).await?;
            if settings.listen.udp {
                let bound = listener.local_addr()?;
                let socket = UdpSocket::bind(bound).await;
                let socket = socket.with_context(|| cannot_listen(address, "listen.udp", "--line"))?;
                self.tasks.spawn(serve_datagrams(ingest.acceptor(), socket, self.stop.subscribe()));
            }
            let counts = connections(metrics, "line", &cap);
            self.tasks.spawn(serve_lines(
                ingest.acceptor(),
                listener,
                limits,
                budget.clone(),
                counts,
                self.stop.subscribe(),
            ));
        }
        let frames = [
            (&settings.listen.pickle, "pickle", FrameFormat::Pickle),
            (&settings.listen.protobuf, "protobuf", FrameFormat::Protobuf),
        ];
        for (address, name, format) in frames {
            let Some(address) = address else { continue };
            let listener = self.bind(name, address).await?;
            let counts = connections(metrics, name, &cap);
            self.tasks.spawn(serve_frames(
                ingest.acceptor(),
                format,
                listener,
                limits,
                budget.clone(),
                counts,
                self.stop.subscribe(),
            ));
        }
        Ok(())
    }

    /// Binds HTTP and administration, where the settings ask for them. [`Listeners::serve`] comes next, when what they serve
    /// is made.
    pub async fn bind_http(&mut self, settings: &Settings) -> anyhow::Result<Vec<(TcpListener, Paths)>> {
        let http = &settings.listen.http;
        let admin = settings.listen.admin.next_to(http.as_ref());
        let is_one = admin == *http;
        let mut bound = Vec::new();
        if let Some(address) = http {
            let paths = if is_one { Paths::All } else { Paths::Graphite };
            bound.push((self.bind("http", address).await?, paths));
        }
        if let Some(address) = admin.filter(|_| !is_one) {
            bound.push((self.bind("admin", &address).await?, Paths::Administration));
        }
        Ok(bound)
    }

    /// Serves HTTP.
    pub fn serve(&mut self, listener: TcpListener, paths: Paths, api: Arc<Api>) {
        let mut stopped = self.stop.subscribe();
        self.tasks.spawn(api.serve(listener, paths, async move {
            let _ = stopped.wait_for(|&stop| stop).await;
        }));
    }

    /// Name and address of each listener.
    pub fn addresses(&self) -> Vec<(String, String)> {
        self.bound.iter().map(|(name, address)| ((*name).to_owned(), address.to_string())).collect()
    }

    /// Tells a person, and a script, where to send points and queries.
    pub fn print(&self, settings: &Settings) {
        let mut lines = String::new();
        for (name, address) in &self.bound {
            let purpose = match *name {
                "line" if settings.listen.udp => "carbon's line protocol, TCP and UDP: point relays here",
                "line" => "carbon's line protocol: point relays here",
                "pickle" => "carbon's pickle protocol: point relays here",
                "protobuf" => "carbon's protobuf protocol",
                "admin" => "/metrics for Prometheus, /ready, /healthy, and administration",
                _ => "Grafana's Graphite datasource, graphite-web's CLUSTER_SERVERS, or a browser",
            };
            let address =
                if matches!(*name, "http" | "admin") { format!("http://{address}") } else { address.to_string() };
            lines += &format!("{name:<9} {address:<28} {purpose}\n");
        }
        let data = settings.data.dir.display();
        print(&format!("plumbago {}\n{lines}{:<9} {data}\nready\n", env!("CARGO_PKG_VERSION"), "data"));
    }

    /// Closes all listeners: each task reads what the kernel has received, and ends.
    pub fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Returns the reason when a task ends by itself, which it does by a panic alone. The process must then end, so that
    /// its supervisor starts it again: the sockets of the task are closed.
    pub async fn failed(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Err(error)) => format!("a listener failed: {error}"),
            Some(Ok(())) => "a listener ended".to_owned(),
            None => std::future::pending().await,
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
        self.bound.push((name, listener.local_addr()?));
        Ok(listener)
    }
}

fn connections(metrics: &Metrics, receiver: &'static str, cap: &Arc<ConnectionCap>) -> Arc<Connections> {
    let connections = Arc::new(Connections::within(cap.clone()));
    metrics.count_connections(receiver, connections.clone());
    connections
}

fn cannot_listen(address: &Address, setting: &str, option: &str) -> String {
    format!(
        "cannot listen on {address} ({setting}); if another program does, stop it or choose another port with {option} \
         ADDR:PORT (port 0 takes a free one)"
    )
}
