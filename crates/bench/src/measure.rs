//! One measurement: sends a load to a server and counts what that costs.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::{
    Error,
    cpu_time::{Both, busy_after, busy_before},
    encode::Protocol,
    http::Server,
    load::{Load, Part},
    measured::MeasuredServer,
    outcome::Outcome,
    process::Process,
    readable::Readable,
    rest::Rest,
    send::{Prepared, Sent},
    verify::verify,
};

/// The load of a measurement, and how it is sent and checked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// With one row more than is measured, unless the metrics are new.
    pub(crate) load: Load,
    /// Creating the metrics is part of the measurement.
    pub(crate) new: bool,
    pub(crate) connections: u64,
    /// Metrics to read back.
    pub(crate) verify: u64,
    /// Bytes made before the clock starts.
    pub(crate) ahead: u64,
}

/// The processor time at two moments of sending, and when it ended.
struct Sending {
    cpu_before: Both<Option<Duration>>,
    /// `None` when the server does not show when its points are stored.
    cpu_when_stored: Option<Both<Option<Duration>>>,
    ended: Instant,
}

/// 1. Waits until the server and its stores are idle.
/// 2. Sends the row that makes the metrics known.
/// 3. Sends the rest, and waits until it is stored, where the server shows that.
/// 4. Waits until the server and its stores are idle, makes it write everything out if it did not yet, and waits again.
/// 5. Reads points back.
pub(crate) fn measure(server: &MeasuredServer, plan: &Plan) -> Result<Outcome, Error> {
    let load = &plan.load;
    let mut outcome = Outcome { names: load.series, connections: plan.connections, ..Outcome::default() };
    let mut parts = make_parts(plan, server.protocol);
    let mut idle = server.rest()?;
    outcome.disk_before = server.disk_size()?;
    outcome.memory_before = server.process.map(Process::memory).transpose()?;
    let mut rows = 0..load.rows;
    if !plan.new {
        parts = make_known(server, plan, parts)?;
        idle = server.rest()?;
        rows.start = 1;
    }
    outcome.notes.extend(busy_before("the server", idle.server));
    outcome.notes.extend(busy_before("the store", idle.stores));
    outcome.points = load.series * u64::from(rows.end - rows.start);

    let sending = send(server, plan, parts, rows, &mut outcome)?;
    wait_until_idle(server, &sending, &mut outcome)?;
    outcome.memory = server.process.map(Process::memory).transpose()?;
    outcome.disk = server.settled_disk_size()?;
    if 0 < plan.verify
        && let Some(http) = &server.http
    {
        eprintln!("reading {} metrics back", plan.verify.min(load.series));
        outcome.verified = Some(verify(&mut Server::new(http, server.timeout)?, load, plan.verify)?);
    }
    outcome.divide(load.series * u64::from(load.rows));
    Ok(outcome)
}

fn make_parts(plan: &Plan, protocol: Protocol) -> Vec<Part> {
    let connections = plan.connections.min(plan.load.series);
    (0..connections).map(|part| plan.load.part(part, connections, protocol)).collect()
}

/// Sends the first row, and waits until its points are stored. Returns the parts, for the rows that follow.
fn make_known(server: &MeasuredServer, plan: &Plan, parts: Vec<Part>) -> Result<Vec<Part>, Error> {
    eprintln!("sending one point to each of {} metrics, so that they are known", plan.load.series);
    let parts = Prepared::new(&server.receiver, parts, 0..1, plan.ahead)?.send()?.parts;
    // Known to the store, too: creating a metric there is another measure.
    if !server.stores.is_empty() || server.flush_at_once {
        server.write_out()?;
    }
    if let Some(Readable { metrics, whole, lacking, seconds, .. }) =
        server.until_readable(&plan.load, 0..1)?.filter(|readable| !readable.complete())
    {
        return Err(Error::Unreadable { metrics, whole, lacking, seconds });
    }
    Ok(parts)
}

/// Sends these rows, and waits until they are stored, where the server shows that.
fn send(
    server: &MeasuredServer,
    plan: &Plan,
    parts: Vec<Part>,
    rows: Range<u32>,
    outcome: &mut Outcome,
) -> Result<Sending, Error> {
    eprintln!("making {} points of {} metrics", outcome.points, plan.load.series);
    let prepared = Prepared::new(&server.receiver, parts, rows.clone(), plan.ahead)?;
    if let Some(process) = server.process {
        process.forget_peak();
    }
    let client = Process::new(std::process::id())?;
    let client_before = client.cpu()?;
    let cpu_before = server.cpu_used()?;
    eprintln!("sending them to {} over {} connections", server.receiver, plan.connections);
    let begun = Instant::now();
    let Sent { written, accepted, bytes, parts: _ } = prepared.send()?;
    outcome.client_cpu_seconds = (client.cpu()? - client_before).as_secs_f64();
    outcome.bytes = bytes;
    outcome.written_seconds = written.as_secs_f64();
    outcome.accepted_seconds = accepted.map(|took| took.as_secs_f64());
    let ended = Instant::now();

    if server.flush_at_once {
        server.write_out()?;
    }
    outcome.readable = server.until_readable(&plan.load, rows)?;
    let shows_stored = server.flush_at_once || outcome.readable.is_some();
    let stored = shows_stored && outcome.readable.is_none_or(|readable| readable.complete());
    outcome.stored_seconds = stored.then(|| begun.elapsed().as_secs_f64());
    let cpu_when_stored = if stored { Some(server.cpu_used()?) } else { None };
    Ok(Sending { cpu_before, cpu_when_stored, ended })
}

/// Waits until the server and its stores are idle, makes the server write everything out, and counts processor time.
fn wait_until_idle(server: &MeasuredServer, sending: &Sending, outcome: &mut Outcome) -> Result<(), Error> {
    let waited = sending.ended.elapsed();
    let mut idle = server.rest()?;
    let idle_after = |rest: Option<Rest>| Some((waited + rest?.after?).as_secs_f64());
    outcome.idle_after_seconds = idle_after(idle.server);
    outcome.store_idle_after_seconds = idle_after(idle.stores);
    let mut counted = idle.counted(sending.cpu_when_stored);
    let spent = counted.since(sending.cpu_before);
    (outcome.cpu_seconds, outcome.store_cpu_seconds) = (spent.server, spent.stores);
    if server.flush.is_some() && !server.flush_at_once {
        server.write_out()?;
        let used = server.cpu_used()?;
        idle = server.rest()?;
        let flushed = idle.counted(Some(used));
        let spent = flushed.since(counted.cpu());
        (outcome.flush_cpu_seconds, outcome.store_flush_cpu_seconds) = (spent.server, spent.stores);
        counted = flushed;
    }
    outcome.cpu_until = counted.server.map(|counted| counted.until);
    outcome.store_cpu_until = counted.stores.map(|counted| counted.until);
    for (who, rest, counted) in
        [("the server", idle.server, counted.server), ("the store", idle.stores, counted.stores)]
    {
        outcome.notes.extend(busy_after(who, rest, counted, server.idle_timeout));
    }
    Ok(())
}
