//! `plumbago bench visible`: the time from sending a point to reading it.

use std::{
    io::Write,
    net::TcpStream,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;

use crate::{Error, http::Server, latency::Latency, load::now, report, verify::series};

/// The addresses to send to and to ask.
#[derive(Debug, clap::Args)]
pub(crate) struct VisibleArgs {
    /// Address that takes plain lines
    #[arg(long)]
    line: String,
    /// HTTP address of the same server
    #[arg(long)]
    http: String,
    /// How many metrics to try
    #[arg(long, default_value_t = 10)]
    count: u32,
    /// Seconds after which a point counts as lost
    #[arg(long, default_value_t = 60)]
    timeout: u64,
}

/// The shortest pause between an answer without the point and the next request. Pauses grow to a hundredth of the time
/// waited: requests do not load a server that takes seconds, and the figure is still good to 1 %.
const SHORTEST_PAUSE: Duration = Duration::from_micros(500);

/// Milliseconds from sending a point to the end of the first answer with it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Visible {
    /// The first point of a metric.
    pub(crate) new: Latency,
    /// A later point.
    pub(crate) known: Latency,
}

pub(crate) fn run(args: &VisibleArgs, json: bool) -> Result<(), Error> {
    let visible = visible(&args.line, &args.http, args.count, Duration::from_secs(args.timeout))?;
    if json {
        report::print_json(&visible);
        return Ok(());
    }
    let row = |what: &str, latency: Latency| {
        let numbers = [latency.p50, latency.p90, latency.p99, latency.max].map(report::number);
        [vec![what.to_owned()], numbers.into()].concat()
    };
    let rows = [row("of a new metric", visible.new), row("of a known metric", visible.known)];
    print!("{}", report::table(&report::row(["point", "p50 ms", "p90 ms", "p99 ms", "max ms"]), &rows));
    Ok(())
}

pub(crate) fn visible(line: &str, http: &str, count: u32, timeout: Duration) -> Result<Visible, Error> {
    let failed = |source| Error::Socket { what: "sending to", address: line.to_owned(), source };
    let mut server = Server::new(http, timeout)?;
    let mut stream = TcpStream::connect(line).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    // Names that no earlier run has used.
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for turn in 0..count.max(1) {
        let name = format!("bench.visible.run{run}.metric{turn}");
        let last = now() / 60 * 60;
        for (time, value, times) in [(last - 120, 1.5, &mut new), (last - 60, 2.5, &mut known)] {
            let started = Instant::now();
            stream.write_all(format!("{name} {value} {time}\n").as_bytes()).map_err(failed)?;
            times.push(wait(&mut server, &name, time, value, started, timeout)?);
        }
    }
    let latency = |times| Latency::of(times).expect("there is at least one turn");
    Ok(Visible { new: latency(new), known: latency(known) })
}

/// Asks until the point is there.
fn wait(
    server: &mut Server,
    name: &str,
    time: u32,
    value: f64,
    started: Instant,
    timeout: Duration,
) -> Result<Duration, Error> {
    // A slot more at either side, because not all servers agree on which end of the window belongs to it.
    let (from, until) = ((time - 61).to_string(), (time + 60).to_string());
    let parameters = [("target", name), ("format", "json"), ("from", &from), ("until", &until), ("noCache", "1")];
    loop {
        let answer = server.get("/render", &parameters)?.success()?;
        let seen = started.elapsed();
        let found = series(&answer)?;
        if found.iter().any(|series| series.values().any(|point| point == (i64::from(time), value))) {
            return Ok(seen);
        }
        if timeout < seen {
            return Err(answer.unexpected(format!("the point of {time} was not there after {} s", seen.as_secs())));
        }
        thread::sleep(SHORTEST_PAUSE.max(seen / 100));
    }
}
