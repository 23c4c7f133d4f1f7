//! A connection that breaks when its client reads too slowly, and that notices the beginning of a request.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};
use tokio_io_timeout::TimeoutStream;

use super::{
    idle::Idleness,
    limits::Limits,
    pace::{Pace, Waited},
};

/// A stream with a least rate of writes, while these wait for the client.
pub(super) struct PacedStream<S> {
    // Breaks at a write without any progress.
    stream: Pin<Box<TimeoutStream<S>>>,
    idleness: Arc<Idleness>,
    pace: Pace,
    waited: Waited,
    /// Since when a write waits.
    blocked: Option<Instant>,
    /// Made at the first write that waits.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite> PacedStream<S> {
    pub(super) fn new(stream: S, limits: &Limits, idleness: Arc<Idleness>) -> PacedStream<S> {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.idle));
        let (stream, pace) = (Box::pin(stream), Pace::new(limits));
        PacedStream { stream, idleness, pace, waited: Waited::default(), blocked: None, alarm: None }
    }

    /// Counts what came of a write.
    fn paced(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(written) => {
                let Some(since) = self.blocked.take() else { return Poll::Ready(written) };
                self.waited.bytes += *written.as_ref().unwrap_or(&0) as u64;
                self.wait_ends(since)?;
                Poll::Ready(written)
            }
            Poll::Pending => {
                self.idleness.keeps_waiting();
                self.wait(cx)?;
                Poll::Pending
            }
        }
    }

    /// A write waits: sees to it that the window ends.
    fn wait(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let is_new = self.blocked.is_none();
            let since = *self.blocked.get_or_insert_with(tokio::time::Instant::now);
            let end = since + self.pace.window.saturating_sub(self.waited.time);
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
            if is_new {
                alarm.as_mut().reset(end);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.blocked = None;
            self.wait_ends(since)?;
        }
    }

    fn wait_ends(&mut self, since: Instant) -> io::Result<()> {
        self.waited.time += since.elapsed().max(Duration::from_nanos(1));
        if self.pace.is_missed(&mut self.waited) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the client reads an answer too slowly (http.min_rate)",
            ));
        }
        Ok(())
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncRead for PacedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = self.stream.as_mut().poll_read(cx, into);
        if before < into.filled().len() {
            self.idleness.receives();
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite> AsyncWrite for PacedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream.as_mut().poll_write(cx, bytes);
        self.paced(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.as_mut().poll_write_vectored(cx, slices);
        self.paced(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream.as_mut().poll_flush(cx).map_ok(|()| 0);
        self.paced(cx, flushed).map_ok(|_| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}
